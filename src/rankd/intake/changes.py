"""Changes that are no scores: boards come and go, players are removed, windows are emptied, profiles are set.

    Changes.remove → Writer.run_for → a repeat? → an event is drafted → Writer.append → applied → Changed

Each is an event in the ledger, except what the registry holds.
"""

from __future__ import annotations

from collections.abc import Callable

from rankd.domain.board import Board
from rankd.domain.change import change
from rankd.domain.consistency import check_feeds, check_instances_per_event
from rankd.domain.definition import define_board, definition_of
from rankd.errors import BoardInUse, WindowUnknown
from rankd.intake.accept import Acceptance
from rankd.intake.commit import Commit
from rankd.intake.results import Changed, token
from rankd.intake.scores import fingerprint_of
from rankd.intake.sender import Sender
from rankd.intake.writer import Writer
from rankd.ledger.event import Context, Detail, Kind
from rankd.ledger.sqlite import SqliteLedger
from rankd.projection.applier import Applier
from rankd.shortening import list_names, quote


class Changes:
    """Makes changes, each in a commit of its own and once under its key."""

    def __init__(self, writer: Writer, ledger: SqliteLedger, applier: Applier, instances_per_event_max: int) -> None:
        """They are committed by the writer, between scores."""
        self._writer = writer
        self._ledger = ledger
        self._applier = applier
        self._instances_per_event_max = instances_per_event_max

    def register(self, work: Callable[[], object], said: object, sender: Sender) -> None:
        """Change the registry: that may number players, as commits do."""
        fingerprint = b"" if sender.key is None else fingerprint_of(said)

        def registered() -> None:
            if self._writer.repeats.find_change(sender, fingerprint, self._writer.at) is not None:
                return
            try:
                work()
            finally:
                self._ledger.forget_numbers()
            if sender.key is not None:
                self._append(self._writer.new_commit(), sender, fingerprint)

        self._writer.run(registered)

    def define(self, board_id: object, definition: object, sender: Sender) -> Changed:
        """Define a board or change it; the same definition again changes nothing."""
        board = define_board(board_id, definition)
        said = (Kind.DEFINE, board.id, definition_of(board))
        return self._once(sender, said, lambda commit: self._define(commit, board, sender.name))

    def delete(self, board_id: str, sender: Sender) -> Changed:
        """Delete a board with all its instances."""
        return self._once(sender, (Kind.DELETE, board_id), lambda commit: self._delete(commit, board_id, sender.name))

    def remove(self, board_id: str, player: str, sender: Sender) -> Changed:
        """Take a player out of every instance of a board."""

        def remove(commit: Commit) -> None:
            board = self._writer.board(board_id)
            commit.add_event(self._writer.acceptances.at(board, sender.name, Kind.REMOVE, commit.at), player)

        return self._once(sender, (Kind.REMOVE, board_id, player), remove)

    def reset(self, board_id: str, window: str | None, sender: Sender) -> Changed:
        """Empty the current instances of one window, or of all."""

        def reset(commit: Commit) -> None:
            board = self._writer.board(board_id)
            if window is not None and window not in board.all_windows:
                raise WindowUnknown(
                    f"window: {board_id} has no window {quote(window)}; it declares {list_names(board.all_windows)}"
                )
            detail = None if window is None else Detail(window=window)
            commit.add_event(self._writer.acceptances.at(board, sender.name, Kind.RESET, commit.at), detail=detail)

        return self._once(sender, (Kind.RESET, board_id, window), reset)

    # In the committing thread

    def _once(self, sender: Sender, said: object, draft: Callable[[Commit], None]) -> Changed:
        """Commit a change unless it was made under its key before; `draft` adds its event, or nothing."""
        fingerprint = b"" if sender.key is None else fingerprint_of(said)

        def change_once() -> Changed:
            known = self._writer.repeats.find_change(sender, fingerprint, self._writer.at)
            if known is not None:
                return known
            commit = self._writer.new_commit()
            draft(commit)
            if not commit.events and sender.key is None:
                return Changed(token(self._writer.position), changed=False)
            return self._append(commit, sender, fingerprint)

        return self._writer.run_for(change_once)

    def _append(self, commit: Commit, sender: Sender, fingerprint: bytes) -> Changed:
        commit.add_request(sender, fingerprint, 0)
        self._writer.append(commit)
        answer = Changed(token(self._writer.position), bool(commit.events) and self._applier.changed)
        self._writer.repeats.remember(sender, answer)
        return answer

    def _define(self, commit: Commit, board: Board, sender: str) -> None:
        boards = self._writer.boards
        old = boards.get(board.id)
        if old is not None and not change(old, board):
            return
        feeders = self._applier.directory.feeders_of(board.id)
        check_feeds(board, boards, feeders)
        check_instances_per_event(board, boards, feeders, self._instances_per_event_max)
        version = self._applier.state.versions.get(board.id, 0) + 1
        accepted = self._writer.acceptances.accepted(board, commit.at, version)
        context = Context(Kind.DEFINE, board.id, sender, {board.id: accepted})
        acceptance = Acceptance(context, self._ledger.number_context(context), board, [])
        commit.add_event(acceptance, detail=Detail(definition=definition_of(board)))

    def _delete(self, commit: Commit, board_id: str, sender: str) -> None:
        board = self._writer.board(board_id)
        feeding = [other.id for other in self._applier.directory.feeders_of(board_id)]
        if feeding:
            raise BoardInUse(f"board: {board_id} is fed by {list_names(feeding)}; delete those first")
        commit.add_event(self._writer.acceptances.at(board, sender, Kind.DELETE, commit.at))
