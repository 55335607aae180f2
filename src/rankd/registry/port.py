"""The registry: profiles and friends of players.

Promises:
- A profile or a list of friends is durable when the call returns, and replaces the former one.
- `profiles` and `attributes` answer from memory for recently read players.
- Changes of another process are visible within about a second, and advance `changes`.
- While the store is away, `profiles` omits players that are not cached, since ranks are served without names too. All
  other reads that are not cached are LedgerUnavailable: an empty profile, list or attribute would be a wrong answer,
  and a score keeps its attributes for ever.
- A search finds players by a prefix of their id (case-sensitive) or of their name (in any case), ids first. Players are
  those who scored or have a profile, not ids that only occur in lists of friends.
- All lists of friends together take at most the bytes the registry was opened with; one too many is Overloaded. A list
  no longer than the one it replaces is always stored.

Not promised: an order between a profile's change and scores being accepted: a score's attributes are resolved when it
is accepted, and stored with it.

May be imported by: the intake, the API's reads, adapters. It imports no adapter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from rankd.errors import Overloaded

COUNTRY = "country"  # a profile's country is an attribute of this name


class Profile(msgspec.Struct, frozen=True, omit_defaults=True):
    """A player's profile."""

    player: str
    name: str | None = None
    avatar_url: str | None = None
    country: str | None = None
    attributes: dict[str, str] = {}

    @property
    def all_attributes(self) -> Mapping[str, str]:
        """The attributes, including the country."""
        return self.attributes if self.country is None else {**self.attributes, COUNTRY: self.country}


def too_many_friends(friends_bytes_max: int) -> Overloaded:
    """Return the error for lists of friends that exceed their limit."""
    return Overloaded(
        f"players: all lists of friends together may take {friends_bytes_max} bytes and do; store a shorter list, or "
        "let the operator raise registry.friends_bytes_max"
    )


def filled(given: Profile, known: Profile) -> Profile:
    """Return the given profile, with missing fields of the known one."""
    return Profile(
        given.player,
        given.name if given.name is not None else known.name,
        given.avatar_url if given.avatar_url is not None else known.avatar_url,
        given.country if given.country is not None else known.country,
        given.attributes or known.attributes,
    )


class Registry(Protocol):
    """May be called from any thread."""

    @property
    def changes(self) -> int:
        """The number of changes since the start."""
        ...

    def profile(self, player: str) -> Profile | None:
        """Return a player's profile."""
        ...

    def profiles(self, players: Sequence[str]) -> Mapping[str, Profile]:
        """Return the available profiles of players."""
        ...

    def attributes(self, players: Sequence[str]) -> Mapping[str, Mapping[str, str]]:
        """Return the attributes, including the country, of players who have a profile."""
        ...

    def set_profile(self, profile: Profile, *, only_given: bool = False) -> Profile:
        """Store a profile and return it as stored; `only_given` keeps the stored values of missing fields."""
        ...

    def friends(self, player: str) -> list[str]:
        """Return a player's friends in the order given; empty when none were stored."""
        ...

    def mutual_friends(self, player: str) -> list[str]:
        """Return the friends whose own lists have the player, in the order given."""
        ...

    def set_friends(self, player: str, friends: Sequence[str]) -> None:
        """Store a player's friends."""
        ...

    def search(self, start: str, limit: int) -> list[Profile]:
        """Return players whose id or name begins with a text."""
        ...
