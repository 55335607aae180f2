"""Changes that are no scores: boards come and go, players are removed, windows are emptied, profiles are set.

    Changes.define → Writer.run_for → a repeat? → Ledger.append_control → followed → Changed

Those about a board are control events, which stand in every partition; removals are events of their player's partition.
What the registry holds is no event.
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
from rankd.intake.writer import Writer
from rankd.ledger.event import Context, Detail, Kind
from rankd.ledger.port import ControlEvent, KeyedRequest, Ledger, Request
from rankd.shortening import list_names, quote

Draft = Callable[[], ControlEvent | None]
IsThere = Callable[[str, str], bool]


class Changes:
    """Makes changes, each once under its key."""

    def __init__(
        self,
        writer: Writer,
        ledger: Ledger,
        followed: FollowedLedger,
        *,
        instances_per_event_max: int,
        is_there: IsThere = lambda _board, _player: True,
        check_board: Callable[[Board], None] = lambda _board: None,
        after_register: Callable[[], None] | None = None,
    ) -> None:
        """`is_there` tells whether a player stands on a board, where this process does not rank; `check_board` refuses
        a board that cannot be ranked. With `after_register` the registry is changed in the committing thread, since it
        shares the ledger's file, and it is called after each change.
        """
        self._writer = writer
        self._ledger = ledger
        self._followed = followed
        self._check_board = check_board
        self._after_register = after_register
        self._is_there = is_there
        self._instances_per_event_max = instances_per_event_max

    def register(self, work: Callable[[], object], said: object, sender: Sender) -> None:
        """Change the registry, once under its key."""
        self._writer.check_open()
        fingerprint = b"" if sender.key is None else fingerprint_of(said)
        after = self._after_register
        if after is None:  # in the caller's own thread: scores do not wait for it
            self._register_once(work, sender, fingerprint)
            if sender.key is not None:
                self._writer.run_for(lambda: self._remember(sender, fingerprint))
            return

        def registered() -> None:
            try:
                is_new = self._register_once(work, sender, fingerprint)
            finally:
                after()
            if is_new and sender.key is not None:
                self._remember(sender, fingerprint)

        self._writer.run_for(registered)

    def _register_once(self, work: Callable[[], object], sender: Sender, fingerprint: bytes) -> bool:
        if self._writer.repeat_of(sender, fingerprint) is not None:
            return False
        work()
        return True

    def _remember(self, sender: Sender, fingerprint: bytes) -> None:
        def remember(seen: int) -> None:
            if self._writer.repeat_of(sender, fingerprint) is None:
                commit = self._writer.new_commit()
                commit.add_request(sender, fingerprint, 0)
                self._writer.append(commit, seen)

        self._writer.retrying(remember)

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
                return self._answer_again(known)
            board = self._writer.board(board_id)
            commit = self._writer.new_commit()
            commit.add_event(self._writer.acceptances.at(board, sender.name, Kind.REMOVE, commit.at), player)
            commit.add_request(sender, fingerprint, 0)
            position = tokens(self._writer.append(commit, seen).end)
            has_changed = self._followed.has_changed
            return self._answer(sender, Changed(position, was_there if has_changed is None else has_changed))

        return self._writer.run_for(lambda: self._writer.retrying(remove))

    def _once(self, sender: Sender, said: object, draft: Draft) -> Changed:
        """Append a control event unless it was made under its key before; `draft` makes it, or None for no change."""
        fingerprint = b"" if sender.key is None else fingerprint_of(said)

        def change_once(seen: int) -> Changed:
            known = self._writer.repeat_of(sender, fingerprint)
            if known is not None:
                return self._answer_again(known)
            event = draft()
            if event is None:
                return self._unchanged(sender, fingerprint, seen)
            request = None if sender.key is None else KeyedRequest(sender.account, sender.key, fingerprint, 0, 1)
            before = self._writer.forgotten_before
            (made,) = self._writer.append_control(
                lambda: self._ledger.append_control([event], seen, request, forgotten_before=before)
            )
            has_changed = self._followed.has_changed
            return self._answer(sender, Changed(tokens(dict(enumerate(made.sequences))), has_changed is not False))

        def changed() -> Changed:
            self._followed.catch_up()  # whoever defines must see what others have defined
            return self._writer.retrying(change_once)

        return self._writer.run_for(changed)

    def _unchanged(self, sender: Sender, fingerprint: bytes, seen: int) -> Changed:
        """Answer what changes nothing; its key is remembered all the same."""
        if sender.key is not None:
            commit = self._writer.new_commit()
            commit.add_request(sender, fingerprint, 0)
            self._writer.append(commit, seen)
        position = tokens(dict(enumerate(self._ledger.heads().sequences)))
        return self._answer(sender, Changed(position, changed=False))

    def _answer(self, sender: Sender, answer: Changed) -> Changed:
        self._writer.answers.remember(sender, answer)
        return answer

    def _answer_again(self, request: Request) -> Changed:
        return self._writer.answers.find(request, Changed) or Changed(tokens(request.positions), repeated=True)

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
