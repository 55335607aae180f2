"""`rankd rebuild` that never comes closer to the head of the ledger while others append: each round takes as long.

While writes are held, a round is short.
"""

from __future__ import annotations

import sys
from threading import Event
from time import monotonic

from tests.servers.waiting import wait_until

from rankd.cli.main import main
from rankd.operations import hold, rebuild
from rankd.operations.rebuild import CLOSE_S, Rebuild

ROUND_S, HELD_ROUND_S = 1.2 * CLOSE_S, 0.6 * CLOSE_S
HELD = "followed while writes were held"
_follow = Rebuild._follow


def _follow_slowly(work: Rebuild) -> None:
    ends_s = monotonic() + ROUND_S
    ledger, heads = work._follower._ledger, work._follower._ledger.heads().sequences
    _follow(work)
    if work._hold.is_held:
        sys.stderr.write(f"{HELD}\n")
        Event().wait(HELD_ROUND_S)
    else:
        Event().wait(max(0.0, ends_s - monotonic()))
        wait_until(lambda: ledger.heads().sequences != heads)


if __name__ == "__main__":
    hold.PAUSE_MS, rebuild.HOLD_AFTER = hold.PAUSE_MS_MIN, 1  # for the sake of the test's time
    Rebuild._follow = _follow_slowly  # type: ignore[assignment,method-assign]
    main()
