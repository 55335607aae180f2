"""As crash_child, with an archive that the ledger is sent to all the time.

python archive_crash_child.py FOLDER ARCHIVE FIRST
"""

from __future__ import annotations

import sys

import rankd
import rankd.node.embedded

from .crash_child import UPKEEP_EVERY_S, define, submit_from_threads

EVERY_MS = 5
SNAPSHOTS_EVERY_MS = 20


def main() -> None:
    """Open the folder and submit."""
    rankd.node.embedded.UPKEEP_EVERY_S = UPKEEP_EVERY_S
    folder, archive, first = sys.argv[1:]
    boards = rankd.open(
        folder,
        archive_url=archive,
        archive_segments_every_ms=EVERY_MS,
        archive_snapshots_every_ms=SNAPSHOTS_EVERY_MS,
    )
    define(boards)
    submit_from_threads(boards, int(first))


if __name__ == "__main__":
    main()
