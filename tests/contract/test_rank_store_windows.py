"""All scopes of one window instance: gone through, added up, taken out together."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.batches import batch_of_rows

from rankd.domain.instance import InstanceKey
from rankd.domain.order import Rules
from rankd.projection.port import Dropped, RankStore, WindowSum

DAY, OTHER_DAY = "daily:2026-05-04", "daily:2026-05-05"
SCOPES = ("global", "country:BR", "country:PT", "country:B@R", "level:7")

if TYPE_CHECKING:
    from collections.abc import Iterable


def fill(store: RankStore, keys: Iterable[InstanceKey], *players: str) -> None:
    for key in keys:
        store.apply(batch_of_rows((key, Rules()), [(player, 5) for player in players]))


@pytest.fixture
def filled(store: RankStore) -> RankStore:
    """A day with five scopes, and neighbours that are not of it."""
    fill(store, [InstanceKey("arcade", DAY, scope) for scope in SCOPES], "ann", "bob")
    fill(store, [InstanceKey("arcade", OTHER_DAY, "country:BR"), InstanceKey("arcade2", DAY, "level:7")], "ann")
    fill(store, [InstanceKey("arcade", DAY, "country:BR")], "cyd")
    return store


def test_the_scopes_of_a_window_are_those_in_which_somebody_stands(filled: RankStore) -> None:
    assert sorted(filled.scopes("arcade", DAY)) == sorted(SCOPES)
    assert list(filled.scopes("arcade", OTHER_DAY)) == ["country:BR"]
    assert list(filled.scopes("arcade", "daily:2026-05-06")) == []
    filled.drop(InstanceKey("arcade", DAY, "country:PT"))
    filled.drop(InstanceKey("arcade", DAY, "global"))
    assert sorted(filled.scopes("arcade", DAY)) == ["country:B@R", "country:BR", "level:7"]


def test_the_scopes_of_a_player_are_those_in_which_the_player_stands(filled: RankStore) -> None:
    assert sorted(filled.scopes("arcade", DAY, "ann")) == sorted(SCOPES)
    assert list(filled.scopes("arcade", DAY, "cyd")) == ["country:BR"]
    assert list(filled.scopes("arcade", DAY, "nobody")) == []


def test_a_window_is_the_sum_of_its_scopes(filled: RankStore) -> None:
    digests = [filled.digest(InstanceKey("arcade", DAY, scope)) for scope in SCOPES]
    assert filled.window_sum("arcade", DAY) == WindowSum(5, 11, sum(digests) % 2**128)
    assert filled.window_sum("arcade", "daily:2026-05-06") == WindowSum(0, 0, 0)


def test_a_window_leaves_with_all_its_scopes_and_no_other(filled: RankStore) -> None:
    assert filled.drop_window("arcade", DAY) == Dropped(11, is_all=True)
    assert sorted(key.text for key in filled.instances()) == [
        f"arcade2@{DAY}@level:7",
        f"arcade@{OTHER_DAY}@country:BR",
    ]
    assert filled.drop_window("arcade", DAY) == Dropped(0, is_all=True)


def test_a_window_may_leave_in_parts(filled: RankStore) -> None:
    parts = [filled.drop_window("arcade", DAY, 2)]
    while not parts[-1].is_all:
        parts.append(filled.drop_window("arcade", DAY, 2))
    assert sum(part.entries for part in parts) == 11
    assert list(filled.scopes("arcade", DAY)) == []
    assert list(filled.scopes("arcade", OTHER_DAY)) == ["country:BR"]
