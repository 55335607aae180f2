"""Changes that are no scores, on the shared ledger: those about a board are control events, which stop nobody but each
other; removals are events of their player's partition.

    SharedChanges.define → SharedWriter.run_for → a repeat? → PartitionedLedger.append_control → followed → Changed
"""

from __future__ import annotations

from collections.abc import Callable

from rankd.domain.board import Board
from rankd.domain.change import change
from rankd.domain.consistency import check_feeds, check_instances_per_event
from rankd.domain.definition import define_board, definition_of
from rankd.domain.position import tokens
from rankd.errors import BoardInUse, WindowUnknown
from rankd.intake.followed import FollowedLedger
from rankd.intake.results import Changed
from rankd.intake.scores import fingerprint_of
from rankd.intake.sender import Sender
from rankd.ledger.event import Context, Detail, Kind
from rankd.ledger.partitioned import ControlEvent, Keyed, PartitionedLedger
from rankd.scaled.writer import SharedWriter
from rankd.shortening import list_names, quote

Draft = Callable[[], ControlEvent | None]
IsThere = Callable[[str, str], bool]


class SharedChanges:
    """Makes changes, each once under its key."""

    def __init__(
        self,
        writer: SharedWriter,
        ledger: PartitionedLedger,
        followed: FollowedLedger,
        is_there: IsThere,
        *,
        instances_per_event_max: int,
        check_board: Callable[[Board], None] = lambda _board: None,
    ) -> None:
        """`is_there` tells whether a player stands on a board, `check_board` refuses one that cannot be ranked."""
        self._writer = writer
        self._ledger = ledger
        self._followed = followed
        self._check_board = check_board
        self._is_there = is_there
        self._instances_per_event_max = instances_per_event_max

    def register(self, work: Callable[[], object], said: object, sender: Sender) -> None:
        """Change the registry, in the caller's own thread: scores do not wait for it."""
        self._writer.check_open()
        fingerprint = b"" if sender.key is None else fingerprint_of(said)
        if self._writer.repeat_of(sender, fingerprint) is not None:
            return
        work()
        if sender.key is None:
            return

        def remembered(seen: int) -> None:
            if self._writer.repeat_of(sender, fingerprint) is None:
                commit = self._writer.new_commit()
                commit.add_request(sender, fingerprint, 0)
                self._writer.append(commit, seen)

        self._writer.run_for(lambda: self._writer.retrying(remembered))

    def define(self, board_id: object, definition: object, sender: Sender) -> Changed:
        """Define a board or change it; the same definition again changes nothing."""
        board = define_board(board_id, definition)
        said = (Kind.DEFINE, board.id, definition_of(board))
        return self._once(sender, said, lambda: self._define(board, sender.name))

    def delete(self, board_id: str, sender: Sender) -> Changed:
        """Delete a board with all its instances."""

        def delete() -> ControlEvent:
            feeding = [other.id for other in self._followed.applier.directory.feeders_of(board_id)]
            board = self._writer.board(board_id)
            if feeding:
                raise BoardInUse(f"board: {board_id} is fed by {list_names(feeding)}; delete those first")
            return self._event(Kind.DELETE, board, sender.name)

        return self._once(sender, (Kind.DELETE, board_id), delete)

    def reset(self, board_id: str, window: str | None, sender: Sender) -> Changed:
        """Empty the current instances of one window, or of all."""

        def reset() -> ControlEvent:
            board = self._writer.board(board_id)
            if window is not None and window not in board.all_windows:
                raise WindowUnknown(
                    f"window: {board_id} has no window {quote(window)}; it declares {list_names(board.all_windows)}"
                )
            detail = None if window is None else Detail(window=window)
            return self._event(Kind.RESET, board, sender.name, detail)

        return self._once(sender, (Kind.RESET, board_id, window), reset)

    def remove(self, board_id: str, player: str, sender: Sender) -> Changed:
        """Take a player out of every instance of a board."""
        fingerprint = b"" if sender.key is None else fingerprint_of((Kind.REMOVE, board_id, player))
        was_there = self._is_there(board_id, player)  # asked here, where no scores wait for Redis

        def remove(seen: int) -> Changed:
            known = self._writer.repeat_of(sender, fingerprint)
            if known is not None:
                return Changed(tokens(known.positions), repeated=True)
            board = self._writer.board(board_id)
            commit = self._writer.new_commit()
            commit.add_event(self._writer.acceptances.at(board, sender.name, Kind.REMOVE, commit.at), player)
            commit.add_request(sender, fingerprint, 0)
            positions = self._writer.append(commit, seen).positions(0, 1)
            self._followed.settle(positions)
            return Changed(tokens(positions), was_there)

        return self._writer.run_for(lambda: self._writer.retrying(remove))

    def _once(self, sender: Sender, said: object, draft: Draft) -> Changed:
        """Append a control event unless it was made under its key before; `draft` makes it, or None for no change."""
        fingerprint = b"" if sender.key is None else fingerprint_of(said)

        def change_once(seen: int) -> Changed:
            known = self._writer.repeat_of(sender, fingerprint)
            if known is not None:
                return Changed(tokens(known.positions), repeated=True)
            event = draft()
            if event is None:
                heads = self._ledger.heads()
                return Changed(tokens(dict(enumerate(heads.sequences))), changed=False)
            request = None if sender.key is None else Keyed(sender.account, sender.key, fingerprint, 0, 1)
            (made,) = self._ledger.append_control(
                [event], seen, request, forgotten_before=self._writer.forgotten_before
            )
            self._writer.catch_up()
            return Changed(tokens(dict(enumerate(made.sequences))))

        def changed() -> Changed:
            self._writer.catch_up()  # whoever defines must see what others have defined
            return self._writer.retrying(change_once)

        return self._writer.run_for(changed)

    def _define(self, board: Board, sender: str) -> ControlEvent | None:
        boards = self._followed.boards
        old = boards.get(board.id)
        if old is not None and not change(old, board):
            return None
        self._check_board(board)
        feeders = self._followed.applier.directory.feeders_of(board.id)
        check_feeds(board, boards, feeders)
        check_instances_per_event(board, boards, feeders, self._instances_per_event_max)
        version = self._followed.applier.state.versions.get(board.id, 0) + 1
        accepted = self._writer.acceptances.accepted(board, self._writer.at, version)
        context = Context(Kind.DEFINE, board.id, sender, {board.id: accepted})
        return ControlEvent(context, Detail(definition=definition_of(board)), self._writer.at)

    def _event(self, kind: Kind, board: Board, sender: str, detail: Detail | None = None) -> ControlEvent:
        acceptance = self._writer.acceptances.at(board, sender, kind, self._writer.at)
        return ControlEvent(acceptance.context, detail, self._writer.at)
