"""Boards with exact_top, from the ledger to reads: written by the projector, verified, rebuilt, read by anybody."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import rankd
from rankd.scaled.compose import verify_shared

from .conftest import LendStores, Stores
from .scaled_installation import SteppedProjector, open_api

NOON = 1_777_896_000_000
EXACT_TOP = 5
PLAYERS = 30


class Installed:
    """An API process and a projector that is run when somebody reads."""

    def __init__(self, stores: Stores, folder: Path) -> None:
        clock = rankd.ManualClock(NOON)
        self.stores = stores
        self.projector = SteppedProjector(stores.ledger_url, stores.ranks_url, folder, clock)
        running, _ = open_api(stores.ledger_url, stores.ranks_url, clock, self.projector.project, commit_wait_ms=0)
        self.boards = rankd.Boards(running)

    def close(self) -> None:
        self.boards.close()
        self.projector.die()

    def verify(self) -> int:
        """Compare Redis with the ledger, and return how many entries were compared."""
        self.projector.project()
        return verify_shared(self.stores.ledger_url, self.stores.ranks_url).entries


@pytest.fixture
def installed(lend_stores: LendStores, tmp_path: Path) -> Iterator[Installed]:
    with ExitStack() as stack:
        one = Installed(stack.enter_context(lend_stores(2)), tmp_path / "p")
        stack.callback(one.close)
        yield one


@pytest.mark.parametrize("shards", [1, 2])
def test_a_change_of_form_keeps_everybody_below_the_top(installed: Installed, shards: int) -> None:
    boards = installed.boards
    definition = {"exact_top": EXACT_TOP, "score_min": 0, "score_max": 1_000, "ties": "player", "shards": shards}
    boards.define("b", definition)
    boards.submit_many("b", [(f"p{number:02}", number) for number in range(PLAYERS)])
    assert installed.verify() == PLAYERS

    boards.define("b", {**definition, "score_max": 2**62})
    boards.submit("b", "p00", 2**60)  # too large for the packed form
    for number in range(1, PLAYERS):
        standing = boards.rank("b", f"p{number:02}")
        assert standing is not None, number
        assert (standing.score, standing.total) == (number, PLAYERS)
        assert (standing.rank, standing.exact) == (PLAYERS - number + 1, True) or (
            standing.rank_min <= PLAYERS - number + 1 <= standing.rank_max
        )
    assert installed.verify() == PLAYERS
