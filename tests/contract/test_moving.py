"""An embedded installation moves into PostgreSQL, and is ranked there as it was."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.contract.moved_folders import fill

import rankd
from rankd.clock import SystemClock
from rankd.errors import FolderLocked, Refused
from rankd.ledger.port import Appended, Draft
from rankd.ledger.postgres.ledger import PostgresLedger
from rankd.node.open_operations import move_from
from rankd.node.shared_stores import SharedStores
from rankd.operations import move_events as moving
from rankd.operations.move import FolderMove
from rankd.projection.catalogue import Catalogue
from rankd.projection.placement import is_team_scope
from rankd.projection.state import State
from rankd.projection.verify import digests
from rankd.redis.write.recorded_follower import RecordedFollower
from rankd.redis.write.recording import RecordingStore
from rankd.registry.postgres.credentials import PostgresCredentials
from rankd.registry.postgres.registry import PostgresRegistry


def ranked_there(url: str) -> dict[str, tuple[int, int]]:
    """Return what the ledger in PostgreSQL makes of its events."""
    ledger = PostgresLedger(url)
    follower = RecordedFollower(ledger, RecordingStore(), State(), Catalogue())
    while follower.follow(1_000):
        pass
    ledger.close()
    return {text: digest for text, digest in digests(follower.store).items() if not is_team_scope(text)}


@pytest.mark.parametrize("seed", range(3))
def test_the_ranks_are_the_same(seed: int, tmp_path: Path, postgres_url: str) -> None:
    ranked = fill(tmp_path / "data", seed)
    SharedStores(postgres_url).migrate()
    moved = move_from(tmp_path / "data", SharedStores(postgres_url))

    assert ranked_there(postgres_url) == ranked, f"seed {seed}"
    assert (moved.players, moved.keys) == (2, 1)


def test_names_friends_and_keys_come_along(tmp_path: Path, postgres_url: str) -> None:
    fill(tmp_path / "data", 1)
    SharedStores(postgres_url).migrate()
    move_from(tmp_path / "data", SharedStores(postgres_url))

    registry = PostgresRegistry(postgres_url, 100)
    profile, friends, matches = registry.profile("ann"), registry.friends("ann"), registry.search("p2", 5)
    registry.close()
    with PostgresCredentials(postgres_url, SystemClock()) as credentials:
        names = [credential.name for credential in credentials.known.values()]
    assert profile is not None
    assert (profile.name, friends, names) == ("Ann", ["p2", "p3"], ["admin"])
    assert matches[0].player == "p2"


def test_a_move_that_was_cut_off_goes_on(tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ranked = fill(tmp_path / "data", 2)
    SharedStores(postgres_url).migrate()
    monkeypatch.setattr(moving, "BATCH_EVENTS", 7)
    append, appended = PostgresLedger.append, 0

    def cut_off(self: PostgresLedger, draft: Draft) -> Appended:
        nonlocal appended
        appended += 1
        if appended % 10 == 0:
            raise ConnectionError("the cable was pulled")
        return append(self, draft)

    monkeypatch.setattr(PostgresLedger, "append", cut_off)
    attempts = 0
    while True:
        attempts += 1
        try:
            move_from(tmp_path / "data", SharedStores(postgres_url))
            break
        except ConnectionError:
            assert attempts < 100
    assert attempts > 2
    assert ranked_there(postgres_url) == ranked


def test_a_database_that_holds_something_else_is_left_alone(tmp_path: Path, postgres_url: str) -> None:
    fill(tmp_path / "one", 1)
    fill(tmp_path / "two", 2)
    SharedStores(postgres_url).migrate()
    move_from(tmp_path / "one", SharedStores(postgres_url))
    with pytest.raises(Refused, match="holds other events"):
        move_from(tmp_path / "two", SharedStores(postgres_url))


def test_a_folder_in_use_is_not_moved(tmp_path: Path, postgres_url: str) -> None:
    SharedStores(postgres_url).migrate()
    ledger = PostgresLedger(postgres_url)
    with rankd.open(tmp_path / "data"), pytest.raises(FolderLocked):
        FolderMove(tmp_path / "data", ledger).run(postgres_url)
    ledger.close()
