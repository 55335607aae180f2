"""Who stands where in one instance: everybody sorted, and every read answered by counting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from math import ceil
from typing import Any

from .oracle_board import Spec
from .oracle_fold import Kept, Number, decay_key, effective, order_key, tie_of

# A key is kept in steps and rounded up: what is shown of a decaying score may be too much by this share.
DECAY_STEP = Decimal(2) ** -36
ROUNDING = Decimal("1e-20")  # keeps a whole number from being floored to the one below


@dataclass(frozen=True)
class Between:
    """A number known up to a step: equal to whatever lies within."""

    low: int
    high: int

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Between):
            return (self.low, self.high) == (other.low, other.high)
        return isinstance(other, int) and self.low <= other <= self.high

    def __hash__(self) -> int:
        return 0


@dataclass(frozen=True)
class Line:
    """A player as an answer shows them."""

    rank: int
    player: str
    score: int | Between
    reached_at: int | None
    tiebreak: int | None
    metadata: Any


@dataclass(frozen=True)
class Table:
    """An instance in standing order, as of now."""

    spec: Spec
    now: int
    ordered: list[tuple[str, Kept]]

    @classmethod
    def of(cls, spec: Spec, now: int, standing: dict[str, Kept]) -> Table:
        return cls(spec, now, sorted(standing.items(), key=lambda entry: order_key(spec, *entry)))

    @property
    def total(self) -> int:
        return len(self.ordered)

    def better(self, score: Number) -> list[Number]:
        """Return the strictly better scores."""
        scores = [kept.score for _, kept in self.ordered]
        return [
            candidate
            for candidate in scores
            if (candidate > score if self.spec["order"] == "desc" else candidate < score)
        ]

    def place(self, player: str) -> int | None:
        """Return the ordinal place, from 1."""
        names = [name for name, _ in self.ordered]
        return names.index(player) + 1 if player in names else None

    def rank_at(self, place: int, ranking: str) -> int:
        if ranking == "ordinal":
            return place
        better = self.better(self.ordered[place - 1][1].score)
        return 1 + len(better if ranking == "competition" else set(better))

    def line(self, place: int, ranking: str) -> Line:
        player, kept = self.ordered[place - 1]
        spec = self.spec
        return Line(
            rank=self.rank_at(place, ranking),
            player=player,
            score=self.shown(kept),
            reached_at=kept.tie * spec.tie_resolution_ms if spec.by_time else None,
            tiebreak=kept.tie if spec["ties"] == "value" else None,
            metadata=kept.metadata,
        )

    def shown(self, kept: Kept) -> int | Between:
        if isinstance(kept.score, int):
            return kept.score
        # A score from a clock that is ahead is worth a little more than itself until then; it may be shown as it is.
        least, most = (effective(self.spec, kept.score, at) for at in (max(kept.at, self.now), self.now))
        return Between(int(least * (1 + ROUNDING)), int(most * (1 + DECAY_STEP)))

    def range(self, first: int, last: int, ranking: str) -> list[Line]:
        return [self.line(place, ranking) for place in range(first, min(last, self.total) + 1)]

    def percentile(self, place: int) -> float:
        return 100 * (self.total - self.rank_at(place, "competition")) / self.total

    def top_percent(self, place: int) -> float:
        return 100 * self.rank_at(place, "competition") / self.total

    def group(self, players: Sequence[str]) -> Table:
        """Return the same instance with some of its players only."""
        return Table(self.spec, self.now, [entry for entry in self.ordered if entry[0] in players])

    def rank_of_score(self, score: int, tiebreak: int, ranking: str, at: int) -> int:
        """Return where a newcomer would stand: behind everybody with the same score and tie field."""
        spec = self.spec
        number: Number = decay_key(spec, score, at) if spec["decay"] else score
        if ranking != "ordinal":
            better = self.better(number)
            return 1 + len(better if ranking == "competition" else set(better))
        newcomer = order_key(spec, "", Kept(number, tie_of(spec, at, tiebreak), None, at))
        return 1 + sum(order_key(spec, *entry)[:2] <= newcomer[:2] for entry in self.ordered)

    def buckets(self, number: int) -> list[tuple[int, int, int]]:
        """Cut lowest … highest into ranges of one width and count; the last one ends at the highest score."""
        scores = [int(kept.score) for _, kept in self.ordered]
        if not scores:
            return []
        width = -(-(max(scores) - min(scores) + 1) // number)
        cut = [(low, min(low + width - 1, max(scores))) for low in range(min(scores), max(scores) + 1, width)]
        return [(low, high, sum(low <= score <= high for score in scores)) for low, high in cut]

    def quantile(self, share: str) -> int:
        """Return the smallest score that at least this share of the players do not exceed."""
        scores = sorted(int(kept.score) for _, kept in self.ordered)
        return scores[max(1, ceil(Fraction(share) * len(scores))) - 1]
