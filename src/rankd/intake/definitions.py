"""What a process that does not rank knows of the boards: definitions, which windows are final, the ledger's time.

    control events → Definitions.catch_up → boards, state

The same applier that ranks follows the control events, over a store that ranks nothing. So whatever a read or an
acceptance asks of the state is answered as in the projector, as of the control events seen.
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
from rankd.ledger.port import CONTROLS_MAX, Appended, DefinitionsChanged, Request, SharedLedger
from rankd.projection.applier import Applier
from rankd.projection.catalogue import Catalogue
from rankd.projection.state import State
from rankd.projection.unranked import UnrankedStore

_NUMBER = 0  # control events bring their context along


class Definitions:
    """The boards as of the control events seen; `catch_up` may be called from any thread."""

    has_changed = None
    checks_early = True

    def __init__(self, ledger: SharedLedger, position: Callable[[], str] = lambda: "") -> None:
        """Read everything there is; `position` tells how far the ledger is."""
        self._ledger = ledger
        self._position = position
        self._lock = threading.Lock()
        self._context: Context | None = None
        self.applier = Applier(UnrankedStore(), State(), Catalogue(), self._context_of)
        self.beyond: LedgerNewer | None = None
        self.seen = 0
        self.at = 0
        self.catch_up()

    @property
    def boards(self) -> Mapping[str, Board]:
        """The boards as they are defined, by id."""
        return self.applier.directory.boards

    @property
    def position_token(self) -> str:
        """How far the ledger was when it was looked at last."""
        return self._position()

    def catch_up(self) -> bool:
        """Follow the control events that are new; tell whether there were any."""
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
        while found := self._ledger.controls(self.seen, CONTROLS_MAX):
            for event in found:
                self._context = event.context
                self.applier.apply(control_run(_NUMBER, event.at, event.detail, event.sequences[0]))
                self.at = max(self.at, event.at)
                self.seen = event.number
            if len(found) < CONTROLS_MAX:
                break
        return self.seen != before

    def get_ready(self) -> None:
        """Nothing comes before: what is checked by older definitions is refused by the ledger."""

    def version_of(self, board_id: str) -> int:
        """Return the version that a board is defined under; DefinitionsChanged where it is not defined any more."""
        live = self.applier.state.boards.get(board_id)
        if live is None:
            raise DefinitionsChanged
        return live.version

    def rank(self, commit: Commit, _appended: Appended) -> None:
        """Leave it to the process that ranks; only note what would be refused another time."""
        commit.note_scope_values()

    def result(self, task: ScoreTask, question: Question | None, positions: Mapping[int, int], at: int) -> Accepted:
        """Answer with where scores stand in the ledger."""
        return Accepted(tokens(positions), task.events, question=question, at=at)

    def result_again(self, _task: ScoreTask, request: Request) -> Accepted:
        """Answer a repeat with where the first stands."""
        return Accepted(tokens(request.positions), request.events, repeated=True)

    def _context_of(self, _number: int) -> Context:
        if self._context is None:
            raise AssertionError("no control event is being applied")
        return self._context
