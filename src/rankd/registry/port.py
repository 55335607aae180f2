"""The registry: who the players are, beside the path of their scores.

Promises:
- A profile or a list of friends is durable when the call returns, and replaces what was there.
- `profiles` and `attributes` answer from memory for players asked about lately.
- A search finds players by the start of their id (as it is written) or of their name (in any case), ids first.

Not promised: any order between a profile's change and scores that are under way: what a score is counted by is resolved
when it is accepted and stored with it.

May be imported by: the intake, the API's reads, adapters. It imports no adapter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec


class Profile(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is known of a player beside scores."""

    player: str
    name: str | None = None
    avatar_url: str | None = None
    country: str | None = None
    attributes: dict[str, str] = {}


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
        """Return the profiles of those players who have one."""
        ...

    def attributes(self, player: str) -> Mapping[str, str]:
        """Return a player's attributes, the country among them."""
        ...

    def set_profile(self, profile: Profile) -> None:
        """Store a profile."""
        ...

    def friends(self, player: str) -> list[str]:
        """Return a player's friends in the order they were given; none when nothing was stored."""
        ...

    def set_friends(self, player: str, friends: Sequence[str]) -> None:
        """Store a player's friends."""
        ...

    def search(self, start: str, limit: int) -> list[Profile]:
        """Return players whose id or name begins with a text."""
        ...
