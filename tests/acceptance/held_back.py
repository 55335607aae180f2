"""`rankd serve` that does not follow the ledger while a file exists, or follows it slowly: a node that lags."""

from __future__ import annotations

import os
from pathlib import Path
from threading import Event

from rankd.cli.main import main
from rankd.node.ranks import EngineRanks

FILE = "HELD_BACK_FILE"  # a variable of the environment
PAUSE_S = 0.02
_follow = EngineRanks.follow


def _follow_unless_held(ranks: EngineRanks, events_max: int | None = None) -> int:
    if Path(os.environ[FILE]).exists():
        Event().wait(PAUSE_S)
        return 0
    return _follow(ranks, events_max)


if __name__ == "__main__":
    EngineRanks.follow = _follow_unless_held  # type: ignore[method-assign,assignment]
    main()
