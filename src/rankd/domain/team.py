"""Teams: a board on which each team stands with what its players' scores make of it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from rankd.domain.player import check_player
from rankd.domain.score import clamped


class TeamBy(StrEnum):
    """What makes a team's score out of its players' scores."""

    SUM = "sum"
    AVERAGE = "average"
    BEST = "best"


class Team(msgspec.Struct, frozen=True):
    """Which attribute of an event names the team, and how the team's score is made."""

    attribute: str
    by: TeamBy

    def team_of(self, attributes: Mapping[str, str]) -> str | None:
        """Return the team an event counts for; None for an event without one, which the board leaves out.

        A team stands where a player would, so its name keeps the rule of a player's id.
        """
        team = attributes.get(self.attribute)
        return None if team is None else check_player(team, f"attributes.{self.attribute}")


class Contributions(msgspec.Struct, frozen=True):
    """What a team holds for `sum` and `average`: the wide sum of its players' kept scores and how many they are."""

    total: int = 0
    players: int = 0

    def replaced(self, before: int | None, after: int | None) -> Contributions:
        """Return what is held after one player's kept score changed; None is a player who does not contribute."""
        return Contributions(
            self.total - (before or 0) + (after or 0),
            self.players - (before is not None) + (after is not None),
        )

    def score(self, by: TeamBy, score_min: int, score_max: int) -> int | None:
        """Return the team's score as it is ranked; None for a team to which nobody contributes.

        >>> Contributions(total=-7, players=2).score(TeamBy.AVERAGE, -100, 100)
        -4
        """
        if self.players == 0:
            return None
        total = self.total // self.players if by is TeamBy.AVERAGE else self.total
        return clamped(total, score_min, score_max)
