"""What an API process knows of the boards: their definitions, which windows are final, what time it is in the ledger.

    PostgreSQL: control events → Definitions.catch_up → boards, state

The same applier that ranks follows the control events, over a store that ranks nothing. So whatever a read or an
acceptance asks of the state is answered as in the projector, as of the control events seen.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from time import monotonic
from typing import Any, NamedTuple, cast

from rankd.domain.board import Board
from rankd.domain.position import tokens
from rankd.errors import LedgerUnavailable
from rankd.intake.followed import Added
from rankd.intake.results import Accepted
from rankd.intake.scores import ScoreTask
from rankd.ledger.event import Context, Stretch
from rankd.ledger.partitioned import (
    CONTROLS_MAX,
    Appended,
    ControlEvent,
    DefinitionsChanged,
    PartitionedLedger,
    Request,
)
from rankd.projection.applier import Applier
from rankd.projection.catalogue import Catalogue
from rankd.projection.port import RankStore
from rankd.projection.state import State

LOOK_EVERY_S = 0.005
LOOK_WAIT_S = 0.1
_NUMBER = 0  # control events bring their context along


class _KnownBoards(dict[str, Board]):
    """The boards by id; one that is not there may have been defined by another process a moment ago."""

    def __init__(self, boards: Mapping[str, Board], look: Callable[[], Mapping[str, Board]]) -> None:
        super().__init__(boards)
        self._look = look

    def __missing__(self, board_id: str) -> Board:
        # Whoever is sure that it is here has it from definitions that are others by now.
        raise DefinitionsChanged

    def get(self, board_id: str, default: Any = None) -> Any:
        found = super().get(board_id)
        if found is None:
            found = dict.get(cast(dict[str, Board], self._look()), board_id, default)
        return found


class _Known(NamedTuple):
    """What is known as of one control event: exchanged as a whole, for those who ask in other threads."""

    boards: Mapping[str, Board]
    versions: Mapping[str, int]
    seen: int
    at: int


class Definitions:
    """The boards as of the control events seen; `catch_up` may be called from any thread."""

    def __init__(self, ledger: PartitionedLedger, store: RankStore) -> None:
        """Read everything there is; `store` takes batches and ranks nothing."""
        self._ledger = ledger
        self._lock = threading.Lock()
        self._context: Context | None = None
        self.applier = Applier(store, State(), Catalogue(), self._context_of)
        self._looked_at = 0.0  # for a board that was not known
        self._looking = ThreadPoolExecutor(1, thread_name_prefix="rankd-definitions")
        self._look: Future[bool] | None = None
        self._known = _Known(_KnownBoards({}, self._look_for_more), {}, 0, 0)
        self.catch_up()

    @property
    def boards(self) -> Mapping[str, Board]:
        """The boards as they are defined, by id."""
        return self._known.boards

    @property
    def seen(self) -> int:
        """How many control events were followed."""
        return self._known.seen

    @property
    def at(self) -> int:
        """The ledger's time at the last control event."""
        return self._known.at

    def catch_up(self) -> bool:
        """Follow the control events that are new; tell whether there were any."""
        with self._lock:
            before = self.seen
            while found := self._ledger.controls(self.seen, CONTROLS_MAX):
                for event in found:
                    self._apply(event)
                live = self.applier.state.boards
                versions = {one: state.version for one, state in live.items()}
                boards = _KnownBoards(self.applier.catalogue.current(versions), self._look_for_more)
                self._known = _Known(boards, versions, found[-1].number, max(self.at, found[-1].at))
                if len(found) < CONTROLS_MAX:
                    break
            return self.seen != before

    def _look_for_more(self) -> Mapping[str, Board]:
        """Look whether there are other boards by now, unless somebody did a moment ago.

        Whoever asks may be an event loop: it waits for no ledger that hangs longer than `LOOK_WAIT_S`, once.
        """
        if monotonic() - self._looked_at >= LOOK_EVERY_S and (self._look is None or self._look.done()):
            self._looked_at = monotonic()
            self._look = self._looking.submit(self.catch_up)
            with suppress(LedgerUnavailable, TimeoutError):
                self._look.result(LOOK_WAIT_S)
        return self.boards

    def close(self) -> None:
        """Look no more."""
        self._looking.shutdown(wait=False)

    def version_of(self, board_id: str) -> int:
        """Return the version that a board is defined under; DefinitionsChanged where it is not defined any more."""
        version = self._known.versions.get(board_id)
        if version is None:
            raise DefinitionsChanged
        return version

    def answer(self, added: Sequence[Added], appended: Appended) -> None:
        """Answer with where scores stand in the ledger: another process ranks them."""
        for task, question, first in added:
            position = tokens(appended.positions(first, task.events))
            task.result = Accepted(position, task.events, question=question, at=appended.at)

    def answer_again(self, _task: ScoreTask, request: Request) -> Accepted:
        """Answer a repeat."""
        return Accepted(tokens(request.positions), request.events, repeated=True)

    def settle(self, _positions: Mapping[int, int]) -> None:
        """Leave what was appended to the process that ranks."""

    def _apply(self, event: ControlEvent) -> None:
        self._context = event.context
        self.applier.apply(stretch_of(event))

    def _context_of(self, _number: int) -> Context:
        if self._context is None:
            raise AssertionError("no control event is being applied")
        return self._context


def stretch_of(event: ControlEvent) -> Stretch:
    """Return a control event as the applier takes it."""
    zero = array("q", [0])
    return Stretch(_NUMBER, array("q", [event.at]), zero, zero, zero, [""], [event.detail], event.sequences[0])
