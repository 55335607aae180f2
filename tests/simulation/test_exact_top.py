"""Boards with exact_top, from the ledger to reads: written by the projector, verified, rebuilt, read by anybody."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest
import redis

import rankd
from rankd.errors import VerificationFailed
from rankd.node.open_operations import rebuild_shared, verify_shared
from rankd.node.shared_stores import SharedStores
from rankd.redis.write.loading import Loading

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
        return verify_shared(SharedStores(self.stores.ledger_url), self.stores.ranks_url).entries


@pytest.fixture
def installed(lend_stores: LendStores, tmp_path: Path) -> Iterator[Installed]:
    with ExitStack() as stack:
        installation = Installed(stack.enter_context(lend_stores(2)), tmp_path / "p")
        stack.callback(installation.close)
        yield installation


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
        step = next(hash_field for hash_field in plain.hkeys(name) if hash_field.startswith(b"c") is is_coarse)
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
    rebuild_shared(SharedStores(installed.stores.ledger_url), installed.stores.ranks_url)

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


@pytest.fixture(params=[1, 2], ids=["one shard", "two shards"])
def crowd(installed: Installed, request: pytest.FixtureRequest) -> rankd.Boards:
    """Thirty players, whose scores are 0, 10, 20 …, on a board of which five are ranked exactly."""
    definition = {"exact_top": EXACT_TOP, "score_min": 0, "ties": "player", "shards": request.param}
    installed.boards.define("b", definition)
    installed.boards.submit_many("b", [(f"p{number:02}", number * 10) for number in range(PLAYERS)])
    return installed.boards


def test_pages_end_where_exact_places_do_and_say_so(crowd: rankd.Boards) -> None:
    first = crowd.top("b", limit=3)
    assert (first.total, first.exact, [entry.rank for entry in first.entries]) == (PLAYERS, True, [1, 2, 3])
    second = crowd.top("b", limit=2, cursor=first.next)
    assert (second.total, second.exact, [entry.rank for entry in second.entries]) == (PLAYERS, True, [4, 5])
    third = crowd.top("b", limit=2, cursor=second.next)  # those behind are there, and nobody knows in which order
    assert (third.total, third.exact, third.entries, third.next) == (PLAYERS, False, [], None)

    cut = crowd.range("b", 4, 8)
    assert (cut.total, cut.exact, [entry.rank for entry in cut.entries]) == (PLAYERS, False, [4, 5])
    below = crowd.top("b", limit=5, offset=10)
    assert (below.total, below.exact, below.entries) == (PLAYERS, False, [])
    beyond = crowd.top("b", limit=5, offset=PLAYERS)
    assert (beyond.total, beyond.exact, beyond.entries) == (PLAYERS, True, [])


def test_neighbours_are_shown_as_far_as_places_are_exact(crowd: rankd.Boards) -> None:
    top = crowd.around("b", "p27", above=1, below=1)
    assert top is not None
    assert (top.exact, top.player.rank, top.above[0].player, top.below[0].player) == (True, 3, "p28", "p26")
    last = crowd.around("b", "p25", above=1, below=3)
    assert last is not None
    assert (last.exact, last.player.rank, last.below) == (False, 5, [])
    below = crowd.around("b", "p10", above=3, below=3)
    assert below is not None
    assert (below.exact, below.total, below.above, below.below) == (False, PLAYERS, [], [])
    assert (below.player.score, below.player.rank_min, below.player.rank_max) == (100, 20, 20)


def test_groups_are_in_order_and_say_which_places_are_estimates(crowd: rankd.Boards) -> None:
    friends = crowd.friends("b", ["p03", "p29", "nobody", "p20"])
    assert (friends.exact, friends.total) == (False, PLAYERS)
    assert [(entry.rank, entry.player, entry.global_rank_min, entry.global_rank_max) for entry in friends.entries] == [
        (1, "p29", None, None),
        (2, "p20", 10, 10),
        (3, "p03", 27, 27),
    ]
    assert crowd.friends("b", ["p28", "p29"]).exact
    ranks = crowd.ranks("b", ["p03", "p29", "nobody"])
    assert (ranks.exact, ranks.total, ranks.missing) == (False, PLAYERS, ["nobody"])
    assert [(entry.player, entry.rank, entry.rank_min) for entry in ranks.entries] == [
        ("p03", 27, 27),
        ("p29", 1, None),
    ]


def test_a_score_and_the_distribution_are_estimates_where_they_are_below_the_top(crowd: rankd.Boards) -> None:
    top, below = crowd.rank_of_score("b", 275), crowd.rank_of_score("b", 105)
    assert (top.rank, top.exact, top.rank_min) == (3, True, msgspec.UNSET)
    assert (below.rank, below.exact, below.rank_min, below.rank_max, below.total) == (20, False, 20, 20, PLAYERS)
    spread = crowd.distribution("b", buckets=3)
    assert (spread.exact, spread.total) == (False, PLAYERS)
    assert [bucket.count for bucket in spread.buckets] == [10, 10, 10]
    assert spread.quantiles["0.5"] == 140


def test_a_board_whose_players_all_have_exact_places_has_no_estimates(installed: Installed) -> None:
    boards = installed.boards
    boards.define("b", {"exact_top": EXACT_TOP, "score_min": 0})
    boards.submit_many("b", [("ann", 3), ("bob", 2)])
    standing = boards.rank("b", "bob")
    assert standing is not None
    assert (standing.rank, standing.exact, standing.total) == (2, True, 2)
    around = boards.around("b", "bob")
    assert around is not None
    assert around.exact
    assert boards.top("b").exact
    assert boards.rank_of_score("b", 1).exact
    assert boards.distribution("b").exact
