"""A scaled-out installation in this process that does nothing by itself, and copies of its Redis."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any

import rankd
from rankd.boards import Boards
from rankd.redis.write import mirroring

from .scaled_installation import SteppedProjector, check_mirrored, open_api, recomputed, shards_by_board

NOON = 1_777_896_000_000


class Installation:
    """An API process whose clock is set by hand, and a projector that works when it is asked to."""

    def __init__(self, ledger_url: str, ranks_url: str, folder: Path) -> None:
        self.ledger_url, self.ranks_url = ledger_url, ranks_url
        self.clock = rankd.ManualClock(NOON)
        self._folders = (folder / str(number) for number in count())
        running, _ = open_api(ledger_url, ranks_url, self.clock, lambda: None, commit_wait_ms=0)
        self.boards = Boards(running)
        self.projector = self._new_projector()

    def _new_projector(self) -> SteppedProjector:
        return SteppedProjector(self.ledger_url, self.ranks_url, next(self._folders), self.clock)

    def replace_projector(self) -> None:
        self.projector.die()
        self.projector = self._new_projector()

    @property
    def mirroring(self) -> mirroring.MirrorSync:
        sync = self.projector._projector._mirroring
        assert sync is not None
        return sync

    def check(self) -> None:
        """Compare Redis with the ledger."""
        anew = recomputed(self.ledger_url)
        check_mirrored(anew.store, self.ranks_url, shards_by_board(anew))

    def close(self) -> None:
        self.boards.close()
        self.projector.die()


def copy_of(plain: Any) -> dict[bytes, bytes]:
    return {key: plain.dump(key) for key in plain.scan_iter()}


def put_back(plain: Any, kept: Mapping[bytes, bytes]) -> None:
    plain.flushall()
    for key, value in kept.items():
        plain.restore(key, 0, value)
