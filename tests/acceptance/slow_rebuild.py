"""`rankd rebuild` that never comes closer to the head of the ledger while others append: each round takes as long.

While writes are held it is as fast as ever.
"""

from __future__ import annotations

import sys
from threading import Event
from time import monotonic

from tests.servers.waiting import wait_until

from rankd.cli.main import main
from rankd.operations.rebuild import CLOSE_S, Rebuild

ROUND_S = 1.5 * CLOSE_S
HELD = "followed while writes were held"
_follow = Rebuild._follow


def _follow_slowly(rebuild: Rebuild) -> None:
    ends_s = monotonic() + ROUND_S
    ledger, heads = rebuild._follower._ledger, rebuild._follower._ledger.heads().sequences
    _follow(rebuild)
    if rebuild._hold.is_held:
        sys.stderr.write(f"{HELD}\n")
    else:
        Event().wait(max(0.0, ends_s - monotonic()))
        wait_until(lambda: ledger.heads().sequences != heads)


if __name__ == "__main__":
    Rebuild._follow = _follow_slowly  # type: ignore[assignment,method-assign]
    main()
