"""The oracle's view of a definition: the fields that matter to ranks, and what may change in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .oracle_calendar import Instance, Window, instance_at

Definition = Mapping[str, Any]

UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
DEFAULTS: dict[str, Any] = {
    "keep": "best",
    "order": "desc",
    "ties": "earliest",
    "tie_resolution": "1s",
    "ranking": "ordinal",
    "windows": ["all_time"],
    "periods": [],
    "time_zone": "UTC",
    "week_starts": "monday",
    "scopes": [],
    "global": True,
    "score_min": -(2**53) + 1,
    "score_max": 2**53 - 1,
    "late_by": "5m",
    "retention": None,
    "feeds": [],
    "team": None,
    "decay": None,
    "writes": "server",
    "open": True,
    "scope_values_max": None,
    "title": None,
    "description": None,
}
MAY_CHANGE = {
    "title",
    "description",
    "ranking",
    "retention",
    "late_by",
    "writes",
    "score_min",
    "score_max",
    "open",
    "scope_values_max",
}
NESTS_IN = {
    "hourly": ("daily", "weekly", "monthly", "yearly", "all_time"),
    "daily": ("weekly", "monthly", "yearly", "all_time"),
    "weekly": ("all_time",),
}
MAY_GROW = {"windows", "periods", "scopes", "feeds"}


def duration_ms(text: str) -> int:
    digits = text.rstrip("mshd")
    return int(digits) * UNITS_MS[text[len(digits) :]]


@dataclass(frozen=True)
class Spec:
    """One version of a board's definition, with what is left out filled in."""

    board: str
    given: Definition

    def __getitem__(self, name: str) -> Any:
        return self.given.get(name, DEFAULTS[name])

    @property
    def windows(self) -> list[Window]:
        declared = []
        for item in self["windows"]:
            if isinstance(item, str):
                declared.append(Window(item, item))
            else:
                declared.append(Window("cron", item["name"], reset=item["reset"]))
        for period in self["periods"]:
            declared.append(Window("period", f"period:{period['name']}", start=period["start"], end=period["end"]))
        return declared

    def window(self, name: str) -> Window:
        return next(window for window in self.windows if window.name == name)

    def instance(self, window: Window, at: int) -> Instance | None:
        return instance_at(window, self["time_zone"], self["week_starts"], at)

    def instances(self, at: int) -> dict[Window, Instance]:
        """Return the instances that an instant is in."""
        instances = {window: self.instance(window, at) for window in self.windows}
        return {window: instance for window, instance in instances.items() if instance is not None}

    def keep(self, window: Window) -> str:
        return str(self._for_window("keep", window) or "best")

    def retention_ms(self, window: Window) -> int | None:
        written = None if window.kind == "all_time" else self._for_window("retention", window)
        return None if written is None else duration_ms(written)

    def _for_window(self, field: str, window: Window) -> Any:
        setting = self[field]
        if isinstance(setting, Mapping):
            return setting.get(window.name, setting.get(window.name.partition(":")[0]))
        return setting

    @property
    def late_by_ms(self) -> int:
        return duration_ms(self["late_by"])

    @property
    def tie_resolution_ms(self) -> int:
        return duration_ms(self["tie_resolution"])

    @property
    def by_time(self) -> bool:
        return self["ties"] in ("earliest", "latest")

    def clamped(self, score: int) -> int:
        return int(max(self["score_min"], min(self["score_max"], score)))

    def takes(self, score: int) -> bool:
        return bool(self["score_min"] <= score <= self["score_max"])

    def scopes_of(self, attributes: Mapping[str, str]) -> list[str]:
        """Return the scopes of an event: no value, no scope. Attributes stand in the order of their names."""
        everybody = ["global"] if self["global"] else []
        return everybody + [f"{name}:{attributes[name]}" for name in sorted(self["scopes"]) if name in attributes]

    def counts_team(self, attributes: Mapping[str, str]) -> bool:
        """Tell whether an event names what it needs to count at all: on a team board, a team."""
        return not self["team"] or self["team"]["attribute"] in attributes

    def final_at(self, instance: Instance) -> int | None:
        return None if instance.end is None else instance.end + self.late_by_ms

    def gone_at(self, window: Window, instance: Instance) -> int | None:
        final, retention_ms = self.final_at(instance), self.retention_ms(window)
        return None if final is None or retention_ms is None else final + retention_ms

    def is_consistent(self) -> bool:
        """Tell whether the fields agree with each other, as far as runs make them disagree."""
        names = [window.name for window in self.windows]
        for field in ("keep", "retention"):
            spoken_of = self[field] if isinstance(self[field], Mapping) else {}
            if any(name not in names and not (name == "period" and self["periods"]) for name in spoken_of):
                return False
        keeps = {window.name: self.keep(window) for window in self.windows}
        for name, keep in keeps.items():
            part = keep.removeprefix("sum_of_")
            if part != keep and (part not in names or keeps[part].startswith("sum_of_") or not self._nests(part, name)):
                return False
        if self["decay"] and (self["ties"] != "player" or self["order"] != "desc" or self["score_min"] < 1):
            return False
        if self["decay"] and not set(keeps.values()) <= {"best", "latest", "first"}:
            return False
        if self["team"] and self["ties"] == "value" and self["team"]["by"] != "best":
            return False
        each_once = len(set(self["feeds"])) == len(self["feeds"]) and self.board not in self["feeds"]
        return bool(each_once and self["score_min"] <= self["score_max"] and (self["global"] or self["scopes"]))

    def _nests(self, part: str, whole: str) -> bool:
        if whole.startswith("period:"):
            window = self.window(whole)
            starts = (self.instance(self.window(part), edge) for edge in (window.start, window.end))
            edges = [start.start for start in starts if start is not None]
            return edges == [window.start, window.end]
        return whole in NESTS_IN.get(part, ())

    def canonical(self, name: str) -> Any:
        """Return a field in a form in which equal meanings are equal."""
        value = self[name]
        if name == "keep":
            value = {window.name: self.keep(window) for window in self.windows}
        elif name == "retention":
            value = {window.name: self.retention_ms(window) for window in self.windows}
        elif name in ("late_by", "tie_resolution"):
            value = duration_ms(value)
        elif name == "title":
            value = value or self.board
        elif name == "periods":
            value = sorted(value, key=lambda period: str(period["name"]))
        elif name in ("scopes", "feeds"):
            value = sorted(value)
        return value

    def may_become(self, new: Spec) -> bool:
        """Tell whether a living board may change from this definition to a new one."""
        for name in DEFAULTS:
            before, after = self.canonical(name), new.canonical(name)
            if name in MAY_CHANGE or before == after:
                continue
            if name in ("keep", "retention"):
                # The windows there were must keep theirs; added ones bring their own.
                if any(after.get(window) != kept for window, kept in before.items()):
                    return False
            elif name == "windows":
                if after[: len(before)] != before:
                    return False
            elif name not in MAY_GROW or any(item not in after for item in before):
                return False
        return True
