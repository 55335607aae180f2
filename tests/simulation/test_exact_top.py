"""Boards with exact_top, from the ledger to reads: written by the projector, verified, rebuilt, read by anybody."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import redis

import rankd
from rankd.errors import VerificationFailed
from rankd.projection.redis.loading import Loading
from rankd.scaled.compose import rebuild_shared, verify_shared

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
        place = PLAYERS - number + 1
        assert isinstance(standing.rank_min, int) is not standing.exact
        if standing.exact:
            assert standing.rank == place
        elif isinstance(standing.rank_min, int) and isinstance(standing.rank_max, int):
            assert standing.rank_min <= place <= standing.rank_max
    assert installed.verify() == PLAYERS


@pytest.mark.parametrize(
    ("key", "complaint"),
    [("s", "has no score in Redis"), ("t", "Redis counts 0 players"), ("z", "has no score in Redis")],
)
@pytest.mark.parametrize("shards", [1, 2])
def test_verify_finds_what_is_missing_in_and_below_the_top(
    installed: Installed, key: str, complaint: str, shards: int
) -> None:
    boards = installed.boards
    boards.define("b", {"exact_top": EXACT_TOP, "score_min": 0, "shards": shards})
    boards.submit_many("b", [(f"p{number:02}", number) for number in range(PLAYERS)])
    assert installed.verify() == PLAYERS
    with redis.Redis.from_url(installed.stores.ranks_url) as plain:
        (name,) = plain.scan_iter(f"rankd:{{b#0}}:*:{key}:*")
        plain.delete(name)

    with pytest.raises(VerificationFailed, match=complaint):
        installed.verify()


@pytest.mark.parametrize("field", ["first fine", "first coarse"])
def test_verify_finds_a_step_that_counts_one_too_many(installed: Installed, field: str) -> None:
    boards = installed.boards
    boards.define("b", {"exact_top": EXACT_TOP, "score_min": 0})
    boards.submit_many("b", [(f"p{number:02}", number) for number in range(PLAYERS)])
    installed.projector.project()
    with redis.Redis.from_url(installed.stores.ranks_url) as plain:
        (name,) = plain.scan_iter("rankd:{b#0}:*:t:*")
        is_coarse = field == "first coarse"
        step = next(one for one in plain.hkeys(name) if one.startswith(b"c") is is_coarse)
        plain.hincrby(name, step, 1)

    with pytest.raises(VerificationFailed, match=r"Redis counts [23] players"):
        installed.verify()


@pytest.mark.parametrize("shards", [1, 2])
@pytest.mark.parametrize("form", ["packed", "prefixed"])
def test_a_rebuild_catches_up_with_what_is_written_meanwhile(
    installed: Installed, monkeypatch: pytest.MonkeyPatch, shards: int, form: str
) -> None:
    boards, high = installed.boards, 10**6 if form == "packed" else 2**62
    boards.define("b", {"exact_top": EXACT_TOP, "score_min": 0, "score_max": high, "ties": "player", "shards": shards})
    truth = {f"p{number:02}": number * 10 for number in range(PLAYERS)}
    boards.submit_many("b", list(truth.items()))
    installed.projector.project()
    meanwhile = iter(
        [
            {"p01": 291, "new": 295, "newer": 3},  # into the top and below it
            {"p02": 1_000, "p03": 999, "p04": 998, "p05": 997, "p06": 996, "p07": 995},  # a top of others
            {"p08": 75},
        ]
    )
    finish = Loading.finish

    def finish_under_load(loading: Loading, *arguments: Any, **more: Any) -> Any:
        """Let the projector be ahead once more, as often as there is something to write."""
        written = next(meanwhile, {})
        if written:
            if "p08" in written:
                boards.remove("b", "p02")
                del truth["p02"]
            boards.submit_many("b", list(written.items()))
            truth.update({player: max(score, truth.get(player, 0)) for player, score in written.items()})
            installed.projector.project()
        return finish(loading, *arguments, **more)

    monkeypatch.setattr(Loading, "finish", finish_under_load)
    rebuild_shared(installed.stores.ledger_url, installed.stores.ranks_url)

    assert next(meanwhile, None) is None
    assert installed.verify() == len(truth)
    order = sorted(truth, key=lambda player: (-truth[player], player))
    assert [entry.player for entry in boards.top("b", limit=EXACT_TOP).entries] == order[:EXACT_TOP]
    for place, player in enumerate(order, start=1):
        standing = boards.rank("b", player)
        assert standing is not None
        assert standing.score == truth[player]
        if place > EXACT_TOP:
            assert isinstance(standing.rank_min, int)
            assert isinstance(standing.rank_max, int)
            assert standing.rank_min <= place <= standing.rank_max
        else:
            assert standing.rank == place
