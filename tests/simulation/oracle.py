"""The oracle: what the embedded library must answer, kept as lists of events and worked out when asked.

It knows the rules from the design alone and shares no code with what it judges. Refusals carry the stable code of the
error that the library must raise.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .oracle_board import DEFAULTS, Definition, Spec
from .oracle_calendar import Instance, Window, last_midnight_ms, previous_instance
from .oracle_fold import Counted, Fold, Happening, Removed, Reset
from .oracle_table import Between, Table

AHEAD_MS_MAX = 5_000
KEY_TTL_MS = 86_400_000
DAY_MS = 86_400_000
NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}")


Request = tuple[str, str, Any]  # one or many, the board, what was sent


class Refusal(Exception):
    """The library must refuse, with an error of this code."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


@dataclass(frozen=True)
class Row:
    """A score as it is sent."""

    player: str
    score: int
    tiebreak: int | None = None
    at: int | None = None
    attributes: Mapping[str, str] | None = None
    metadata: Any = None


@dataclass(frozen=True)
class Submitted:
    """What a submit answers."""

    window: str
    score: int | Between | None
    previous_score: int | Between | None
    changed: bool
    rank: int | None
    previous_rank: int | None


@dataclass
class Life:
    """A board from its definition to its deletion."""

    spec: Spec
    midnight: int  # the last one whose places are remembered, or when the board was defined
    events: list[Happening] = field(default_factory=list)
    dirty: dict[str, tuple[Window, Instance]] = field(default_factory=dict)  # instances that an event came to
    scopes: set[str] = field(default_factory=set)  # in which somebody has stood; their number is limited
    closed: set[str] = field(default_factory=set)
    retired: dict[str, int] = field(default_factory=dict)  # with the number of events there were: none counts later
    places: dict[str, dict[str, int]] = field(default_factory=dict)  # at the last midnight, by instance
    midnight_events: int = 0  # that there were by then
    folds: dict[tuple[str, str], tuple[Fold, int]] = field(default_factory=dict)

    def fold(self, window: Window, instance: Instance, scope: str) -> Fold:
        """Return an instance with all events folded into it; those seen before are not folded again."""
        fold, seen = self.folds.get((instance.name, scope)) or (Fold(self.spec.keep(window), instance, scope), 0)
        end = self.retired.get(instance.name, len(self.events))
        for event in self.events[seen:end]:
            fold.see(event)
        self.folds[instance.name, scope] = fold, max(seen, end)
        return fold

    def final(self) -> set[str]:
        return self.closed | set(self.retired)


class Oracle:
    """The library's twin. `now` is what the clock says, forth and back; the ledger's own time only goes on."""

    def __init__(self, now: int, scope_values_max: int = 10_000) -> None:
        self.now = now
        self.scope_values_max = scope_values_max
        self.written_at = now
        self.boards: dict[str, Life] = {}
        self.profiles: dict[str, dict[str, Any]] = {}
        self.friends: dict[str, list[str]] = {}
        self.keys: dict[str, tuple[Request, Any, int]] = {}

    def life(self, board: str) -> Life:
        if board not in self.boards:
            raise Refusal("board_unknown")
        return self.boards[board]

    @property
    def at(self) -> int:
        """The time the ledger gives to an event that is sent without one."""
        return max(self.written_at, self.now)

    def begin_write(self) -> None:
        self.roll_over()
        self.written_at = self.at

    # Definitions

    def define(self, board: str, definition: Definition) -> bool:
        """Return whether anything changed."""
        self.begin_write()
        new = Spec(board, definition)
        if not new.is_consistent():
            raise Refusal("invalid_value")
        others = {name: life.spec for name, life in self.boards.items() if name != board}
        for spec in [*others.values(), new]:
            for fed in spec["feeds"]:
                target = {**others, board: new}.get(fed)
                if target is None or target["feeds"]:
                    raise Refusal("invalid_value")
        life = self.boards.get(board)
        if life is None:
            self.boards[board] = Life(new, midnight=self.at)
            return True
        if not life.spec.may_become(new):
            raise Refusal("definition_conflict")
        old, life.spec = life.spec, new
        return any(old.canonical(name) != new.canonical(name) for name in DEFAULTS)

    def delete(self, board: str) -> None:
        self.begin_write()
        self.life(board)
        if any(board in life.spec["feeds"] for life in self.boards.values()):
            raise Refusal("board_in_use")
        del self.boards[board]

    # Time

    def roll_over(self) -> None:
        """Do what is due: by the ledger's time remember places and close windows, by the clock retire them."""
        for life in self.boards.values():
            midnight = last_midnight_ms(life.spec["time_zone"], self.at)
            if midnight > life.midnight:
                life.midnight = midnight
                self._remember_places(life)
            for name, (window, instance) in life.dirty.items():
                final, gone = life.spec.final_at(instance), life.spec.gone_at(window, instance)
                if final is not None and final <= self.at:
                    life.closed.add(name)
                if name in life.closed and name not in life.retired and gone is not None and gone <= self.now:
                    life.retired[name] = len(life.events)

    def _remember_places(self, life: Life) -> None:
        life.places, life.midnight_events = {}, len(life.events)
        for window, instance in life.spec.instances(life.midnight).items():
            standing = life.fold(window, instance, "global").standing
            table = Table.of(life.spec, self.now, standing)
            life.places[instance.name] = {player: place for place, (player, _) in enumerate(table.ordered, start=1)}

    # Writes

    def submit(self, board: str, row: Row, key: str | None = None, imported: bool = False) -> tuple[Submitted, bool]:
        """Return the answer, and whether it repeats an earlier one."""
        self.begin_write()
        if (earlier := self._repeated(key, ("one", board, row))) is not None:
            return earlier, True
        life = self._check(board, [row], imported)
        window = life.spec.windows[0]
        at = self.at if row.at is None else row.at
        instance = life.spec.instance(window, at)
        assert instance is not None
        attributes = self.resolved(row)
        scope = next(iter(life.spec.scopes_of(attributes)), None)
        who = row.player if life.spec["team"] is None else attributes.get(life.spec["team"]["attribute"])
        before = self._stands(life, window, instance, scope, who)
        self._append(life, row)
        after = self._stands(life, window, instance, scope, who)
        answer = Submitted(instance.name, after[0], before[0], before[2] != after[2], after[1], before[1])
        self._remember_key(key, ("one", board, row), answer)
        return answer, False

    def submit_many(self, board: str, rows: list[Row], key: str | None = None, imported: bool = False) -> bool:
        """Return whether this repeats an earlier request."""
        self.begin_write()
        request = ("many", board, tuple(rows))
        if self._repeated(key, request) is not None:
            return True
        life = self._check(board, rows, imported)
        self._append_rows(life, rows)
        self._remember_key(key, request, "done")
        return False

    def _append_rows(self, life: Life, rows: list[Row]) -> None:
        for row in rows:
            self._append(life, row)

    def _stands(
        self, life: Life, window: Window, instance: Instance, scope: str | None, who: str | None
    ) -> tuple[int | Between | None, int | None, object]:
        """Return score, rank and all that is kept, each None for somebody who is not there."""
        if scope is None or who is None or instance.name in life.retired:
            return None, None, None
        table = Table.of(life.spec, self.now, life.fold(window, instance, scope).standing)
        place = table.place(who)
        if place is None:
            return None, None, None
        kept = table.ordered[place - 1][1]
        return table.shown(kept), table.rank_at(place, life.spec["ranking"]), kept

    def _check(self, board: str, rows: list[Row], imported: bool) -> Life:
        life = self.life(board)
        if not life.spec["open"]:
            raise Refusal("board_closed")
        scopes = set(life.scopes)
        for row in rows:
            attributes = self.resolved(row)
            if life.spec.counts_team(attributes):  # else it counts nowhere, and takes no value
                if attributes != self._taken(life.spec, attributes, scopes):
                    raise Refusal("invalid_value")
                scopes.update(life.spec.scopes_of(attributes))
            if not life.spec.takes(row.score):
                raise Refusal("invalid_value")
            if row.at is not None:
                late = self.at - row.at > life.spec.late_by_ms and not imported
                if late or row.at > self.at + AHEAD_MS_MAX:
                    raise Refusal("invalid_value")
        return life

    def resolved(self, row: Row) -> dict[str, str]:
        """Return an event's attributes: its own, else the profile's."""
        profile = self.profiles.get(row.player, {})
        country = {"country": profile["country"]} if profile.get("country") else {}
        given = {**(profile.get("attributes") or {}), **country, **(row.attributes or {})}
        return {name: str(value) for name, value in given.items()}

    def _taken(self, spec: Spec, attributes: Mapping[str, str], scopes: set[str]) -> dict[str, str]:
        """Return the attributes without those a board cannot take: one value too many, or a team that no id can be."""
        taken = dict(attributes)
        values_max = spec["scope_values_max"] or self.scope_values_max
        for name in {*spec["scopes"]} & {*taken}:
            known = {scope for scope in scopes if scope.startswith(f"{name}:")}
            if f"{name}:{taken[name]}" not in known and len(known) >= values_max:
                del taken[name]
        if spec["team"] and taken.get(spec["team"]["attribute"]) in (".", ".."):
            del taken[spec["team"]["attribute"]]
        return taken

    def _append(self, life: Life, row: Row) -> None:
        attributes = self.resolved(row)
        for board in [life.spec.board, *life.spec["feeds"]]:
            if self.boards[board].spec["open"]:
                self._count(self.boards[board], row, attributes)

    def _count(self, life: Life, row: Row, attributes: Mapping[str, str]) -> None:
        spec, at = life.spec, self.at if row.at is None else row.at
        current = spec.instances(at)
        counted = {window: instance for window, instance in current.items() if instance.name not in life.final()}
        life.dirty.update({instance.name: (window, instance) for window, instance in counted.items()})
        attributes = self._taken(spec, attributes, life.scopes)
        if not spec.takes(row.score) or not spec.counts_team(attributes):
            return
        scopes = spec.scopes_of(attributes)
        team = spec["team"] and attributes.get(spec["team"]["attribute"])
        life.scopes.update(scopes)
        life.events.append(
            Counted(
                spec,
                row.player,
                row.score,
                row.tiebreak or 0,
                at,
                row.metadata,
                frozenset(instance.name for instance in counted.values()),
                {window.name: instance.name for window, instance in current.items()},
                tuple(scopes),
                team,
            )
        )

    def remove(self, board: str, player: str) -> bool:
        """Return whether anything changed."""
        self.begin_write()
        life = self.life(board)
        before = self._everything(life)
        life.events.append(Removed(life.spec, player, self.at))
        return before != self._everything(life)

    def _everything(self, life: Life) -> dict[tuple[str, str], dict[object, object]]:
        return {
            (name, scope): dict(life.fold(window, instance, scope).kept)
            for name, (window, instance) in life.dirty.items()
            for scope in life.scopes
            if name not in life.retired
        }

    def reset(self, board: str, window: str | None) -> None:
        self.begin_write()
        life = self.life(board)
        if window is not None and window not in [spec_window.name for spec_window in life.spec.windows]:
            raise Refusal("window_unknown")
        current = life.spec.instances(self.at)
        cleared = [
            instance.name for current_window, instance in current.items() if window in (None, current_window.name)
        ]
        life.events.append(Reset(life.spec, frozenset(cleared), self.at))

    def set_player(self, player: str, profile: Mapping[str, Any]) -> None:
        self.profiles[player] = dict(profile)

    # Keys

    def _repeated(self, key: str | None, request: Request) -> Any:
        if key is None or key not in self.keys:
            return None
        earlier, answer, when = self.keys[key]
        if self.at - when >= KEY_TTL_MS:
            return None
        if earlier != request:
            raise Refusal("key_reused")
        return answer

    def _remember_key(self, key: str | None, request: Request, answer: object) -> None:
        if key is not None:
            self.keys[key] = request, answer, self.at

    # Reads

    def resolve(self, board: str, named: str | None) -> tuple[Life, Window, Instance]:
        """Return the instance that a read means by `weekly`, `weekly:previous` or nothing at all; refuse nonsense."""
        self.roll_over()
        life = self.life(board)
        spec = life.spec
        name, _, label = (spec.windows[0].name if named is None else named).partition(":")
        if not NAME.fullmatch(label if name == "period" else name):
            raise Refusal("invalid_value")
        name = f"{name}:{label}" if name == "period" else name
        declared = {window.name: window for window in spec.windows}
        if name not in declared:
            raise Refusal("window_unknown")
        window = declared[name]
        current = spec.instance(window, self.now)
        if window.kind == "period":
            return self._there(life, window, Instance(name, window.start, window.end))
        assert current is not None
        if not label:
            return self._there(life, window, current)
        if label == "previous":
            previous = previous_instance(window, spec["time_zone"], spec["week_starts"], current)
            if previous is None:
                raise Refusal("invalid_value")
            return self._there(life, window, previous)
        raise Refusal("invalid_value")  # whoever means an instance by its full name asks `resolve_at`

    def resolve_at(self, board: str, window: Window, at: int) -> tuple[Life, Window, Instance]:
        """Return the instance that holds some instant, for reads that name it in full."""
        self.roll_over()
        life = self.life(board)
        instance = life.spec.instance(window, at)
        assert instance is not None
        return self._there(life, window, instance)

    def _there(self, life: Life, window: Window, instance: Instance) -> tuple[Life, Window, Instance]:
        gone = life.spec.gone_at(window, instance)
        if gone is not None and gone <= self.now and instance.name not in life.retired:
            raise Refusal("window_gone")  # it never held anything, so nothing was archived
        return life, window, instance

    def table(self, life: Life, window: Window, instance: Instance, scope: str | None) -> Table:
        scope = scope or "global"
        declared = scope.partition(":")[0] in life.spec["scopes"]
        if not (life.spec["global"] if scope == "global" else declared):
            raise Refusal("scope_unknown")
        standing = life.fold(window, instance, scope).standing
        if instance.name in life.retired:  # the archive has no metadata
            standing = {player: kept._replace(metadata=None) for player, kept in standing.items()}
        return Table.of(life.spec, self.now, standing)

    def rank_change(self, target: tuple[Life, Window, Instance], scope: str, table: Table, player: str) -> int | None:
        life, window, instance = target
        if scope != "global" or not is_longer_than_a_day(window, instance) or not instance.holds(self.now):
            return None
        then, now = life.places.get(instance.name, {}).get(player), table.place(player)
        if then is None or now is None:
            return None
        # Who left since and came back is a newcomer.
        joined = life.fold(window, instance, scope).joined[player]
        return then - now if joined <= life.midnight_events else None


def is_longer_than_a_day(window: Window, instance: Instance) -> bool:
    if window.kind in ("daily", "hourly"):
        return False
    return instance.start is None or instance.end is None or instance.end - instance.start > DAY_MS
