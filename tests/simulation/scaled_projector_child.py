"""A projector in a process of its own, to be killed, stopped and woken: it ends in order when it is terminated.

python -m simulation.scaled_projector_child LEDGER_URL RANKS_URL FOLDER
"""

from __future__ import annotations

import logging
import signal
import sys
import threading
from pathlib import Path

from rankd.node.open_projector import make_projector
from rankd.node.projector import ProjectorSettings
from rankd.node.shared_stores import SharedStores

CHECKPOINT_EVENTS = 300  # so that kills strike while one is written, and starts begin from one
CALL_UPDATES_MAX = 50  # so that they strike between two parts of a write


def main() -> None:
    """Rank until asked to stop."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    ledger_url, ranks_url, folder = sys.argv[1:]
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    settings = ProjectorSettings(checkpoint_events=CHECKPOINT_EVENTS, redis_call_updates_max=CALL_UPDATES_MAX)
    make_projector(SharedStores(ledger_url), ranks_url, Path(folder), settings=settings).run(stop)


if __name__ == "__main__":
    main()
