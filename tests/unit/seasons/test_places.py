"""Files of places: what was packed is found again, nobody else is, and damage is recognised."""

from __future__ import annotations

import random
from array import array
from pathlib import Path

import pytest

from rankd.domain.instance import InstanceKey
from rankd.domain.order import Order, Rules
from rankd.errors import SnapshotDamaged, SnapshotNewer
from rankd.projection.engine import EngineStore
from rankd.projection.port import UpdateBatch
from rankd.projection.reference import ReferenceStore
from rankd.seasons import places
from rankd.seasons.places import PlacesFile, StandingColumns, encode_places, hash_key, player_hash

KEY = InstanceKey("arcade", "weekly:2026-W18")
LOWEST, HIGHEST = -(2**63), 2**63 - 1


def columns(hashes: list[int], scores: list[int]) -> StandingColumns:
    hashed, scored = memoryview(array("Q", hashes)), memoryview(array("q", scores))
    return StandingColumns(KEY, 1, 86_400_000, len(hashes) + 5, 7, hashed, scored)


def written(folder: Path, of: StandingColumns) -> PlacesFile:
    path = folder / "one.places"
    path.write_bytes(b"".join(encode_places(of)[1]))
    return PlacesFile(path)


@pytest.mark.parametrize("players", [1, 2, 127, 128, 129, 300, 5_000])
@pytest.mark.parametrize("spread", ["equal", "narrow", "wide", "whole"])
@pytest.mark.parametrize("falls", [True, False])
def test_everybody_is_found_and_nobody_else(tmp_path: Path, players: int, spread: str, falls: bool) -> None:
    rng = random.Random(players)
    low, high = {"equal": (5, 5), "narrow": (-3, 9), "wide": (0, 2**40), "whole": (LOWEST, HIGHEST)}[spread]
    hashes = [rng.getrandbits(64) for _ in range(players)]
    scores = sorted((rng.randint(low, high) for _ in range(players)), reverse=falls)
    with written(tmp_path, columns(hashes, scores)) as file:
        file.check()
        assert (file.head.total, file.head.entries, file.head.players) == (players + 5, players, players)
        for rank, (player, score) in enumerate(zip(hashes, scores, strict=True), start=1):
            assert file.find(player) == (rank, score)
        there = {player >> 8 for player in hashes}
        strangers = [rng.getrandbits(64) for _ in range(300)] + [0, 2**64 - 1]
        strangers += [player ^ (1 << 8) for player in hashes[:100]]  # neighbours
        for stranger in strangers:
            if stranger >> 8 not in there:
                assert file.find(stranger) is None


def test_hashes_that_are_alike_get_more_bits_and_equal_ones_are_left_out(tmp_path: Path) -> None:
    with written(tmp_path, columns([0x1200, 0x1201, 5 << 60], [3, 2, 1])) as file:
        assert file.head.hash_bits == 64
        assert [file.find(0x1200), file.find(0x1201), file.find(0x1202)] == [(1, 3), (2, 2), None]
    with written(tmp_path, columns([9 << 60, 7, 9 << 60], [3, 2, 1])) as file:
        assert (file.head.players, file.head.entries) == (1, 3)
        assert [file.find(9 << 60), file.find(7)] == [None, (2, 2)]


def test_an_empty_file_finds_nobody(tmp_path: Path) -> None:
    with written(tmp_path, columns([], [])) as file:
        assert file.find(0) is None


def test_a_million_players_take_less_than_twelve_bytes_each() -> None:
    rng = random.Random(3)
    players = 100_000  # fewer take more: the distance between two hashes is larger
    hashes = [rng.getrandbits(64) for _ in range(players)]
    scores = sorted((rng.randrange(10**8) for _ in range(players)), reverse=True)
    assert len(b"".join(encode_places(columns(hashes, scores))[1])) / players < 12


@pytest.mark.parametrize("at", [0, 9, 40, -1])
def test_damage_is_recognised(tmp_path: Path, at: int) -> None:
    path = tmp_path / "one.places"
    content = bytearray(b"".join(encode_places(columns([1 << 40, 2 << 50], [3, 2]))[1]))
    content[at] ^= 1
    path.write_bytes(content)
    with pytest.raises(SnapshotDamaged), PlacesFile(path) as file:
        file.check()


@pytest.mark.parametrize("size", [0, 7, 100, -1])
def test_a_file_that_was_cut_is_recognised(tmp_path: Path, size: int) -> None:
    path = tmp_path / "one.places"
    path.write_bytes(b"".join(encode_places(columns([1 << 40, 2 << 50], [3, 2]))[1])[:size])
    with pytest.raises(SnapshotDamaged):
        PlacesFile(path)


def test_a_newer_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as newer:
        newer.setattr(places, "FORMAT", 2)
        content = b"".join(encode_places(columns([1], [1]))[1])
    path = tmp_path / "one.places"
    path.write_bytes(content)
    with pytest.raises(SnapshotNewer, match="upgrade"):
        PlacesFile(path)


@pytest.mark.parametrize("order", list(Order))
@pytest.mark.parametrize("most", [1, 50, 700, 10**9])
def test_the_engine_says_who_stands_where_as_the_reference_does(order: Order, most: int) -> None:
    rng = random.Random(most)
    batch = UpdateBatch(
        instances=[(KEY, Rules(order=order))],
        players=[f"{rng.choice(['ann', 'bob', 'Zoë', '日本'])}{number}" for number in range(700)],
        score=array("q", [rng.randint(-50, 50) for _ in range(700)]),
        tie=array("q", [rng.randint(0, 3) for _ in range(700)]),
        epoch=0,
        after=0,
        upto=700,
    )
    engine, reference = EngineStore(), ReferenceStore()
    engine.apply(batch)
    reference.apply(batch)
    key = hash_key("arcade", 1, KEY.window)
    hashes, scores = engine.standing_columns(KEY, most, key)
    expected = reference.range(KEY, 1, 1_000).entries[:most]
    assert list(scores) == [entry.score for entry in expected]
    assert list(hashes) == [player_hash(key, entry.player) for entry in expected]
    assert engine.standing_columns(InstanceKey("words"), most, key) == (
        memoryview(b"").cast("Q"),
        memoryview(b"").cast("q"),
    )
