"""An API process that submits from some threads until it is killed, and says on its output what was acknowledged.

python -m simulation.scaled_writer_child LEDGER_URL RANKS_URL FIRST
"""

from __future__ import annotations

import sys

from rankd.node.open_thin import open_thin
from rankd.node.shared_stores import SharedStores

from .crash_child import define, submit_from_threads


def main() -> None:
    """Open the boards and submit."""
    ledger_url, ranks_url, first = sys.argv[1:]
    boards = open_thin(SharedStores(ledger_url), ranks_url)
    define(boards)
    submit_from_threads(boards, int(first))


if __name__ == "__main__":
    main()
