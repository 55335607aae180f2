"""Whatever was ranked reads from the archive as the reference store answers, in every scope, order and ranking."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.batches import batch_of_rows
from tests.simulation.extent import short_and_long

from rankd.archive import standings_file
from rankd.archive.archived_standings import ArchivedStandings
from rankd.archive.folder_objects import FolderObjects
from rankd.archive.standings_file import FinalWindow
from rankd.archive.windows import WindowArchive
from rankd.domain.definition import define_board
from rankd.domain.instance import InstanceKey
from rankd.domain.order import Kept, Order, Ranking, Ties
from rankd.projection.reference import ReferenceStore
from rankd.projection.state import BoardState

DAY = "daily:2026-05-04"
SCOPES = ["country:AT", "country:BR", "country:Ö", "country:😀", "global", "level:1", "level:10", "level:2"]
PLAYERS = ["", "a", "A", "ab", "ö", "😀", "日本", *(f"p{number}" for number in range(40))]
SCORES = st.integers(-3, 3) | st.sampled_from([-(2**53) + 1, 2**53 - 1, 1_000, 999])


@pytest.fixture(autouse=True)
def _little_groups(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patched:
        patched.setattr(standings_file, "ROWS_PER_GROUP", 5)
        patched.setattr(standings_file, "_CHUNK", 3)
        yield


@st.composite
def windows(draw: st.DrawFn) -> FinalWindow:
    order, ties = draw(st.sampled_from([*Order])), draw(st.sampled_from([*Ties]))
    board = define_board(
        "arcade", {"windows": ["daily"], "scopes": ["country", "level"], "order": order.value, "ties": ties.value}
    )
    rules, store = board.rules_for(board.first_window), ReferenceStore()
    for at, scope in enumerate(draw(st.lists(st.sampled_from(SCOPES), unique=True, max_size=5))):
        row = st.tuples(st.sampled_from(PLAYERS[1:]), SCORES, st.integers(0, 2))
        rows = draw(st.lists(row, max_size=25, unique_by=lambda each: each[0]))
        store.apply(batch_of_rows((InstanceKey("arcade", DAY, scope), rules), rows, after=at, upto=at + 1))
    return FinalWindow(store, board, BoardState(version=1, born=draw(st.integers(1, 10**9)), defined_at=0), DAY)


def archived(window: FinalWindow, folder: Path) -> ArchivedStandings:
    archive = WindowArchive(FolderObjects(folder / "archive"), folder / "scratch")
    archive.keep(window, lambda: "0-9")
    standings = archive.find("arcade", window.live.born, DAY)
    assert standings is not None
    return standings


def compare(window: FinalWindow, standings: ArchivedStandings, key: InstanceKey, rng: random.Random) -> None:
    """Compare every kind of read of one instance."""
    ranks = window.store
    assert standings.total(key) == ranks.total(key)
    assert standings.digest(key) == ranks.digest(key)
    group = rng.sample(PLAYERS, 10)
    assert standings.scores(key, group) == ranks.scores(key, group)
    for ranking in Ranking:
        assert standings.range(key, 1, 100, ranking) == ranks.range(key, 1, 100, ranking)
        first = rng.randrange(1, 30)
        assert standings.range(key, first, first + 7, ranking) == ranks.range(key, first, first + 7, ranking)
        assert standings.ranks(key, group, ranking) == ranks.ranks(key, group, ranking)
        assert standings.friends(key, group, ranking) == ranks.friends(key, group, ranking)
        above, below = rng.randrange(6), rng.randrange(6)
        assert standings.around(key, group[0], above, below, ranking) == ranks.around(
            key, group[0], above, below, ranking
        )
        score, tie = rng.choice([-4, -1, 0, 1, 2, 4, 2**53]), rng.randrange(4)
        assert standings.rank_of_score(key, score, tie, ranking) == ranks.rank_of_score(key, score, tie, ranking)
        after = Kept(score, tie), rng.choice(PLAYERS)
        assert standings.following(key, after, 4, ranking) == ranks.following(key, after, 4, ranking)
    low, high = rng.choice([-4, -1, 0, 1]), rng.choice([-1, 0, 1, 3, 2**53])
    assert standings.count(key, low, high) == ranks.count(key, low, high)
    ppm = [0, 1, 250_000, 500_000, 999_999, 1_000_000]
    assert standings.quantiles(key, ppm) == ranks.quantiles(key, ppm)
    assert standings.histogram(key, 4) == ranks.histogram(key, 4)


@short_and_long
def test_every_read_is_that_of_the_reference(everything: bool, tmp_path_factory: pytest.TempPathFactory) -> None:
    @settings(max_examples=2_000 if everything else 60, deadline=None, suppress_health_check=[*HealthCheck])
    @given(window=windows(), seed=st.integers(0, 2**32))
    def check(window: FinalWindow, seed: int) -> None:
        standings, rng = archived(window, tmp_path_factory.mktemp("archived")), random.Random(seed)
        for scope in (*SCOPES, "country:none", "zone:1", "a:b"):
            compare(window, standings, InstanceKey("arcade", DAY, scope), rng)

    check()
