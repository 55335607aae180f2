"""The driver: which step comes next, chosen by chance with the oracle's state in view."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from . import reads
from .oracle import Life, Oracle, Row
from .oracle_board import Spec
from .oracle_calendar import Instance, Window, changes
from .random_boards import COUNTRIES, DAY_MS, GUILDS, LEVELS, BoardMaker
from .steps import (
    Advance,
    Define,
    Delete,
    Remove,
    Reset,
    Restart,
    SetBack,
    SetFriends,
    SetProfile,
    Step,
    Submit,
    SubmitMany,
    TakeSnapshot,
    Verify,
)

BOARDS = ["arcade", "xp", "guilds"]
PLAYERS = ["ann", "Ann", "bob", "ann2", "Zoë", "ö", "~", "cat", "日本", "dan", "e" * 128, "f", "x'/%?"]
HOUR_MS = 3_600_000
HORIZON = int(datetime(2037, 1, 1, tzinfo=UTC).timestamp()) * 1000
BEGINNINGS = [
    "2010-03-04T12:00",  # Casey puts its clock back over midnight
    "2010-11-06T20:00",  # Newfoundland does so at one minute past midnight
    "2011-12-29T08:00",  # Samoa skips a day
    "2015-08-14T12:00",  # Pyongyang goes back by half an hour
    "2018-02-17T20:00",  # São Paulo goes back at midnight
    "2020-12-31T22:00",  # week 53
    "2023-03-25T20:00",  # spring in Europe and in Greenland
    "2026-04-04T14:00",  # autumn in Lord Howe and Chatham
    "2026-05-04T09:00",
    "2026-12-31T12:00",  # week 53
    "2028-02-28T12:00",  # a leap day comes
]
NONSENSE = [
    "",
    "weekly:2026-W54",
    "daily:2026-02-30",
    "Weekly",
    "period:",
    "all_time:previous",
    "yearly:20",
    "raid:soon",
]
UNDECLARED = ["cup", "period:cup", "fortnightly"]


class Driver:
    """Chooses steps; everything it does follows from one seed."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.maker = BoardMaker(rng)
        self.keys = 0
        self.forms: dict[str, str] = {}  # of requests with a key

    def beginning(self) -> int:
        moment = datetime.fromisoformat(self.rng.choice(BEGINNINGS)).replace(tzinfo=UTC)
        return int(moment.timestamp()) * 1000 + self.rng.randrange(0, 8 * HOUR_MS)

    def scope_values_max(self) -> int:
        return self.rng.choice([2, 10_000, 10_000, 10_000])

    def next(self, oracle: Oracle) -> Step:
        """Return a step that makes sense as things stand, or is refused in an interesting way."""
        if not oracle.boards:
            return self._define(oracle)
        makers = {
            self._submit: 30,
            self._submit_many: 12,
            self._import: 5,
            self._advance: 14,
            self._look: 60,
            self._remove: 3,
            self._reset: 3,
            self._define: 3,
            self._change: 6,
            self._profile: 4,
            self._friends: 1,
            self._set_back: 1,
            self._snapshot: 1,
            self._restart: 2,
            self._verify: 1,
            self._delete: 1,
            self._repeat: 3,
        }
        (make,) = self.rng.choices(list(makers), list(makers.values()))
        return make(oracle)

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def _board(self, oracle: Oracle) -> str:
        return self.rng.choice(BOARDS) if self.chance(0.02) else self.rng.choice(list(oracle.boards))

    def _spec(self, oracle: Oracle, board: str) -> Spec:
        return oracle.boards[board].spec if board in oracle.boards else Spec(board, {})

    # What is written

    def _define(self, oracle: Oracle) -> Step:
        absent = [board for board in BOARDS if board not in oracle.boards]
        if not absent:
            return self._change(oracle)
        board = self.rng.choice(absent)
        return Define(board, self.maker.definition(board, oracle))

    def _change(self, oracle: Oracle) -> Step:
        board = self.rng.choice(list(oracle.boards))
        return Define(board, self.maker.change(oracle.boards[board].spec, oracle))

    def _delete(self, oracle: Oracle) -> Step:
        return Delete(self._board(oracle))

    def _row(self, spec: Spec, oracle: Oracle, late_ms: int) -> Row:
        at = None
        if self.chance(0.4):
            back = self.rng.choice([0, 1, late_ms, self.rng.randint(0, late_ms), -self.rng.randint(0, 5_000)])
            at = oracle.now - back
        attributes: dict[str, Any] = {}
        for name, values in (("country", COUNTRIES), ("level", LEVELS), ("guild", GUILDS)):
            if self.chance(0.5):
                attributes[name] = self.rng.choice(values)
        if self.chance(0.01):
            attributes["guild"] = "."
        return Row(
            player=self.rng.choice(PLAYERS),
            score=self._score(spec),
            tiebreak=self.rng.choice([None, 0, 1, 2, 2**40 - 1]),
            at=at,
            attributes=attributes or None,
            metadata={"n": self.rng.randint(1, 99)} if self.chance(0.3) else None,
        )

    def _score(self, spec: Spec) -> int:
        low, high = spec["score_min"], spec["score_max"]
        wanted = self.rng.choice([self.rng.randint(-5, 30), self.rng.randint(1, 12), low, high, high // 2, low // 2])
        return int(max(low, min(high, wanted)))

    def _key(self) -> str | None:
        self.keys += 1
        return f"key-{self.keys}" if self.chance(0.2) else None

    def _submit(self, oracle: Oracle) -> Step:
        board = self._board(oracle)
        spec = self._spec(oracle, board)
        row = self._row(spec, oracle, spec.late_by_ms)
        if spec["open"] and self.chance(0.05):
            wrong = self.rng.choice(["score", "at", "future"])
            if wrong == "score" and spec["score_max"] < 2**60:
                row = Row(row.player, spec["score_max"] + 1)
            elif wrong == "at":
                row = Row(row.player, row.score, at=oracle.now - spec.late_by_ms - 1)
            else:
                row = Row(row.player, row.score, at=oracle.now + 5_001)
        return Submit(board, row, self._key())

    def _submit_many(self, oracle: Oracle) -> Step:
        board = self._board(oracle)
        spec = self._spec(oracle, board)
        rows = [self._row(spec, oracle, spec.late_by_ms) for _ in range(self.rng.randint(1, 12))]
        form = self.rng.choice(["dicts", "tuples", "columns"])
        if form == "tuples":
            rows = [Row(row.player, row.score) for row in rows]
        if form == "columns":
            rows = self._as_columns(rows, oracle.now)
        key = self._key()
        if key is not None:
            self.forms[key] = form
        return SubmitMany(board, tuple(rows), form, key)

    def _as_columns(self, rows: Sequence[Row], now: int) -> list[Row]:
        """Return rows that a request by column can say: an instant for all of them or for none."""
        timed, tied = self.chance(0.5), self.chance(0.5)
        return [
            Row(
                row.player,
                row.score,
                (row.tiebreak or 0) if tied else None,
                (now if row.at is None else row.at) if timed else None,
                row.attributes,
                row.metadata,
            )
            for row in rows
        ]

    def _import(self, oracle: Oracle) -> Step:
        board = self._board(oracle)
        back_ms = self.rng.choice([HOUR_MS, DAY_MS, 40 * DAY_MS, 800 * DAY_MS])
        rows = [self._row(self._spec(oracle, board), oracle, back_ms) for _ in range(self.rng.randint(1, 8))]
        return SubmitMany(board, tuple(rows), "dicts", self._key(), imported=True)

    def _repeat(self, oracle: Oracle) -> Step:
        if not oracle.keys:
            return self._submit(oracle)
        key = self.rng.choice(list(oracle.keys)[-6:])
        form, board, sent = oracle.keys[key][0]
        if self.chance(0.2):
            return Submit(board, Row("ann", 1, metadata={"another": "body"}), key)
        if form == "one":
            return Submit(board, sent, key)
        return SubmitMany(board, sent, self.forms.get(key, "dicts"), key, imported=self.chance(0.5))

    def _remove(self, oracle: Oracle) -> Step:
        return Remove(self._board(oracle), self.rng.choice(PLAYERS))

    def _reset(self, oracle: Oracle) -> Step:
        board = self._board(oracle)
        names = [window.name for window in self._spec(oracle, board).windows]
        return Reset(board, self.rng.choice([None, *names, *names, "cup"]))

    def _profile(self, _: Oracle) -> Step:
        profile: dict[str, Any] = {
            "name": self.rng.choice(["Annie", "Bob the Great", "Zoë"]),
            "avatar_url": self.rng.choice([None, "https://example.org/a.png"]),
            "country": self.rng.choice([None, "BR", "AR"]),
            "attributes": self.rng.choice([{}, {"level": "7"}, {"guild": "red"}, {"level": "1", "guild": "blue"}]),
        }
        return SetProfile(self.rng.choice(PLAYERS), profile)

    def _friends(self, _: Oracle) -> Step:
        player, *friends = self.rng.sample(PLAYERS, self.rng.randint(1, 6))
        return SetFriends(player, tuple(friends))

    # Time and restarts

    def _advance(self, oracle: Oracle) -> Step:
        rng = self.rng
        choices = [
            1,
            rng.randint(1, 5_000),
            rng.randint(1, HOUR_MS),
            rng.randint(1, DAY_MS),
            rng.randint(1, 8 * DAY_MS),
        ]
        ms = rng.choice(choices)
        if self.chance(0.4):
            ms = self._edge(oracle) - oracle.now
        elif self.chance(0.05):
            ms = rng.randint(1, 100 * DAY_MS)
        return Advance(max(0, min(ms, HORIZON - oracle.now)))

    def _edge(self, oracle: Oracle) -> int:
        """Return an instant at or beside which something ends: an instance, its lateness, its retention, a clock."""
        life = self.rng.choice(list(oracle.boards.values()))
        spec = life.spec
        window, instance = self.rng.choice(list(spec.instances(oracle.now).items()))
        if life.dirty and self.chance(0.4):
            window, instance = self.rng.choice(list(life.dirty.values()))
        edges = [instance.end, spec.final_at(instance), spec.gone_at(window, instance)]
        edges += [change.when * 1000 for change in changes(spec["time_zone"]) if change.when * 1000 > oracle.now][:1]
        ahead = [edge for edge in edges if edge is not None and oracle.now < edge < oracle.now + 200 * DAY_MS]
        return (self.rng.choice(ahead) if ahead else oracle.now) + self.rng.choice([-1, 0, 1, -2_000])

    def _set_back(self, oracle: Oracle) -> Step:
        ms = self.rng.choice([1, 5_000, HOUR_MS, 3 * DAY_MS])
        return SetBack(self.rng.randint(1, ms), self.rng.choice(list(oracle.boards)))

    def _snapshot(self, _: Oracle) -> Step:
        return TakeSnapshot()

    def _restart(self, _: Oracle) -> Step:
        return Restart(self.rng.choice(["newest", "older", "none"]))

    def _verify(self, _: Oracle) -> Step:
        return Verify()

    # What is read

    def _look(self, oracle: Oracle) -> Step:
        rng = self.rng
        board = self._board(oracle)
        about, standing = self._about(oracle, board)
        player = rng.choice(standing) if standing and self.chance(0.8) else rng.choice([*PLAYERS, *GUILDS, "nobody"])
        step: Step
        match rng.randint(0, 10):
            case 0:
                step = reads.ReadTop(*about, limit=rng.randint(1, 20), offset=rng.choice([0, 0, 3, 50]))
            case 1:
                step = reads.ReadAll(*about, limit=rng.randint(1, 5))
            case 2:
                first = rng.randint(1, 8)
                step = reads.ReadRange(*about, first=first, last=first + rng.randint(0, 9))
            case 3 | 4 | 5:
                step = reads.ReadPlayer(*about, player=player)
            case 6:
                step = reads.ReadAround(*about, player=player, above=rng.randint(0, 4), below=rng.randint(0, 4))
            case 7:
                named = tuple(rng.choices([*PLAYERS, *standing], k=rng.randint(1, 8)))
                step = reads.ReadPlayers(*about, players=named)
            case 10:
                named = tuple(rng.choices([*PLAYERS, *standing], k=rng.randint(1, 8)))
                step = reads.ReadFriends(*about, players=named if self.chance(0.5) else player)
            case 8:
                score = self._score(self._spec(oracle, board))
                step = reads.ReadScore(*about, score=score, tiebreak=rng.choice([0, 1, 2]))
            case _:
                step = reads.ReadDistribution(*about, buckets=rng.randint(1, 12))
        return step

    def _about(self, oracle: Oracle, board: str) -> tuple[reads.About, list[str]]:
        """Return the instance to read, mostly one in which somebody stands, and who does."""
        life = oracle.boards.get(board)
        if life is not None and life.dirty and life.scopes and self.chance(0.75):
            for _ in range(8):
                window, instance = self.rng.choice(list(life.dirty.values()))
                scope = self.rng.choice(sorted(life.scopes))
                standing = sorted(life.fold(window, instance, scope).standing)
                if standing:
                    return (board, self._named(life, window, instance, oracle.now), scope, self._ranking()), standing
        return (board, self._window(oracle, board), self._scope(oracle, board), self._ranking()), []

    def _named(self, life: Life, window: Window, instance: Instance, now: int) -> str | tuple[str, int]:
        if instance.start is None or window.kind == "period":
            return window.name
        is_current = life.spec.instance(window, now) == instance
        return window.name if is_current and self.chance(0.7) else (window.name, instance.start)

    def _ranking(self) -> str | None:
        return self.rng.choice([None, "ordinal", "competition", "dense"])

    def _window(self, oracle: Oracle, board: str) -> str | tuple[str, int] | None:
        rng = self.rng
        if self.chance(0.03):
            return rng.choice([*NONSENSE, *UNDECLARED])
        if board not in oracle.boards or self.chance(0.15):
            return None
        life = oracle.boards[board]
        window = rng.choice(life.spec.windows)
        if window.kind == "period" or self.chance(0.4):
            return window.name
        if self.chance(0.3):
            return f"{window.name}:previous"
        return window.name, max(0, oracle.now + rng.randint(-400, 400) * DAY_MS)

    def _scope(self, oracle: Oracle, board: str) -> str | None:
        if self.chance(0.5):
            return None
        spec = self._spec(oracle, board)
        named = [f"country:{value}" for value in COUNTRIES] + [f"level:{value}" for value in LEVELS]
        declared = [scope for scope in named if scope.partition(":")[0] in spec["scopes"]]
        return self.rng.choice(["global", *declared, *declared, self.rng.choice(named)])
