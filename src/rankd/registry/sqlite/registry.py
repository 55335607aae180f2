"""The registry in the ledger's file; registry/port.py has its promises."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import apsw
import msgspec

from rankd.errors import LedgerDamaged
from rankd.ledger.sqlite.checksum import check, checksum
from rankd.ledger.sqlite.database import Database, ReadOnlyDatabase
from rankd.ledger.sqlite.numbers import PlayerNumbers
from rankd.ledger.sqlite.player_ids import PlayerIds
from rankd.registry.memory import FRIENDS_PER_PROFILE, DerivedLists
from rankd.registry.port import Profile, filled, too_many_friends
from rankd.settings import FRIENDS_BYTES_MAX

_LAST = "\U0010ffff"
_SELECT = (
    "SELECT profile_ids.id, profiles.player, name, avatar_url, country, attributes, checksum"
    " FROM profile_ids JOIN profiles ON profiles.player = profile_ids.number "
)
_ONE = _SELECT + "WHERE profile_ids.id = ?"
_BY_NAME = """
SELECT players.id, profiles.player, name, avatar_url, country, attributes, checksum
FROM profiles JOIN players ON players.number = profiles.player
WHERE name_key >= ? AND name_key < ? ORDER BY name_key, players.id LIMIT ?
"""
_FRIENDS = "SELECT player, friends, checksum FROM friend_lists WHERE player = ?"
_FRIENDS_BYTES = "SELECT octet_length(player) + octet_length(friends) FROM friend_lists WHERE player = ?"
_UNKNOWN = Profile("")
_encode = msgspec.json.Encoder(order="deterministic").encode
_decode_attributes = msgspec.json.Decoder(dict[str, str]).decode
_decode_friends = msgspec.json.Decoder(list[str]).decode


class SqliteRegistryReads:
    """The reads of profiles and friends; profiles are cached, including their absence."""

    def __init__(self, database: ReadOnlyDatabase, profiles_cached_max: int) -> None:
        """Start with an empty cache."""
        self._database = database
        self._ids = PlayerIds(database)
        self._cached_max = profiles_cached_max
        self._changes = 0
        with database.reading() as reader:
            self._has_profiles = has_profiles(reader)
        self._cached: dict[str, Profile | None] = {}
        self._mutual = DerivedLists(profiles_cached_max * FRIENDS_PER_PROFILE)

    @property
    def changes(self) -> int:
        """The number of changes since the start."""
        return self._changes

    def profile(self, player: str) -> Profile | None:
        """Return a player's profile."""
        return self.profiles([player]).get(player)

    def profiles(self, players: Sequence[str]) -> Mapping[str, Profile]:
        """Return the profiles of players who have one."""
        if not self._has_profiles:
            return {}
        # One lookup per player: another thread may empty the cache meanwhile.
        cached = {player: self._cached.get(player, _UNKNOWN) for player in players}
        missing = [player for player, profile in cached.items() if profile is _UNKNOWN]
        profiles = {player: profile for player, profile in cached.items() if profile and profile is not _UNKNOWN}
        if missing:
            profiles.update(self._load(missing))
        return profiles

    def _load(self, players: list[str]) -> dict[str, Profile]:
        cached = self._cached  # before reading: what is dropped meanwhile does not come back
        with self._database.reading() as reader:
            rows: list[Any] = reader.executemany(_ONE, ((player,) for player in players)).fetchall()
        loaded = {row[0]: _profile(row) for row in rows}
        self._make_room(len(players))
        for player in players[: self._cached_max]:
            # A profile set meanwhile is newer than the one read, and what the next read finds: no reader goes back.
            profile = cached.setdefault(player, loaded.get(player))
            if profile is not None:
                loaded[player] = profile
            else:
                loaded.pop(player, None)
        return loaded

    def _make_room(self, count: int) -> None:
        if len(self._cached) + count > self._cached_max:
            self._cached.clear()

    def attributes(self, players: Sequence[str]) -> Mapping[str, Mapping[str, str]]:
        """Return the attributes, including the country, of players who have a profile."""
        return {player: profile.all_attributes for player, profile in self.profiles(players).items()}

    def check(self) -> None:
        """Check every profile and list of friends; LedgerDamaged names the first damaged one."""
        with self._database.reading() as reader:
            profiles: list[Any] = reader.execute(_SELECT).fetchall()
            stored: int = reader.execute("SELECT count(*) FROM profiles").get
            lists: list[Any] = reader.execute("SELECT player, friends, checksum FROM friend_lists").fetchall()
        if len(profiles) != stored:
            raise LedgerDamaged("a profile is not found by its player's id; restore a copy of the data folder")
        for row in profiles:
            _profile(row)
        for row in lists:
            _friends(row)

    def friends(self, player: str) -> list[str]:
        """Return a player's friends in the order given."""
        with self._database.reading() as reader:
            row: Any = reader.execute(_FRIENDS, (player,)).get
        return [] if row is None else _friends(row)

    def mutual_friends(self, player: str) -> list[str]:
        """Return the friends whose own lists have the player, in the order given."""

        def find() -> list[str]:
            friends = self.friends(player)
            with self._database.reading() as reader:
                rows: list[Any] = reader.executemany(_FRIENDS, ((friend,) for friend in friends)).fetchall()
            return [row[0] for row in rows if _lists(row, player)]

        return self._mutual.get(player, self.changes, find)

    def search(self, start: str, limit: int) -> list[Profile]:
        """Return players whose id or name begins with a text, ids first."""
        key = start.casefold()
        players = {player: Profile(player) for player in self._ids.with_prefix(start, limit)}
        with self._database.reading() as reader:
            rows: list[Any] = reader.executemany(_ONE, ((player,) for player in players)).fetchall()
            rows += reader.execute(_BY_NAME, (key, key + _LAST, limit)).fetchall()
        return list({**players, **{row[0]: _profile(row) for row in rows}}.values())[:limit]


class SqliteRegistry(SqliteRegistryReads):
    """Profiles and friends in the process that writes the folder."""

    def __init__(
        self,
        database: Database,
        players: PlayerNumbers,
        profiles_cached_max: int,
        on_change: Callable[[int], None],
        friends_bytes_max: int = FRIENDS_BYTES_MAX,
    ) -> None:
        """Start with an empty cache; `on_change` gets the number of changes after each.

        `players` are the ledger's: who gets a profile before a score is numbered with it.
        """
        super().__init__(database, profiles_cached_max)
        self._database: Database = database
        self._players = players
        self._on_change = on_change
        self._friends_bytes_max = friends_bytes_max

    def set_profile(self, profile: Profile, *, only_given: bool = False) -> Profile:
        """Store a profile and return it as stored; `only_given` keeps the stored values of missing fields."""
        self._has_profiles = True
        try:
            with self._database.exclusive():
                with self._changing() as writer:
                    known: Any = writer.execute(_ONE, (profile.player,)).get if only_given else None
                    stored = profile if known is None else filled(profile, _profile(known))
                    _store(writer, self._number(writer, profile.player), stored)
                self._players.saved()
        except BaseException:
            self._players.forget_fresh()
            self._cached.pop(profile.player, None)  # a failed commit may have taken effect
            raise
        self._make_room(1)
        self._cached[profile.player] = stored
        self._changes += 1  # for readers of the former profile between the commit and here
        return stored

    def _number(self, writer: apsw.Connection, player: str) -> int:
        stored: int | None = writer.execute("SELECT number FROM profile_ids WHERE id = ?", (player,)).get
        if stored is not None:
            return stored
        (number,) = self._players.number([player])
        self._players.save(writer)
        writer.execute("INSERT INTO profile_ids (id, number) VALUES (?, ?)", (player, number))
        return number

    @contextmanager
    def _changing(self) -> Iterator[apsw.Connection]:
        with self._database.writing() as writer:
            yield writer
            writer.execute("UPDATE registry_changes SET count = count + 1")
            count: int = writer.execute("SELECT count FROM registry_changes").get
        self._changes += 1
        self._on_change(count)

    def set_friends(self, player: str, friends: Sequence[str]) -> None:
        """Store a player's friends."""
        listed = _encode(list(friends)).decode()
        size = len(player.encode()) + len(listed.encode()) if friends else 0
        with self._changing() as writer:
            replaced: int = writer.execute(_FRIENDS_BYTES, (player,)).get or 0
            total = writer.execute("SELECT friends_bytes FROM registry_changes").get + size - replaced
            if size > replaced and total > self._friends_bytes_max:
                raise too_many_friends(self._friends_bytes_max)
            writer.execute("DELETE FROM friend_lists WHERE player = ?", (player,))
            if friends:
                writer.execute(
                    "INSERT INTO friend_lists (player, friends, checksum) VALUES (?, ?, ?)",
                    (player, listed, checksum(player, listed)),
                )
            writer.execute("UPDATE registry_changes SET friends_bytes = ?", (total,))


def has_profiles(reader: apsw.Connection) -> bool:
    """Return whether any player has a profile."""
    return reader.execute("SELECT 1 FROM profiles LIMIT 1").get is not None


def _store(writer: apsw.Connection, number: int, profile: Profile) -> None:
    attributes = _encode(profile.attributes).decode() if profile.attributes else None
    values = (profile.name, profile.avatar_url, profile.country, attributes)
    key = None if profile.name is None else profile.name.casefold()
    writer.execute(
        "INSERT OR REPLACE INTO profiles"
        " (player, name_key, name, avatar_url, country, attributes, checksum) VALUES (?, ?, ?, ?, ?, ?, ?)",
        (number, key, *values, checksum(number, *values)),
    )


def _profile(row: Any) -> Profile:
    player, number, name, avatar_url, country, attributes, stored = row
    check(f"the profile of {player}", stored, number, name, avatar_url, country, attributes)
    return Profile(player, name, avatar_url, country, {} if attributes is None else _decode_attributes(attributes))


def _friends(row: Any) -> list[str]:
    return _decode_friends(_checked(row))


def _lists(row: Any, friend: str) -> bool:
    """Return whether a list has an id; it searches the JSON text, since decoding a thousand long lists is slow."""
    listed, quoted = _checked(row), _encode(friend).decode()
    if friend.startswith(","):  # looks like the separator between two ids
        return friend in _decode_friends(listed)
    at = listed.find(quoted)
    while at > 0 and listed[at - 1] not in "[,":  # an escaped quote within an id
        at = listed.find(quoted, at + 1)
    return at > 0


def _checked(row: Any) -> str:
    player, friends, stored = row
    check(f"the list of friends of {player}", stored, player, friends)
    text: str = friends
    return text
