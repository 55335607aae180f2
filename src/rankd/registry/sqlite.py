"""The registry in the ledger's file; see port.py for what it promises."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import apsw
import msgspec

from rankd.ledger.checksum import check, checksum
from rankd.ledger.database import Database
from rankd.registry.memory import FRIENDS_PER_PROFILE, DerivedLists
from rankd.registry.port import COUNTRY, Profile, filled, too_many_friends
from rankd.settings import FRIENDS_BYTES_MAX

_LAST = "\U0010ffff"
_SELECT = (
    "SELECT players.id, players.number, profiles.name, profiles.avatar_url, profiles.country, profiles.attributes,"
    " profiles.checksum"
    " FROM players {join} JOIN profiles ON profiles.player = players.number WHERE "
)
_ONE = _SELECT.format(join="") + "players.id = ?"
_BY_ID = _SELECT.format(join="LEFT") + "players.id >= ? AND players.id < ? ORDER BY players.id LIMIT ?"
_BY_NAME = (
    _SELECT.format(join="")
    + "profiles.name_key >= ? AND profiles.name_key < ? ORDER BY profiles.name_key, players.id LIMIT ?"
)
_FRIENDS = "SELECT player, friends, checksum FROM friend_lists WHERE player = ?"
_FRIENDS_BYTES = "SELECT octet_length(player) + octet_length(friends) FROM friend_lists WHERE player = ?"
_NOBODY: Mapping[str, str] = {}
_UNKNOWN = Profile("")
_encode = msgspec.json.Encoder(order="deterministic").encode
_decode_attributes = msgspec.json.Decoder(dict[str, str]).decode
_decode_friends = msgspec.json.Decoder(list[str]).decode


class SqliteRegistry:
    """Profiles and friends; the profiles asked for lately are in memory, those who have none too."""

    def __init__(
        self,
        database: Database,
        profiles_cached_max: int,
        told: Callable[[int], None],
        friends_bytes_max: int = FRIENDS_BYTES_MAX,
    ) -> None:
        """Begin with nothing in memory; `told` hears how often the registry was changed, after each change."""
        self._database = database
        self._friends_bytes_max = friends_bytes_max
        self._cached_max = profiles_cached_max
        self._told = told
        self.changes = 0
        with database.reading() as reader:
            self._has_profiles = reader.execute("SELECT 1 FROM profiles LIMIT 1").get is not None
        self._cached: dict[str, Profile | None] = {}
        self._mutual = DerivedLists(profiles_cached_max * FRIENDS_PER_PROFILE)

    def profile(self, player: str) -> Profile | None:
        """Return a player's profile."""
        return self.profiles([player]).get(player) if self._has_profiles else None

    def profiles(self, players: Sequence[str]) -> Mapping[str, Profile]:
        """Return the profiles of those players who have one."""
        if not self._has_profiles:
            return {}
        # Another thread may empty the memory meanwhile: each player is looked up there once.
        looked_up = {player: self._cached.get(player, _UNKNOWN) for player in players}
        missing = [player for player, profile in looked_up.items() if profile is _UNKNOWN]
        found = {player: profile for player, profile in looked_up.items() if profile and profile is not _UNKNOWN}
        if missing:
            found.update(self._load(missing))
        return found

    def _load(self, players: list[str]) -> dict[str, Profile]:
        with self._database.reading() as reader:
            rows: list[Any] = reader.executemany(_ONE, ((player,) for player in players)).fetchall()
        loaded = {row[0]: _profile(row) for row in rows}
        self._make_room(len(players))
        for player in players[: self._cached_max]:
            # A profile that was set meanwhile is newer than what was read.
            self._cached.setdefault(player, loaded.get(player))
        return loaded

    def _make_room(self, count: int) -> None:
        if len(self._cached) + count > self._cached_max:
            self._cached.clear()

    def attributes(self, player: str) -> Mapping[str, str]:
        """Return a player's attributes, the country among them."""
        profile = self.profile(player)
        if profile is None:
            return _NOBODY
        return profile.attributes if profile.country is None else {**profile.attributes, COUNTRY: profile.country}

    def set_profile(self, profile: Profile, *, only_given: bool = False) -> Profile:
        """Store a profile; `only_given` leaves what it does not say as it was. Return what is stored."""
        self._has_profiles = True
        try:
            with self._changing() as writer:
                known: Any = writer.execute(_ONE, (profile.player,)).get if only_given else None
                stored = profile if known is None else filled(profile, _profile(known))
                _store(writer, stored)
        except BaseException:
            self._cached.pop(profile.player, None)  # it may be stored all the same
            raise
        self._make_room(1)
        self._cached[profile.player] = stored
        self.changes += 1  # for whoever saw the one before, between the commit and here
        return stored

    @contextmanager
    def _changing(self) -> Iterator[apsw.Connection]:
        with self._database.writing() as writer:
            yield writer
            writer.execute("UPDATE registry_changes SET count = count + 1")
            count: int = writer.execute("SELECT count FROM registry_changes").get
        self.changes += 1
        self._told(count)

    def check(self) -> None:
        """Look at every profile and list of friends; LedgerDamaged names the first that is not as it was written."""
        with self._database.reading() as reader:
            profiles: list[Any] = reader.execute(_SELECT.format(join="") + "1").fetchall()
            lists: list[Any] = reader.execute("SELECT player, friends, checksum FROM friend_lists").fetchall()
        for row in profiles:
            _profile(row)
        for row in lists:
            _friends(row)

    def friends(self, player: str) -> list[str]:
        """Return a player's friends in the order they were given."""
        with self._database.reading() as reader:
            found: Any = reader.execute(_FRIENDS, (player,)).get
        return [] if found is None else _friends(found)

    def mutual_friends(self, player: str) -> list[str]:
        """Return those of a player's friends in whose own list the player is, in the order they were given."""

        def find() -> list[str]:
            friends = self.friends(player)
            with self._database.reading() as reader:
                rows: list[Any] = reader.executemany(_FRIENDS, ((friend,) for friend in friends)).fetchall()
            return [row[0] for row in rows if _lists(row, player)]

        return self._mutual.get(player, self.changes, find)

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

    def search(self, start: str, limit: int) -> list[Profile]:
        """Return players whose id or name begins with a text, ids first."""
        key = start.casefold()
        with self._database.reading() as reader:
            rows: list[Any] = reader.execute(_BY_ID, (start, start + _LAST, limit)).fetchall()
            rows += reader.execute(_BY_NAME, (key, key + _LAST, limit)).fetchall()
        found = {row[0]: _profile(row) for row in rows}
        return list(found.values())[:limit]


def _store(writer: apsw.Connection, profile: Profile) -> None:
    attributes = _encode(profile.attributes).decode() if profile.attributes else None
    said = (profile.name, profile.avatar_url, profile.country, attributes)
    key = None if profile.name is None else profile.name.casefold()
    number = _number(writer, profile.player)
    writer.execute(
        "INSERT OR REPLACE INTO profiles"
        " (player, name_key, name, avatar_url, country, attributes, checksum) VALUES (?, ?, ?, ?, ?, ?, ?)",
        (number, key, *said, checksum(number, *said)),
    )


def _number(writer: apsw.Connection, player: str) -> int:
    writer.execute("INSERT OR IGNORE INTO players (id) VALUES (?)", (player,))
    number: int = writer.execute("SELECT number FROM players WHERE id = ?", (player,)).get
    return number


def _profile(row: Any) -> Profile:
    player, number, name, avatar_url, country, attributes, stored = row
    if stored is None:  # a player without a profile
        return Profile(player)
    check(f"the profile of {player}", stored, number, name, avatar_url, country, attributes)
    return Profile(player, name, avatar_url, country, {} if attributes is None else _decode_attributes(attributes))


def _friends(row: Any) -> list[str]:
    return _decode_friends(_checked(row))


def _lists(row: Any, friend: str) -> bool:
    """Return whether a list holds an id: found in its text, as to decode a thousand long lists takes long."""
    listed, quoted = _checked(row), _encode(friend).decode()
    if friend.startswith(","):  # what stands between two ids looks like one of these
        return friend in _decode_friends(listed)
    at = listed.find(quoted)
    while at > 0 and listed[at - 1] not in "[,":  # a quote within an id, which is escaped
        at = listed.find(quoted, at + 1)
    return at > 0


def _checked(row: Any) -> str:
    player, friends, stored = row
    check(f"the list of friends of {player}", stored, player, friends)
    text: str = friends
    return text
