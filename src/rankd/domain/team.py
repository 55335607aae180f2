"""Teams: a board that ranks teams by their players' scores."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from rankd.domain.player import check_player


class TeamBy(StrEnum):
    """How a team's score is computed from its players' scores."""

    SUM = "sum"
    AVERAGE = "average"
    BEST = "best"


class Team(msgspec.Struct, frozen=True):
    """The attribute that names the team, and how the team's score is computed."""

    attribute: str
    by: TeamBy

    def team_of(self, attributes: Mapping[str, str]) -> str | None:
        """Return the team an event counts for; None for an event without one, which does not count.

        A team is ranked in place of a player, so its name follows the rule of player ids.
        """
        team = attributes.get(self.attribute)
        return None if team is None else check_player(team, f"attributes.{self.attribute}")
