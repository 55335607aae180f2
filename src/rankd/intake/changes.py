"""Changes other than scores: define and delete boards, remove players, reset windows, set profiles.

    Changes.define → Writer.run_for → a repeat? → Ledger.append_control → followed → Changed

Changes of a board are control events, which are in every partition; a removal is an event of its player's partition.
Changes of the registry are no events.

Removals and resets wait while ranks lag, as scores do. Definitions and deletions do not: to close or delete a board is
how an administrator ends a flood of scores.
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
from rankd.ledger.event import Context, Detail, EventKind
from rankd.ledger.port import ControlEvent, KeyedRequest, Ledger, StoredRequest
from rankd.shortening import list_names, quote

MakeControlEvent = Callable[[], ControlEvent | None]
IsThere = Callable[[str, str], bool]


class Changes:
    """Makes changes, each at most once under its idempotency key."""

    def __init__(
        self,
        writer: Writer,
        ledger: Ledger,
        followed: FollowedLedger,
        *,
        instances_per_event_max: int,
        is_there: IsThere = lambda _board, _player: True,
        check_board: Callable[[Board], None] = lambda _board: None,
        registers_in_commits: bool = False,
    ) -> None:
        """`is_there` returns whether a board has a player, where this process does not rank; `check_board` refuses a
        board that cannot be ranked. A registry that shares the ledger's file `registers_in_commits`: the committing
        thread changes it.
        """
        self._writer = writer
        self._ledger = ledger
        self._followed = followed
        self._check_board = check_board
        self._registers_in_commits = registers_in_commits
        self._is_there = is_there
        self._instances_per_event_max = instances_per_event_max

    def register(self, work: Callable[[], object], content: object, sender: Sender) -> None:
        """Change the registry, at most once under the sender's key."""
        self._writer.check_open()
        fingerprint = b"" if sender.key is None else fingerprint_of(content)
        if not self._registers_in_commits:  # in the caller's thread, so that scores do not wait
            self._register_once(work, sender, fingerprint)
            if sender.key is not None:
                self._writer.run_for(lambda: self._remember(sender, fingerprint))
            return

        def registered() -> None:
            if self._register_once(work, sender, fingerprint) and sender.key is not None:
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
        """Define or change a board; an equal definition changes nothing."""
        board = define_board(board_id, definition)
        content = (EventKind.DEFINE, board.id, definition_of(board))
        return self._once(sender, content, board.id, lambda: self._define(board, sender.name))

    def delete(self, board_id: str, sender: Sender) -> Changed:
        """Delete a board with all its instances."""

        def delete() -> ControlEvent:
            feeding = [other.id for other in self._followed.applier.directory.feeders_of(board_id)]
            board = self._writer.board(board_id)
            if feeding:
                raise BoardInUse(f"board: {board_id} is fed by {list_names(feeding)}; delete those first")
            return self._event(EventKind.DELETE, board, sender.name)

        return self._once(sender, (EventKind.DELETE, board_id), board_id, delete)

    def reset(self, board_id: str, window: str | None, sender: Sender) -> Changed:
        """Empty the current instances of one window, or of all."""
        self._writer.admit(sender)

        def reset() -> ControlEvent:
            board = self._writer.board(board_id)
            if window is not None and window not in board.all_windows:
                raise WindowUnknown(
                    f"window: {board_id} has no window {quote(window)}; it declares {list_names(board.all_windows)}"
                )
            detail = None if window is None else Detail(window=window)
            return self._event(EventKind.RESET, board, sender.name, detail)

        return self._once(sender, (EventKind.RESET, board_id, window), board_id, reset)

    def remove(self, board_id: str, player: str, sender: Sender) -> Changed:
        """Remove a player from every instance of a board."""
        self._writer.admit(sender)
        fingerprint = b"" if sender.key is None else fingerprint_of((EventKind.REMOVE, board_id, player))
        was_there = self._is_there(board_id, player)  # read here: the committing thread must not wait for Redis

        def remove(seen: int) -> Changed:
            earlier = self._writer.repeat_of(sender, fingerprint)
            if earlier is not None:
                return self._answer_again(earlier)
            board = self._writer.board(board_id)
            commit = self._writer.new_commit()
            commit.add_event(self._writer.acceptances.at(board, sender.name, EventKind.REMOVE, commit.at), player)
            commit.add_request(sender, fingerprint, 0)
            position = tokens(self._writer.append(commit, seen).end)
            has_changed = self._followed.has_changed
            return self._answer(sender, Changed(position, was_there if has_changed is None else has_changed))

        return self._writer.run_for(lambda: self._writer.retrying(remove, (board_id,)))

    def _once(self, sender: Sender, content: object, board_id: str, make_event: MakeControlEvent) -> Changed:
        """Append a control event unless its key was used before; `make_event` returns it, or None for no change."""
        fingerprint = b"" if sender.key is None else fingerprint_of(content)

        def change_once(seen: int) -> Changed:
            earlier = self._writer.repeat_of(sender, fingerprint)
            if earlier is not None:
                return self._answer_again(earlier)
            event = make_event()
            if event is None:
                return self._unchanged(sender, fingerprint, seen)
            request = None if sender.key is None else KeyedRequest(sender.account, sender.key, fingerprint, 0, 1)
            before = self._writer.forgotten_before
            (made,) = self._writer.append_control(
                lambda: self._ledger.append_control(
                    [event], seen, request, forgotten_before=before, origin=sender.origin
                )
            )
            has_changed = self._followed.has_changed
            return self._answer(sender, Changed(tokens(dict(enumerate(made.sequences))), has_changed is not False))

        def changed() -> Changed:
            self._followed.catch_up()  # check against the definitions of other processes
            return self._writer.retrying(change_once, (board_id,))

        return self._writer.run_for(changed)

    def _unchanged(self, sender: Sender, fingerprint: bytes, seen: int) -> Changed:
        """Answer a change without effect; its key is stored all the same."""
        if sender.key is not None:
            request = KeyedRequest(sender.account, sender.key, fingerprint, 0, 0)
            at, before = self._writer.at, self._writer.forgotten_before
            self._writer.append_control(
                lambda: self._ledger.append_control([], seen, request, at=at, forgotten_before=before)
            )
        position = tokens(dict(enumerate(self._ledger.heads().sequences)))
        return self._answer(sender, Changed(position, changed=False))

    def _answer(self, sender: Sender, answer: Changed) -> Changed:
        self._writer.answers.remember(sender, answer)
        return answer

    def _answer_again(self, request: StoredRequest) -> Changed:
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
        context = Context(EventKind.DEFINE, board.id, sender, {board.id: accepted})
        return ControlEvent(context, Detail(definition=definition_of(board)), self._writer.at)

    def _event(self, kind: EventKind, board: Board, sender: str, detail: Detail | None = None) -> ControlEvent:
        acceptance = self._writer.acceptances.at(board, sender, kind, self._writer.at)
        return ControlEvent(acceptance.context, detail, self._writer.at)
