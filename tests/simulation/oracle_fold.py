"""What one instance holds: all events of its board, folded in the order of the ledger.

An instance is folded by itself. A roll-up follows the shorter windows it is made of, and a team board the
contributions of players to teams, by reading the same events, never by looking at what another fold left behind.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Context, Decimal
from typing import Any, NamedTuple

from .oracle_board import Spec, duration_ms
from .oracle_calendar import Instance

EXACT = Context(prec=60)
LN_2 = EXACT.ln(Decimal(2))
NEAR = Decimal("1e-25")  # keys of decaying scores that differ by less are equal

Number = int | Decimal


class Kept(NamedTuple):
    """What is kept for a player or team: a score, or on a board with decay its key."""

    score: Number
    tie: int
    metadata: Any
    at: int


@dataclass(frozen=True)
class Counted:
    """A score as it counts on one board: the definition it was taken under, the instances and scopes it counts in."""

    spec: Spec
    player: str
    score: int
    tiebreak: int
    at: int
    metadata: Any
    instances: frozenset[str]
    windows: Mapping[str, str]  # the instance at that instant of each window of the board, counted in or not
    scopes: tuple[str, ...]
    team: str | None


@dataclass(frozen=True)
class Removed:
    """A player taken out of all instances in the store."""

    spec: Spec
    player: str
    at: int


@dataclass(frozen=True)
class Reset:
    """Instances made empty, in all scopes."""

    spec: Spec
    instances: frozenset[str]
    at: int


Happening = Counted | Removed | Reset
Contributor = tuple[str, str]  # who stands (a team or a player), and the player whose score it is


def decay_key(spec: Spec, score: int, at: int) -> Decimal:
    """Return log2 of what a score would have been worth in 1970."""
    factor, every_ms = Decimal(str(spec["decay"]["factor"])), duration_ms(spec["decay"]["every"])
    halvings = EXACT.divide(-EXACT.ln(factor), LN_2)
    faded = EXACT.multiply(EXACT.divide(Decimal(at), Decimal(every_ms)), halvings)
    return EXACT.add(EXACT.divide(EXACT.ln(Decimal(score)), LN_2), faded).quantize(NEAR, context=EXACT)


def effective(spec: Spec, key: Decimal, now: int) -> Decimal:
    """Return score × factor^((now − at) / every) of a score with this key."""
    bits = EXACT.subtract(key, decay_key(spec, 1, now))
    return EXACT.exp(EXACT.multiply(bits, LN_2))


def tie_of(spec: Spec, at: int, tiebreak: int) -> int:
    if spec.by_time:
        return at // spec.tie_resolution_ms
    return tiebreak if spec["ties"] == "value" else 0


def is_better(spec: Spec, arrived: Kept, kept: Kept) -> bool:
    if arrived.score != kept.score:
        return bool((arrived.score > kept.score) == (spec["order"] == "desc"))
    return bool(spec["ties"] == "value" and arrived.tie > kept.tie)


def differs(spec: Spec, first_score: Kept, second_score: Kept) -> bool:
    """Tell whether score or tiebreak differ; a time alone is no difference."""
    return first_score.score != second_score.score or bool(
        spec["ties"] == "value" and first_score.tie != second_score.tie
    )


def settled(spec: Spec, keep: str, kept: Kept | None, arrived: Kept) -> Kept:
    """Return what is kept after a score arrived, by one of the four plain rules."""
    if keep == "sum":
        before = 0 if kept is None else kept.score
        arrived = arrived._replace(score=spec.clamped(int(before) + int(arrived.score)))
    if kept is None:
        return arrived
    if keep == "first" or (keep == "best" and not is_better(spec, arrived, kept)):
        return kept
    return arrived if differs(spec, arrived, kept) else kept


@dataclass
class Fold:
    """An instance while its board's events go by."""

    keep: str
    instance: Instance
    scope: str
    seen: int = 0  # events
    standing: dict[str, Kept] = field(default_factory=dict)  # players, or teams
    joined: dict[str, int] = field(default_factory=dict)  # the event with which those who stand came, or came back
    kept: dict[Contributor, Kept] = field(default_factory=dict)  # of each player, on team boards within a team
    # Of roll-ups only: what the shorter windows kept, and how much of it is in the total of a player.
    parts: dict[tuple[str, Contributor], Kept] = field(default_factory=dict)
    shares: dict[Contributor, dict[str, int]] = field(default_factory=dict)

    def see(self, event: Happening) -> None:
        self.seen += 1
        match event:
            case Counted():
                if self.scope in event.scopes:
                    self._count(event)
            case Removed():
                self._remove(event)
            case Reset():
                self._reset(event)

    def _count(self, event: Counted) -> None:
        spec, who = event.spec, (event.team or event.player, event.player)
        number: Number = event.score if not spec["decay"] else decay_key(spec, event.score, event.at)
        arrived = Kept(number, tie_of(spec, event.at, event.tiebreak), event.metadata, event.at)
        counts_here = self.instance.name in event.instances
        if self.keep.startswith("sum_of_"):
            part = self._count_part(event, who, arrived)
            if part is not None and counts_here:
                self._add_up(spec, who, arrived)
        elif counts_here:
            before = self.kept.get(who)
            self.kept[who] = settled(spec, self.keep, before, arrived)
            if self.kept[who] is not before:
                self._stand(spec, who[0], arrived)

    def _count_part(self, event: Counted, who: Contributor, arrived: Kept) -> str | None:
        """Keep a score in the part of a roll-up that it belongs to; return the part if it was set."""
        window = self.keep.removeprefix("sum_of_")
        part = event.windows.get(window)
        if part not in event.instances or not self.instance.holds(event.at):
            return None
        before = self.parts.get((part, who))
        after = settled(event.spec, event.spec.keep(event.spec.window(window)), before, arrived)
        self.parts[part, who] = after
        if after is before:
            return None
        if self.instance.name in event.instances:
            # A part that was not in the total, since a reset took it out, counts as a whole.
            shares = self.shares.setdefault(who, {})
            gained = int(after.score) - (int(before.score) if before is not None and part in shares else 0)
            shares[part] = shares.get(part, 0) + gained
        return part

    def _add_up(self, spec: Spec, who: Contributor, brought: Kept) -> None:
        total = brought._replace(score=spec.clamped(sum(self.shares[who].values())))
        before = self.kept.get(who)
        if before is None or differs(spec, before, total):
            self.kept[who] = total
            self._stand(spec, who[0], brought)

    def _stand(self, spec: Spec, name: str, brought: Kept) -> None:
        """Work out anew where a player or team stands; tie field and metadata are those the event brought."""
        new = self._made(spec, name, brought)
        old = self.standing.get(name)
        if new is None:
            self.standing.pop(name, None)
            return
        if old is None:
            self.joined[name] = self.seen
        if old is None or differs(spec, old, new):
            self.standing[name] = new

    def _made(self, spec: Spec, name: str, brought: Kept) -> Kept | None:
        mine = {player: kept for (who, player), kept in self.kept.items() if who == name}
        if not mine:
            return None
        if not spec["team"]:
            return mine[name]
        scores = [int(kept.score) for kept in mine.values()]
        match spec["team"]["by"]:
            case "sum":
                return brought._replace(score=spec.clamped(sum(scores)))
            case "average":
                return brought._replace(score=spec.clamped(sum(scores) // len(scores)))
            case _:
                best = min(mine.items(), key=lambda item: order_key(spec, *item))[1]
                tie = best.tie if spec["ties"] == "value" else brought.tie
                return brought._replace(score=best.score, tie=tie)

    def _remove(self, event: Removed) -> None:
        left = {who for who in self.kept if who[1] == event.player}
        self.kept = {who: kept for who, kept in self.kept.items() if who[1] != event.player}
        self.shares = {who: shares for who, shares in self.shares.items() if who[1] != event.player}
        self.parts = {(part, who): kept for (part, who), kept in self.parts.items() if who[1] != event.player}
        for name, _ in sorted(left):
            self._stand(event.spec, name, brought_by(event))

    def _reset(self, event: Reset) -> None:
        self.parts = {(part, who): kept for (part, who), kept in self.parts.items() if part not in event.instances}
        if self.instance.name in event.instances:
            self.kept, self.shares, self.standing = {}, {}, {}
        for who, shares in list(self.shares.items()):
            left = {part: share for part, share in shares.items() if part not in event.instances}
            if left == shares:
                continue
            if left:
                self.shares[who] = left
                self._add_up(event.spec, who, brought_by(event))
            else:
                del self.shares[who], self.kept[who]
                self._stand(event.spec, who[0], brought_by(event))


def brought_by(event: Removed | Reset) -> Kept:
    """Return what an event brings that is no score: its time, no tiebreak, no metadata."""
    return Kept(0, tie_of(event.spec, event.at, 0), None, event.at)


def order_key(spec: Spec, player: str, kept: Kept) -> tuple[Number, int, bytes]:
    """Return the key by which ascending order is the standing order."""
    score = -kept.score if spec["order"] == "desc" else kept.score
    tie = -kept.tie if spec["ties"] in ("latest", "value") else kept.tie
    return score, tie if spec["ties"] != "player" else 0, player.encode()
