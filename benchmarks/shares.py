"""Where the time of the embedded library goes: its own functions timed from outside, in a round that is not judged.

    with measured_shares() as shares: …calls…       → shares.figures(elapsed_ns) → {"share_engine": 0.41, …}

A part's time is that of its functions without the parts they call in turn. Whatever is in no part is `share_rest`:
Python between the parts, the waking of threads, and what the processor did for others meanwhile. Where threads work at
the same time, parts can make up more than the time that passed: `share_overlapping` is what they are over.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rankd.intake import scores as scores_module
from rankd.intake.queue import GroupCommit
from rankd.ledger.sqlite import ledger as sqlite_module
from rankd.ledger.sqlite import reading as reading_module
from rankd.ledger.sqlite.ledger import SqliteLedger
from rankd.ledger.sqlite.numbers import PlayerNumbers
from rankd.ledger.sqlite.reading import SqliteReads
from rankd.projection.checkpoints import Checkpoints
from rankd.projection.engine import EngineStore

# Part, owner, function. The owner is where the name is looked up when it is called.
PARTS: tuple[tuple[str, Any, str], ...] = (
    ("check", scores_module, "check_players"),
    ("check", scores_module, "check_scores"),
    ("check", scores_module, "read_row"),
    ("wait_for_commit", GroupCommit, "_wait"),
    ("player_numbers", PlayerNumbers, "number"),
    ("seal", sqlite_module, "seal"),
    ("sqlite_rows", sqlite_module, "insert_rows"),
    ("sqlite_rows", PlayerNumbers, "save"),
    ("sqlite_commit", SqliteLedger, "_append"),  # what is left of it: begin, write the log, sync
    ("sqlite_read", SqliteReads, "_fetch"),
    ("check_seals", reading_module, "check_seals"),
    ("snapshot_load", Checkpoints, "newest"),
    ("engine", EngineStore, "apply"),
    ("engine", EngineStore, "apply_one"),
    ("engine", EngineStore, "ranks"),
)
WAITING = "wait_for_commit"  # beside the parts of whoever commits, not in addition to them


class Shares:
    """Nanoseconds by part, from any number of threads."""

    def __init__(self) -> None:
        self.part_ns: dict[str, int] = {}
        self._lock = threading.Lock()
        self._called = threading.local()  # inner_ns: what the parts called by the present one took

    def figures(self, elapsed_ns: int) -> dict[str, float]:
        """Return each part's share of a time, the largest first, and what is left of it or what they are over."""
        shares = {f"share_{part}": ns / elapsed_ns for part, ns in self.part_ns.items() if part != WAITING}
        ordered = dict(sorted(shares.items(), key=lambda share: -share[1]))
        left = 1 - sum(shares.values())
        return {**ordered, "share_rest": left} if left >= 0 else {**ordered, "share_overlapping": -left}

    def timed(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function with a clock around it."""

        @functools.wraps(function)
        def call(*args: Any, **options: Any) -> Any:
            outer_ns = getattr(self._called, "inner_ns", 0)
            self._called.inner_ns = 0
            began_ns = time.perf_counter_ns()
            try:
                return function(*args, **options)
            finally:
                elapsed_ns = time.perf_counter_ns() - began_ns
                with self._lock:
                    self.part_ns[part] = self.part_ns.get(part, 0) + elapsed_ns - self._called.inner_ns
                self._called.inner_ns = outer_ns + elapsed_ns

        return call


@contextmanager
def measured_shares() -> Iterator[Shares]:
    """Time the parts for as long as the block lasts."""
    shares = Shares()
    originals = [(owner, name, vars(owner)[name]) for _, owner, name in PARTS]
    try:
        for part, owner, name in PARTS:
            setattr(owner, name, shares.timed(part, vars(owner)[name]))
        yield shares
    finally:
        for owner, name, original in originals:
            setattr(owner, name, original)
