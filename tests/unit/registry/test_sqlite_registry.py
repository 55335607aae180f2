"""What only the registry in a file does: its memory is emptied as a whole, its lists came from older files."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from rankd.errors import LedgerDamaged
from rankd.ledger.sqlite.checksum import checksum
from rankd.ledger.sqlite.database import APPLICATION_ID, FILE_NAME, Database, add_functions, migrations
from rankd.ledger.sqlite.numbers import PlayerNumbers
from rankd.registry.port import Profile
from rankd.registry.sqlite.registry import SqliteRegistry


class Emptied(dict[str, Profile | None]):
    """A memory that another thread empties between a look and the next."""

    def __contains__(self, player: object) -> bool:
        held = super().__contains__(player)
        self.clear()
        return held


def test_a_memory_emptied_by_somebody_else_is_no_missing_profile(tmp_path: Path) -> None:
    database = Database(tmp_path)
    try:
        registry = SqliteRegistry(database, PlayerNumbers(database), 100, lambda _count: None)
        registry.set_profile(Profile("alice", country="BR"))
        registry._cached = Emptied({"alice": Profile("alice", country="BR")})

        assert registry.attributes(["alice"]) == {"alice": {"country": "BR"}}
    finally:
        database.close()


def test_room_that_lists_give_back_is_used_again(tmp_path: Path) -> None:
    database = Database(tmp_path)
    try:
        registry = SqliteRegistry(database, PlayerNumbers(database), 100, lambda _count: None, friends_bytes_max=1_000)
        for number in range(20):
            registry.set_friends("alice", [f"friend-{number}"] * 50)
            registry.set_friends("alice", ["bob"])
            registry.set_friends("alice", [])
        with database.reading() as reader:
            assert reader.execute("SELECT friends_bytes FROM registry_changes").get == 0
    finally:
        database.close()


PLAYED = """
INSERT INTO players (number, id) VALUES
  (1, 'alice'), (2, 'bob'), (3, 'carol'), (4, 'dave'), (5, 'erin'), (6, 'zed'), (7, 'quo"te');
INSERT INTO profiles (player, name, checksum) VALUES (2, 'Bob', 0);
INSERT INTO events VALUES (1, 1, 0, 3, 5, 0, NULL, NULL);
"""


def migrated(folder: Path, lists: dict[int, str], damaged: int = 0) -> Database:
    """Return a file that was at version 4 and had these lists of friends by number."""
    connection = apsw.Connection(str(folder / FILE_NAME))
    add_functions(connection)
    for script in [*migrations()[:4], PLAYED]:
        connection.execute(script)
    for player, friends in lists.items():
        stored = checksum(player, friends) + (player == damaged)
        connection.execute("INSERT INTO friends VALUES (?, ?, ?)", (player, friends, stored))
    connection.pragma("application_id", APPLICATION_ID)
    connection.pragma("user_version", 4)
    connection.close()
    return Database(folder)


def test_lists_of_an_older_file_are_kept_and_whom_only_they_named_is_no_player(tmp_path: Path) -> None:
    database = migrated(tmp_path, {1: "[4,2,7,3]", 2: "[1]", 6: "[]"})
    try:
        registry = SqliteRegistry(database, PlayerNumbers(database), 100, lambda _count: None)
        assert registry.friends("alice") == ["dave", "bob", 'quo"te', "carol"]
        assert registry.friends("bob") == ["alice"]
        assert registry.mutual_friends("alice") == ["bob"]
        with database.reading() as reader:
            kept = reader.execute("SELECT id FROM players ORDER BY number").fetchall()
            stored = reader.execute("SELECT friends_bytes FROM registry_changes").get
        assert kept == [("bob",), ("carol",), ("erin",)]  # a profile, an event, and nobody's friend
        assert stored == len('alice["dave","bob","quo\\"te","carol"]bob["alice"]zed[]')
    finally:
        database.close()


@pytest.mark.parametrize("friends", ["[2,3]", "not JSON"])
def test_a_list_that_was_damaged_before_stays_so(tmp_path: Path, friends: str) -> None:
    database = migrated(tmp_path, {1: friends, 2: "[1]"}, damaged=1)
    try:
        registry = SqliteRegistry(database, PlayerNumbers(database), 100, lambda _count: None)
        assert registry.friends("bob") == ["alice"]
        with pytest.raises(LedgerDamaged, match="the list of friends of alice is damaged"):
            registry.friends("alice")
        with pytest.raises(LedgerDamaged, match="the list of friends of alice is damaged"):
            registry.mutual_friends("bob")
    finally:
        database.close()


def test_players_and_profiles_of_an_older_file_are_found(tmp_path: Path) -> None:
    database = migrated(tmp_path, {})
    try:
        registry = SqliteRegistry(database, PlayerNumbers(database), 100, lambda _count: None)
        assert [profile.player for profile in registry.search("c", 10)] == ["carol"]
        registry.set_profile(Profile("bob", country="BR"))
        registry.set_profile(Profile("carol", country="FR"))
        registry.set_profile(Profile("new", country="US"))
        registry.check()
        with database.reading() as reader:
            rows = reader.execute("SELECT player, country FROM profiles ORDER BY player").fetchall()
            players = reader.execute("SELECT id FROM players ORDER BY number DESC LIMIT 2").fetchall()
        assert rows == [(2, "BR"), (3, "FR"), (8, "US")]
        assert players == [("new",), ('quo"te',)]
        with database.writing() as writer:
            writer.execute("DELETE FROM profile_ids WHERE id = 'bob'")
        with pytest.raises(LedgerDamaged, match="not found by its player's id"):
            registry.check()
    finally:
        database.close()
