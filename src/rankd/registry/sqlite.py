"""The registry in the ledger's file; see port.py for what it promises."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import apsw
import msgspec

from rankd.ledger.database import Database
from rankd.registry.port import Profile

COUNTRY = "country"
_LAST = "\U0010ffff"
_SELECT = (
    "SELECT players.id, profiles.name, profiles.avatar_url, profiles.country, profiles.attributes"
    " FROM players {join} JOIN profiles ON profiles.player = players.number WHERE "
)
_ONE = _SELECT.format(join="") + "players.id = ?"
_BY_ID = _SELECT.format(join="LEFT") + "players.id >= ? AND players.id < ? ORDER BY players.id LIMIT ?"
_BY_NAME = (
    _SELECT.format(join="")
    + "profiles.name_key >= ? AND profiles.name_key < ? ORDER BY profiles.name_key, players.id LIMIT ?"
)
_NOBODY: Mapping[str, str] = {}
_UNKNOWN = Profile("")
_encode = msgspec.json.Encoder(order="deterministic").encode
_decode_attributes = msgspec.json.Decoder(dict[str, str]).decode
_decode_friends = msgspec.json.Decoder(list[int]).decode


class SqliteRegistry:
    """Profiles and friends; the profiles asked for lately are in memory, those who have none too."""

    def __init__(self, database: Database, profiles_cached_max: int) -> None:
        """Begin with nothing in memory."""
        self._database = database
        self._cached_max = profiles_cached_max
        self._cached: dict[str, Profile | None] = {}

    def profile(self, player: str) -> Profile | None:
        """Return a player's profile."""
        return self.profiles([player]).get(player)

    def profiles(self, players: Sequence[str]) -> Mapping[str, Profile]:
        """Return the profiles of those players who have one."""
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
        loaded = {row[0]: _profile(*row) for row in rows}
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

    def set_profile(self, profile: Profile) -> None:
        """Store a profile."""
        with self._database.writing() as writer:
            writer.execute(
                "INSERT OR REPLACE INTO profiles (player, name, name_key, avatar_url, country, attributes)"
                " VALUES (?, ?, ?, ?, ?, ?)",
                (
                    _number(writer, profile.player),
                    profile.name,
                    None if profile.name is None else profile.name.casefold(),
                    profile.avatar_url,
                    profile.country,
                    _encode(profile.attributes).decode() if profile.attributes else None,
                ),
            )
        self._make_room(1)
        self._cached[profile.player] = profile

    def friends(self, player: str) -> list[str]:
        """Return a player's friends in the order they were given."""
        with self._database.reading() as reader:
            stored = reader.execute(
                "SELECT friends FROM friends JOIN players ON players.number = friends.player WHERE players.id = ?",
                (player,),
            ).get
            if stored is None:
                return []
            rows = reader.executemany(
                "SELECT id FROM players WHERE number = ?", ((number,) for number in _decode_friends(stored))
            )
            return [friend for (friend,) in rows]

    def set_friends(self, player: str, friends: Sequence[str]) -> None:
        """Store a player's friends."""
        with self._database.writing() as writer:
            numbers = [_number(writer, friend) for friend in friends]
            writer.execute(
                "INSERT OR REPLACE INTO friends (player, friends) VALUES (?, ?)",
                (_number(writer, player), _encode(numbers).decode()),
            )

    def search(self, start: str, limit: int) -> list[Profile]:
        """Return players whose id or name begins with a text, ids first."""
        key = start.casefold()
        with self._database.reading() as reader:
            rows: list[Any] = reader.execute(_BY_ID, (start, start + _LAST, limit)).fetchall()
            rows += reader.execute(_BY_NAME, (key, key + _LAST, limit)).fetchall()
        found = {row[0]: _profile(*row) for row in rows}
        return list(found.values())[:limit]


def _number(writer: apsw.Connection, player: str) -> int:
    writer.execute("INSERT OR IGNORE INTO players (id) VALUES (?)", (player,))
    number: int = writer.execute("SELECT number FROM players WHERE id = ?", (player,)).get
    return number


def _profile(
    player: str, name: str | None, avatar_url: str | None, country: str | None, attributes: str | None
) -> Profile:
    return Profile(player, name, avatar_url, country, {} if attributes is None else _decode_attributes(attributes))
