"""The registry: who the players are, beside the path of their scores.

Promises:
- A profile or a list of friends is durable when the call returns, and replaces what was there.
- `profiles` and `attributes` answer from memory for players asked about lately.
- What another process changed holds here within about a second; `changes` moves when it does.
- Where the store is away, `profiles` leaves out those it cannot tell, since ranks are answered without names too.
  Everything else that memory does not answer is LedgerUnavailable: no profile, no friends or no attributes would be a
  wrong answer, and what a score is counted by stays with it.
- A search finds players by the start of their id (as it is written) or of their name (in any case), ids first. A player
  is whoever scored or has a profile: an id in somebody's list of friends, or one that a list belongs to, is none.
- All lists of friends together take no more than the bytes the registry was opened with; one that would be too many is
  Overloaded. A list that takes no more than the one it replaces is always stored.

Not promised: any order between a profile's change and scores that are under way: what a score is counted by is resolved
when it is accepted and stored with it.

May be imported by: the intake, the API's reads, adapters. It imports no adapter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from rankd.errors import Overloaded

COUNTRY = "country"  # a profile's country is an attribute of this name


class Profile(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is known of a player beside scores."""

    player: str
    name: str | None = None
    avatar_url: str | None = None
    country: str | None = None
    attributes: dict[str, str] = {}


def too_many_friends(friends_bytes_max: int) -> Overloaded:
    """Say that lists of friends take all the room they may."""
    return Overloaded(
        f"players: all lists of friends together take the {friends_bytes_max} bytes they may; store a shorter list, or "
        "let whoever runs the server raise registry.friends_bytes_max"
    )


def filled(given: Profile, known: Profile) -> Profile:
    """Return a profile with what was not given as it was."""
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
        """How often something was changed since the start."""
        ...

    def profile(self, player: str) -> Profile | None:
        """Return a player's profile."""
        ...

    def profiles(self, players: Sequence[str]) -> Mapping[str, Profile]:
        """Return the profiles of those players who have one, as far as they can be told."""
        ...

    def attributes(self, player: str) -> Mapping[str, str]:
        """Return a player's attributes, the country among them."""
        ...

    def set_profile(self, profile: Profile, *, only_given: bool = False) -> Profile:
        """Store a profile; `only_given` leaves what it does not say as it was. Return what is stored."""
        ...

    def friends(self, player: str) -> list[str]:
        """Return a player's friends in the order they were given; none when nothing was stored."""
        ...

    def mutual_friends(self, player: str) -> list[str]:
        """Return those of a player's friends in whose own list the player is, in the order they were given."""
        ...

    def set_friends(self, player: str, friends: Sequence[str]) -> None:
        """Store a player's friends."""
        ...

    def search(self, start: str, limit: int) -> list[Profile]:
        """Return players whose id or name begins with a text."""
        ...
