"""The standing order and the keep rules: the only definition of them.

Better score first; then the tie field, as `ties` says; then the player's id, bytewise. Every backend implements
exactly this, and the native engine repeats it in `engine/order.hpp`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

SCORE_BOUND_DEFAULT = 2**53 - 1
SCORE_MIN_POSSIBLE = -(2**63)
SCORE_MAX_POSSIBLE = 2**63 - 1
TIE_FIELD_MAX = 2**48 - 1


class Keep(StrEnum):
    """How a player's next score changes the kept score."""

    BEST = "best"
    LATEST = "latest"
    SUM = "sum"
    FIRST = "first"


class Order(StrEnum):
    """Which scores are better: `desc`, more is better; `asc`, less is better."""

    DESC = "desc"
    ASC = "asc"


class Ties(StrEnum):
    """What orders equal scores, before the player's id."""

    EARLIEST = "earliest"
    LATEST = "latest"
    VALUE = "value"
    PLAYER = "player"


class Ranking(StrEnum):
    """How places are counted: 1234, 1224 or 1223."""

    ORDINAL = "ordinal"
    COMPETITION = "competition"
    DENSE = "dense"


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules by which an instance keeps and orders scores."""

    keep: Keep = Keep.BEST
    order: Order = Order.DESC
    ties: Ties = Ties.EARLIEST
    score_min: int = -SCORE_BOUND_DEFAULT
    score_max: int = SCORE_BOUND_DEFAULT


class Kept(NamedTuple):
    """A player's kept score and tie field (time step, tiebreak, or 0)."""

    score: int
    tie: int


def settle(rules: Rules, kept: Kept | None, score: int, tie: int) -> Kept:
    """Apply one event to the kept score; returns the same object when the event changes nothing.

    The tie field moves only with the score it came with: a time never moves alone, a sent tiebreak does where
    the rule takes the newer event (`latest`, `sum`) or the better one (`best`).

    >>> settle(Rules(keep=Keep.BEST), Kept(10, 100), 9, 200)
    Kept(score=10, tie=100)
    >>> settle(Rules(keep=Keep.SUM, score_max=12), Kept(10, 100), 5, 200)
    Kept(score=12, tie=200)
    """
    if rules.ties is Ties.PLAYER:
        tie = 0
    if kept is None:
        return Kept(clamp(rules, score) if rules.keep is Keep.SUM else score, tie)
    match rules.keep:
        case Keep.FIRST:
            return kept
        case Keep.BEST:
            return Kept(score, tie) if _is_better(rules, score, tie, kept) else kept
        case Keep.LATEST:
            arrived = Kept(score, tie)
        case Keep.SUM:
            arrived = Kept(clamp(rules, kept.score + score), tie)
    tie_counts = rules.ties is Ties.VALUE
    changed = arrived.score != kept.score or (tie_counts and arrived.tie != kept.tie)
    return arrived if changed else kept


def clamp(rules: Rules, score: int) -> int:
    """Clamp a sum to the board's bounds."""
    return max(rules.score_min, min(rules.score_max, score))


def _is_better(rules: Rules, score: int, tie: int, kept: Kept) -> bool:
    if score != kept.score:
        return score > kept.score if rules.order is Order.DESC else score < kept.score
    return rules.ties is Ties.VALUE and tie > kept.tie


def score_key(rules: Rules, score: int) -> int:
    """Map a score to an integer that is smaller for a better score.

    For `desc` this is the complement, never the negation: the smallest 64-bit integer has no negative.
    """
    return ~score if rules.order is Order.DESC else score


def tie_key(rules: Rules, tie: int) -> int:
    """Map a tie field to an integer that is smaller for the player who ranks first."""
    match rules.ties:
        case Ties.EARLIEST:
            return tie
        case Ties.LATEST | Ties.VALUE:
            return TIE_FIELD_MAX - tie
        case Ties.PLAYER:
            return 0


def score_keys(rules: Rules, scores: Sequence[int]) -> Sequence[int]:
    """Return the `score_key` of many scores."""
    return [~score for score in scores] if rules.order is Order.DESC else scores


def tie_keys(rules: Rules, ties: Sequence[int]) -> Sequence[int]:
    """Return the `tie_key` of many tie fields."""
    match rules.ties:
        case Ties.EARLIEST:
            return ties
        case Ties.LATEST | Ties.VALUE:
            return [TIE_FIELD_MAX - tie for tie in ties]
        case Ties.PLAYER:
            return [0] * len(ties)


def sort_key(rules: Rules, kept: Kept, player: str) -> tuple[int, int, bytes]:
    """Return the key whose ascending order is the standing order.

    >>> sort_key(Rules(), Kept(976, 5), "alice") < sort_key(Rules(), Kept(976, 6), "aaron")
    True
    """
    return score_key(rules, kept.score), tie_key(rules, kept.tie), player.encode()


def percentile(better: int, total: int) -> float:
    """Return 100 × (total − r) / total, where r = 1 + `better` is the competition rank.

    >>> percentile(better=0, total=4)
    75.0
    """
    return 100 * (total - better - 1) / total


def top_percent(better: int, total: int) -> float:
    """Return 100 × r / total, where r = 1 + `better` is the competition rank.

    >>> top_percent(better=0, total=4)
    25.0
    """
    return 100 * (better + 1) / total
