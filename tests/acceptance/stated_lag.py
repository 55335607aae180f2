"""`rankd serve` whose ranks lag by as many milliseconds as a file says."""

from __future__ import annotations

import os
from pathlib import Path

from rankd.cli.main import main
from rankd.node.lag import LagMonitor

FILE = "STATED_LAG_FILE"  # a variable of the environment


def _stated(_monitor: LagMonitor) -> float:
    return float(Path(os.environ[FILE]).read_text())


if __name__ == "__main__":
    LagMonitor.lag_ms = property(_stated)  # type: ignore[assignment,method-assign]
    main()
