"""Events that the followers of a log refuse become dead letters, sent by the holder of the lease.

    Admission.refused → RefusedEvents.add → the thread of the lease holder → DeadLetters.send

Every follower refuses the same events, and keeps the letters for a while: one that takes the lease over sends what its
predecessor may not have sent. So each is sent at least once, and the headers tell repeats.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from time import monotonic

import msgspec

from rankd.errors import RankdError
from rankd.ledger.event import EventKind
from rankd.projection.admission import RefusedEvent
from rankd.throttled_warnings import ThrottledWarnings

KEPT_MAX = 10_000  # further ones are lost, and logged
KEPT_S = 60.0  # by a process without the lease: longer than another one takes to claim it
SEND_EVERY_S = 0.5
_log = logging.getLogger("rankd")


class RefusedEvents:
    """The refused events of one follower that may not be sent yet; `add` is called by its thread."""

    def __init__(self, send: Callable[[Sequence[RefusedEvent]], None]) -> None:
        """`send` returns when the letters are on stable storage."""
        self.holds_lease: Callable[[], bool] = lambda: False
        self._send_all = send
        self._lost = 0
        self._kept: deque[tuple[float, RefusedEvent]] = deque()
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._warnings = ThrottledWarnings(_log)
        self._thread = threading.Thread(target=self._run, name="rankd-refused", daemon=True)
        self._thread.start()

    def add(self, event: RefusedEvent) -> None:
        """Keep an event until it is sent."""
        if len(self._kept) >= KEPT_MAX:
            self._lost += 1
            return
        with self._lock:
            self._kept.append((monotonic(), event))

    def close(self) -> None:
        """Send what is kept, where this process has the lease, and end."""
        self._closing.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._closing.wait(SEND_EVERY_S):
            self._send()
        self._send()

    def _send(self) -> None:
        with self._lock:
            kept = list(self._kept)
        if not kept:
            return
        done = 0
        if not self.holds_lease():
            done = sum(at_s < monotonic() - KEPT_S for at_s, _ in kept)
        else:
            try:
                self._send_all([event for _, event in kept])
                done = len(kept)
                _log.warning("%d events of the ledger were refused, the first: %s", done, kept[0][1].text)
            except RankdError as problem:
                self._warnings.warn("refused events wait for the topic of dead letters: %s", problem)
            except Exception:
                _log.exception("sending refused events failed, and goes on")
        with self._lock:
            for _ in range(done):
                self._kept.popleft()
            lost, self._lost = self._lost, 0
        if lost:
            _log.warning("%d refused events became no dead letters: more than %d were waiting", lost, KEPT_MAX)


def submission_of(event: RefusedEvent) -> bytes:
    """Return an event as it would be sent to the API: JSON, with the fields of a score."""
    run, context = event.event_run, event.context
    fields: dict[str, object] = {"board": context.board, "player": run.players[0], "at": run.at[0]}
    if context.kind is EventKind.SCORE:
        fields["score"] = run.score[0]
        if run.tiebreak[0]:
            fields["tiebreak"] = run.tiebreak[0]
    detail = None if run.detail is None else run.detail[0]
    if detail is not None and detail.attributes:
        fields["attributes"] = detail.attributes
    return msgspec.json.encode(fields)
