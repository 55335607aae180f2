"""Random definitions: every option in every company, and the changes that are allowed and refused."""

from __future__ import annotations

import random
from typing import Any

from .oracle import Oracle
from .oracle_board import NESTS_IN, Spec
from .oracle_calendar import Window

DAY_MS = 86_400_000
KINDS = ["all_time", "yearly", "monthly", "weekly", "daily", "hourly"]
CRONS = ["0 18 * * 5", "30 2 * * *", "0 0 1 * *", "*/20 * * * *", "0 */6 * * *", "15 1 * * 0", "7 0 */3 * *"]
ZONES = [
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "America/Sao_Paulo",
    "America/St_Johns",
    "America/Nuuk",
    "Africa/Cairo",
    "Asia/Kathmandu",
    "Asia/Pyongyang",
    "Australia/Lord_Howe",
    "Pacific/Chatham",
    "Pacific/Apia",
    "Antarctica/Casey",
]
DURATIONS = ["0s", "1ms", "500ms", "5m", "1h", "1d", "3d", "40d"]
COUNTRIES = ["BR", "AR", "日本", "x:y"]
LEVELS: list[str | int] = ["1", 7]
GUILDS = ["red", "blue", "Grün"]


class BoardMaker:
    """Makes definitions with one source of chance."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def definition(self, board: str, oracle: Oracle) -> dict[str, Any]:
        """Return a definition that is accepted while no other board is called the same."""
        rng = self.rng
        definition: dict[str, Any] = {
            "order": rng.choice(["desc", "asc"]),
            "ties": rng.choice(["earliest", "latest", "value", "player"]),
            "tie_resolution": rng.choice(["1s", "1ms", "10s", "1m", "6h"]),
            "ranking": rng.choice(["ordinal", "competition", "dense"]),
            "windows": rng.sample(KINDS, rng.randint(1, 4)),
            "time_zone": rng.choice(ZONES),
            "week_starts": rng.choice(["monday", "sunday"]),
            "late_by": rng.choice(DURATIONS[:-1]),
        }
        if self.chance(0.4):
            definition["windows"].insert(rng.randint(0, 1), {"name": "raid", "reset": rng.choice(CRONS)})
        if self.chance(0.5):
            definition["scopes"] = rng.sample(["country", "level"], rng.randint(1, 2))
            definition["global"] = self.chance(0.8)
            definition["scope_values_max"] = self.scope_values_max(oracle)
        if self.chance(0.5):
            definition["score_min"], definition["score_max"] = rng.choice([(-20, 40), (0, 30), (-(2**63), 2**63 - 1)])
        if self.chance(0.4):
            definition["periods"] = [self.period(Spec(board, definition), oracle.now, "p1")]
        definition["keep"] = self.keep(definition)
        self._maybe_special(definition)
        definition["retention"] = self.retention(definition)
        if self.chance(0.5) and not any(board in life.spec["feeds"] for life in oracle.boards.values()):
            definition["feeds"] = self.feeds(board, oracle)
        return {name: value for name, value in definition.items() if value is not None}

    def scope_values_max(self, oracle: Oracle) -> int | None:
        """Return a limit of the board's own, in runs where there are few values anyway."""
        return self.rng.choice([None, 1, 3, 100_000_000]) if oracle.scope_values_max < 10 else None

    def _maybe_special(self, definition: dict[str, Any]) -> None:
        if self.chance(0.2):
            by = self.rng.choice(["sum", "average", "best"])
            definition["team"] = {"attribute": "guild", "by": by}
            if definition["ties"] == "value" and by != "best":
                definition["ties"] = "earliest"
        elif self.chance(0.15):
            definition["decay"] = {"factor": self.rng.choice([0.9, 0.5, 0.999]), "every": self.rng.choice(["1d", "2h"])}
            low, high = self.rng.choice([(1, 1_000), (1, 2**40)])
            definition.update(order="desc", ties="player", score_min=low, score_max=high)
            definition["keep"] = self.rng.choice(["best", "latest", "first"])

    def keep(self, definition: dict[str, Any]) -> Any:
        """Return one rule for all windows, or one by window with roll-ups where a shorter window is declared."""
        rng = self.rng
        plain = ["best", "latest", "sum", "first"]
        if self.chance(0.4):
            return rng.choice(plain)
        names = [item if isinstance(item, str) else item["name"] for item in definition["windows"]]
        rules = {name: rng.choice(plain) for name in names if self.chance(0.9)}
        for part, wholes in NESTS_IN.items():
            for whole in wholes:
                part_is_plain = not rules.get(part, "best").startswith("sum_of_")
                whole_is_no_part = not any(rule == f"sum_of_{whole}" for rule in rules.values())
                if part in names and whole in names and part_is_plain and whole_is_no_part and self.chance(0.6):
                    rules[whole] = f"sum_of_{part}"
        for period in definition.get("periods", []):
            if "daily" in names and not rules.get("daily", "best").startswith("sum_of_") and self.chance(0.5):
                rules[f"period:{period['name']}"] = "sum_of_daily"
            elif self.chance(0.5):
                rules["period"] = rng.choice(plain)
        return rules

    def retention(self, definition: dict[str, Any]) -> Any:
        if self.chance(0.5):
            return None
        if self.chance(0.5):
            return self.rng.choice(DURATIONS)
        names = [item if isinstance(item, str) else item["name"] for item in definition["windows"]]
        return {name: self.rng.choice(DURATIONS) for name in names if name != "all_time" and self.chance(0.6)}

    def period(self, spec: Spec, now: int, name: str) -> dict[str, Any]:
        """Return a period that is over, lasts or is to come, whose edges are local midnights."""
        day = Window("daily", "daily")
        first = spec.instance(day, now + self.rng.choice([-40, -3, -1, 0, 0, 1]) * DAY_MS)
        last = spec.instance(day, now + self.rng.choice([-2, 0, 0, 1, 3, 30]) * DAY_MS)
        assert first is not None
        assert last is not None
        if first.start == first.end or not (first.start or 0) < (last.end or 0):
            last = first
        return {"name": name, "start": first.start, "end": last.end}

    def feeds(self, board: str, oracle: Oracle) -> list[str]:
        ends = [name for name, life in oracle.boards.items() if not life.spec["feeds"] and name != board]
        return self.rng.sample(ends, min(len(ends), self.rng.randint(0, 2)))

    def change(self, spec: Spec, oracle: Oracle) -> dict[str, Any]:
        """Return the definition with one thing changed: allowed, the same again, in conflict or nonsense."""
        rng = self.rng
        new = dict(spec.given)
        names = [window.name for window in spec.windows]
        if not spec["open"] and self.chance(0.5):
            return {**new, "open": True}
        match rng.randint(0, 15):
            case 0:
                new["open"] = not spec["open"]
            case 1:
                new["late_by"] = rng.choice(DURATIONS)
            case 2:
                new["retention"] = self.retention(new)
            case 3 if spec["decay"]:
                new["score_max"] = rng.choice([100, 1_000, 2**40])
            case 3:
                new["score_min"], new["score_max"] = rng.choice(
                    [(-20, 40), (0, 30), (-10, 10), (-(2**53) + 1, 2**53 - 1)]
                )
            case 4:
                new["ranking"] = rng.choice(["ordinal", "competition", "dense"])
            case 5 if absent := [kind for kind in KINDS if kind not in names]:
                new["windows"] = [*spec["windows"], rng.choice(absent)]
            case 6 if "raid" not in names:
                new["windows"] = [*spec["windows"], {"name": "raid", "reset": rng.choice(CRONS)}]
            case 7:
                new["periods"] = [*spec["periods"], self.period(spec, oracle.now, f"p{len(spec['periods']) + 1}")]
            case 8:
                new["scopes"] = sorted({*spec["scopes"], rng.choice(["country", "level"])})
            case 9:
                new["feeds"] = sorted({*spec["feeds"], *self.feeds(spec.board, oracle)})
            case 10:
                new["title"] = rng.choice(["Arcade", "Ärcade"])
            case 11:
                new.update([rng.choice(list(self._turned(spec).items()))])
            case 13 if spec["scopes"]:
                new["scope_values_max"] = self.scope_values_max(oracle)
            case 12:
                new["feeds"] = [*spec["feeds"], rng.choice([spec.board, "nobody", *oracle.boards])]
        return new

    def _turned(self, spec: Spec) -> dict[str, Any]:
        """Return, for each field that must stay, something else."""
        return {
            "order": "asc" if spec["order"] == "desc" else "desc",
            "ties": "latest" if spec["ties"] != "latest" else "earliest",
            "time_zone": "Asia/Tokyo",
            "windows": ["all_time"] if len(spec["windows"]) > 1 else ["daily", "weekly"],
            "tie_resolution": "7s",
            "keep": "latest" if spec["keep"] != "latest" else "first",
            "week_starts": "sunday" if spec["week_starts"] == "monday" else "monday",
        }
