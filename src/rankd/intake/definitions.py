"""The boards in a process that does not rank: definitions, closed windows, the ledger's time.

    control events → Definitions.catch_up → boards, state

The projector's applier follows the control events over an empty store. So reads and acceptances find the same state
as in the projector, as of the last control event followed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from rankd.domain.board import Board
from rankd.domain.position import tokens
from rankd.errors import LedgerNewer
from rankd.intake.commit import Commit
from rankd.intake.results import Accepted, Question
from rankd.intake.scores import ScoreTask
from rankd.ledger.event import Context, control_run
from rankd.ledger.port import CONTROLS_MAX, Appended, DefinitionsChanged, SharedLedger, StoredRequest
from rankd.projection.applier import Applier
from rankd.projection.catalogue import Catalogue
from rankd.projection.state import State
from rankd.projection.unranked import UnrankedStore

_NUMBER = 0  # control events carry their context


class Definitions:
    """The boards as of the last control event followed; any thread may call `catch_up`."""

    has_changed = None
    checks_early = True

    def __init__(self, ledger: SharedLedger, position: Callable[[], str] = lambda: "") -> None:
        """Follow all control events; `position` returns the ledger's position."""
        self._ledger = ledger
        self._is_log = not ledger.capabilities.appends_conditionally
        self._is_changing = False  # a control event is being applied
        self._position = position
        self._lock = threading.Lock()
        self._context: Context | None = None
        self.applier = Applier(UnrankedStore(), State(), Catalogue(), self._context_of)
        self.boards: Mapping[str, Board] = self.applier.directory.boards
        self.has_caught_up = True  # `catch_up` always reads to the head
        self.beyond: LedgerNewer | None = None
        self.seen = 0
        self.at = 0
        self.catch_up()

    @property
    def position_token(self) -> str:
        """The ledger's position as of the last `catch_up`."""
        return self._position()

    def catch_up(self) -> bool:
        """Follow new control events; return whether there were any."""
        with self._lock:
            try:
                changed = self._catch_up()
            except LedgerNewer as problem:
                self.beyond = problem
                raise
            self.beyond = None
            return changed

    def _catch_up(self) -> bool:
        before = self.seen
        while events := self._ledger.controls(self.seen, CONTROLS_MAX):
            for event in events:
                self._context, self._is_changing = event.context, True
                self.applier.apply(control_run(_NUMBER, event.at, event.detail, event.sequences[0]))
                self.at = max(self.at, event.at)
                self.seen = event.number
                self._is_changing = False
            if len(events) < CONTROLS_MAX:
                break
        return self.seen != before

    def get_ready(self) -> None:
        """Do nothing: the ledger refuses a commit that was checked by older definitions."""

    def check_as_of(self, seen: int) -> None:
        """Refuse a commit that was drafted by older definitions than those followed; other ledgers do so themselves."""
        if self._is_log and (self._is_changing or self.seen != seen):
            raise DefinitionsChanged

    def version_of(self, board_id: str) -> int:
        """Return a board's version; raises DefinitionsChanged after its deletion."""
        live = self.applier.state.boards.get(board_id)
        if live is None:
            raise DefinitionsChanged
        return live.version

    def rank(self, commit: Commit, _appended: Appended) -> None:
        """Leave ranking to the projector; record the scope values, which count against a limit."""
        commit.note_scope_values()

    def result(self, task: ScoreTask, question: Question | None, positions: Mapping[int, int], at: int) -> Accepted:
        """Answer with the positions of the scores in the ledger."""
        return Accepted(tokens(positions), task.events, question=question, at=at)

    def result_again(self, _task: ScoreTask, request: StoredRequest) -> Accepted:
        """Answer a repeat with the positions of the first request."""
        return Accepted(tokens(request.positions), request.events, repeated=True)

    def _context_of(self, _number: int) -> Context:
        if self._context is None:
            raise AssertionError("no control event is being applied")
        return self._context
