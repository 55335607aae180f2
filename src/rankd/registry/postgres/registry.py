"""The registry on PostgreSQL, shared by every API process; registry/port.py has its promises.

    profiles → cache → PostgreSQL     set_profile → PostgreSQL → own cache invalidated → others' within a second

While PostgreSQL is away, cached values are served. Names beside ranks are omitted; everything else is
LedgerUnavailable.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from rankd.errors import LedgerUnavailable
from rankd.ledger.postgres.connections import Connections, PostgresConnection
from rankd.ledger.postgres.migrations import check_component, migrate_component, scripts_of
from rankd.registry.memory import FRIENDS_PER_PROFILE, DerivedLists, Memory
from rankd.registry.port import Profile, too_many_friends
from rankd.registry.postgres.statements import (
    BY_ID,
    BY_NAME,
    CLEAR_FRIENDS,
    FILL_PROFILE,
    FRIENDS,
    MEET,
    PROFILES,
    SET_FRIENDS,
    SET_PROFILE,
)
from rankd.registry.postgres.watch import Watch
from rankd.settings import FRIENDS_BYTES_MAX

POLL_EVERY_MS = 1_000
READ_WAIT_S = 2.0  # for PostgreSQL to answer
WRITE_WAIT_S = 10.0
COMPONENT = "registry"
MEET_MAX = 10_000  # players per statement
_WARN_EVERY_S = 1.0
_LAST = "\U0010ffff"

_log = logging.getLogger(__name__)

_NO_PROFILES: Mapping[str, Profile] = {}
_UNKNOWN = Profile("")
_NO_ANSWER = ("",)  # not a valid list of friends
_encode = msgspec.json.Encoder(order="deterministic").encode
_decode_attributes = msgspec.json.Decoder(dict[str, str]).decode


class PostgresRegistry:
    """Profiles and friends, cached, including their absence."""

    def __init__(
        self,
        url: str,
        profiles_cached_max: int,
        poll_every_ms: int = POLL_EVERY_MS,
        friends_bytes_max: int = FRIENDS_BYTES_MAX,
    ) -> None:
        """Start with empty caches, and watch for changes; the database must be migrated."""
        self._friends_bytes_max = friends_bytes_max
        self.changes = 0
        self._changes_lock = threading.Lock()
        self._has_profiles = False
        self._is_away = False  # after a failed read, until the watch succeeds
        self._left_out = False  # whether an answer lacked a profile since the last poll
        self._warn_at = 0.0  # monotonic
        self._profiles: Memory[Profile | None] = Memory(profiles_cached_max)
        self._friends: Memory[tuple[str, ...]] = Memory(
            profiles_cached_max * FRIENDS_PER_PROFILE, lambda friends: 1 + len(friends)
        )
        self._mutual = DerivedLists(profiles_cached_max * FRIENDS_PER_PROFILE)
        self._readers = Connections(url, answer_wait_s=READ_WAIT_S)
        self._writers = Connections(url, answer_wait_s=WRITE_WAIT_S)
        try:
            with self._readers.using() as connection:
                check_component(connection, COMPONENT, len(_scripts()))
            self._watch = Watch(self._readers, self, poll_every_ms)
        except BaseException:
            self._readers.close()
            raise

    def close(self) -> None:
        """Close the connections."""
        self._watch.close()
        self._readers.close()
        self._writers.close()

    def noticed(self, players: Sequence[str] | None, has_profiles: bool) -> None:
        """Invalidate the players that other processes changed; None means all."""
        if players is None:
            self._profiles.forget_all()
            self._friends.forget_all()
        elif players:
            self._profiles.forget(players)
            self._friends.forget(players)
        self._has_profiles = self._has_profiles or has_profiles  # they are never deleted
        self._is_away = False
        if players is None or players or self._left_out:
            self._left_out = False
            self._count_change()

    def _count_change(self) -> None:
        """Count a change after its invalidation: a reader of the new count reads the new value."""
        with self._changes_lock:
            self.changes += 1

    # Reading

    def profile(self, player: str) -> Profile | None:
        """Return a player's profile."""
        if not self._has_profiles:
            return None
        held = self._profiles.get(player, _UNKNOWN)
        return self._load([player]).get(player) if held is _UNKNOWN else held

    def profiles(self, players: Sequence[str]) -> Mapping[str, Profile]:
        """Return the available profiles of players."""
        if not self._has_profiles:
            return {}
        held, missing = self._held(players)
        if missing:
            try:
                held.update(self._load(missing))
            except LedgerUnavailable as problem:
                self._left_out = True
                self._warn(problem)
        return held

    def held_profiles(self, players: Sequence[str]) -> Mapping[str, Profile] | None:
        """Return the cached profiles of players; None where one is not cached."""
        if not self._has_profiles:
            return _NO_PROFILES
        held, missing = self._held(players)
        return None if missing else held

    def attributes(self, players: Sequence[str]) -> Mapping[str, Mapping[str, str]]:
        """Return the attributes, including the country, of players who have a profile."""
        profiles: dict[str, Profile] = {}
        missing = list(players)
        # A score keeps its attributes for ever, so they must not come from a stale cache.
        if self._watch.is_fresh:
            profiles, missing = self._held(players) if self._has_profiles else ({}, [])
        if missing:
            profiles.update(self._load(missing))
        return {player: profile.all_attributes for player, profile in profiles.items()}

    def friends(self, player: str) -> list[str]:
        """Return a player's friends in the order given."""
        return list(self._lists([player])[player])

    def mutual_friends(self, player: str) -> list[str]:
        """Return the friends whose own lists have the player, in the order given."""

        def find() -> list[str]:
            friends = self.friends(player)
            lists = self._lists(friends)
            return [friend for friend in friends if player in lists[friend]]

        return self._mutual.get(player, self.changes, find)

    def _lists(self, players: Sequence[str]) -> dict[str, tuple[str, ...]]:
        """Return each player's list of friends."""
        lists = {player: self._friends.get(player, _NO_ANSWER) for player in players}
        missing = [player for player, friends in lists.items() if friends is _NO_ANSWER]
        if missing:
            moment = self._friends.moment
            with self._reading() as connection:
                stored: dict[str, list[str]] = dict(connection.execute(FRIENDS, (missing,)).fetchall())
            loaded = {player: tuple(stored.get(player, ())) for player in missing}
            self._friends.keep(moment, loaded)
            lists.update(loaded)
        return lists

    def search(self, start: str, limit: int) -> list[Profile]:
        """Return players whose id or name begins with a text, ids first."""
        key = start.casefold()
        with self._reading() as connection:
            rows = connection.execute(BY_ID, (start, start + _LAST, limit)).fetchall()
            rows += connection.execute(BY_NAME, (key, key + _LAST, limit)).fetchall()
        return list({row[0]: _profile(row) for row in rows}.values())[:limit]

    def _held(self, players: Sequence[str]) -> tuple[dict[str, Profile], list[str]]:
        """Return the cached profiles, and the players not cached."""
        # One lookup per player: another thread may change the cache meanwhile.
        cached = {player: self._profiles.get(player, _UNKNOWN) for player in players}
        held = {player: profile for player, profile in cached.items() if profile and profile is not _UNKNOWN}
        return held, [player for player, profile in cached.items() if profile is _UNKNOWN]

    def _load(self, players: list[str]) -> dict[str, Profile]:
        moment = self._profiles.moment
        with self._reading() as connection:
            rows = connection.execute(PROFILES, (players,)).fetchall()
        loaded = {row[0]: _profile(row) for row in rows}
        self._profiles.keep(moment, {player: loaded.get(player) for player in players})
        return loaded

    @contextmanager
    def _reading(self) -> Iterator[PostgresConnection]:
        # Only the watch probes PostgreSQL: many waiting reads would block all threads.
        if self._is_away:
            raise LedgerUnavailable("PostgreSQL did not answer a moment ago; try again")
        try:
            with self._readers.using() as connection:
                yield connection
        except LedgerUnavailable:
            self._is_away = True
            raise

    def _warn(self, problem: LedgerUnavailable) -> None:
        now = time.monotonic()
        if now >= self._warn_at:
            self._warn_at = now + _WARN_EVERY_S
            _log.warning("names are missing beside ranks: %s", problem)

    # Writing

    def set_profile(self, profile: Profile, *, only_given: bool = False) -> Profile:
        """Store a profile and return it as stored; `only_given` keeps the stored values of missing fields."""
        values = {
            "player": profile.player,
            "name": profile.name,
            "name_key": None if profile.name is None else profile.name.casefold(),
            "avatar_url": profile.avatar_url,
            "country": profile.country,
            "attributes": _encode(profile.attributes).decode() if profile.attributes else None,
        }
        with self._changing(self._profiles, profile.player) as connection:
            stored: Any = connection.execute(FILL_PROFILE if only_given else SET_PROFILE, values).fetchone()
        return _profile(stored)

    def set_friends(self, player: str, friends: Sequence[str]) -> None:
        """Store a player's friends."""
        values = {"player": player, "friends": list(friends), "bytes_max": self._friends_bytes_max}
        with self._changing(self._friends, player) as connection:
            stored = connection.execute(SET_FRIENDS if friends else CLEAR_FRIENDS, values)
        if friends and not stored.rowcount:
            raise too_many_friends(self._friends_bytes_max)

    def meet(self, players: Sequence[str]) -> None:
        """Register players without a profile, such as those who scored, for search by id."""
        for first in range(0, len(players), MEET_MAX):
            with self._writers.using() as connection:
                connection.execute(MEET, (list(players[first : first + MEET_MAX]),))

    @contextmanager
    def _changing(self, memory: Memory[Any], player: str) -> Iterator[PostgresConnection]:
        self._has_profiles = True
        try:
            with memory.changing(player), self._writers.using() as connection:
                yield connection
        finally:  # a failed write may have taken effect
            self._count_change()


def migrate_registry(url: str) -> int:
    """Migrate the registry and the credentials of a database; return their former version."""
    return migrate_component(url, COMPONENT, _scripts())


def _scripts() -> list[str]:
    return scripts_of(__package__)


def _profile(row: Any) -> Profile:
    player, name, avatar_url, country, attributes = row
    return Profile(player, name, avatar_url, country, {} if attributes is None else _decode_attributes(attributes))
