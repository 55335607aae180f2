"""A log in memory, and how random writers fill it."""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, NamedTuple

from rankd.domain.board import Board
from rankd.domain.definition import define_board
from rankd.domain.partition import partition_of
from rankd.ledger.event import AcceptanceContext, Context, Detail, EventKind, EventRun, control_run
from rankd.ledger.port import MARK, REPEATS_KNOWN_MS, Capabilities, Heads, LogColumns, Part

START = 1_777_896_000_000  # 2026-05-04T12:00:00Z
HOUR_MS = 3_600_000
NO_KEY = bytes(32)
READS_MAX = 100_000
PLAYERS = [f"player-{number}" for number in range(12)]


@dataclass(frozen=True)
class Place:
    """One record of a partition."""

    context: int  # MARK for a time mark
    time: int
    at: int
    player: str = ""
    score: int = 0
    tiebreak: int = 0
    detail: Detail | None = None
    is_sent: bool = False
    key: bytes = NO_KEY
    number: int = 0  # of a control event


@dataclass
class Log:
    """A ledger that appends what it is given; sequences have gaps where there is no record."""

    partitions: int
    contexts: list[Context | None] = field(default_factory=lambda: [None])
    places: list[dict[int, Place]] = field(default_factory=list)
    controls: list[tuple[int, Detail | None, int]] = field(default_factory=list)  # context, detail, at
    firsts: list[int] = field(default_factory=list)
    reads: int = 0
    capabilities = Capabilities(
        is_sole_writer=False, stores_answers=False, appends_conditionally=False, finds_history=False
    )
    cut: Callable[[int], int] = lambda count: count  # how many of so many records a part holds

    def __post_init__(self) -> None:
        self.places = [{} for _ in range(self.partitions)]
        self.firsts = [1] * self.partitions

    @property
    def port(self) -> Any:
        """Itself, as far as a follower needs a ledger."""
        return self

    def number_context(self, context: Context) -> int:
        if context not in self.contexts:
            self.contexts.append(context)
        return self.contexts.index(context)

    def context(self, number: int) -> Context:
        context = self.contexts[number]
        assert context is not None
        return context

    def append(self, partition: int, place: Place, gap: int = 0) -> None:
        places = self.places[partition]
        places[next(reversed(places), 0) + 1 + gap] = place

    def heads(self) -> Heads:
        heads = tuple(next(reversed(places), 0) for places in self.places)
        return Heads(heads, len(self.controls), START, firsts=tuple(self.firsts))

    def stamp(self, _positions: Sequence[int]) -> str:
        return "log"

    def read(self, after: Sequence[int], events_max: int, skipping: Collection[int] = ()) -> list[Part]:
        parts = []
        self.reads += 1
        assert self.reads < READS_MAX, f"a follower does not get on from {after}"
        for partition in range(self.partitions):
            if partition not in skipping:
                ahead = [item for item in self.places[partition].items() if item[0] > after[partition]]
                parts += self._parts(partition, ahead[: self.cut(min(events_max, len(ahead)))])
        return parts

    def _parts(self, partition: int, ahead: list[tuple[int, Place]]) -> list[Part]:
        parts = []
        while ahead:
            first, head = ahead[0]
            count = 1
            while (
                not head.number
                and count < len(ahead)
                and ahead[count][0] == first + count
                and not ahead[count][1].number
                and ahead[count][1].context == head.context
            ):
                count += 1
            count = max(1, self.cut(count))
            parts.append(self._part(partition, first, [place for _, place in ahead[:count]]))
            del ahead[:count]
        return parts

    def _part(self, partition: int, first: int, places: list[Place]) -> Part:
        times = array("q", [place.time for place in places])
        if places[0].number:
            context, detail, at = self.controls[places[0].number - 1]
            run = control_run(context, at, detail, first)
            run.partition = partition
            return Part(partition, run, None, LogColumns(times, None, None, places[0].number))
        details = [place.detail for place in places]
        run = EventRun(
            places[0].context,
            array("q", [place.at for place in places]),
            array("q", bytes(8 * len(places))),
            array("q", [place.score for place in places]),
            array("q", [place.tiebreak for place in places]),
            [place.player for place in places],
            details if any(details) else None,
            first,
            partition,
        )
        sent = bytes(place.is_sent for place in places)
        keys = b"".join(place.key for place in places)
        return Part(partition, run, None, LogColumns(times, sent if any(sent) else None, keys if any(keys) else None))


# ------------------------------------------------------------------------------------------------------------- writers

SOLO: dict[str, Any] = {
    "windows": ["all_time", "hourly"],
    "keep": "sum",
    "score_max": 1_000,
    "score_min": -50,
}
RAID = {"name": "raid", "reset": "* * * * *"}
GUILDS: dict[str, Any] = {
    "team": {"attribute": "guild", "by": "sum"},
    "keep": "latest",
    "ties": "latest",
    "tie_resolution": "1ms",
    "windows": ["all_time", "daily"],
}
HEROES: dict[str, Any] = {
    "team": {"attribute": "guild", "by": "best"},
    "keep": "latest",
    "ties": "value",
    "score_min": 0,
    "score_max": 700,
}
MEANS: dict[str, Any] = {
    "team": {"attribute": "guild", "by": "average"},
    "ties": "earliest",
    "tie_resolution": "1ms",
    "score_min": -5_000,
    "score_max": 2_000,
}
ARCADE: dict[str, Any] = {"keep": "best", "scopes": ["country"], "time_zone": "Europe/Berlin", "windows": ["daily"]}
FED = {"guilds": GUILDS, "heroes": HEROES, "means": MEANS}


class Sent(NamedTuple):
    """A request as its client keeps it, to send it again."""

    board: str
    rows: tuple[tuple[str, int, int, dict[str, str], int | None], ...]  # player, score, tiebreak, attributes, at
    key: str | None

    @property
    def fingerprint(self) -> bytes:
        return blake2b(repr((self.board, self.rows)).encode(), digest_size=16).digest()


class Defined(NamedTuple):
    """The boards as of some control events, with the version of each."""

    boards: dict[str, Board]
    versions: dict[str, int]  # of deleted ones too


def after_control(defined: Defined, context: Context, detail: Detail | None) -> Defined:
    boards, versions = dict(defined.boards), dict(defined.versions)
    if context.kind is EventKind.DEFINE:
        assert detail is not None
        boards[context.board] = define_board(context.board, detail.definition)
        versions[context.board] = context.boards[context.board].version
    elif context.kind is EventKind.DELETE:
        del boards[context.board]
    return Defined(boards, versions)


def accepted(board: Board, version: int, at: int) -> AcceptanceContext:
    reading = board.read_clock(at)
    return AcceptanceContext(version, reading.utc_offset_s, reading.resets)


def reached_by(defined: Defined, board: Board) -> list[Board]:
    return [board, *(defined.boards[fed] for fed in board.feeds if defined.boards[fed].open)]


def context_under(defined: Defined, board: Board, at: int, kind: EventKind = EventKind.SCORE) -> Context:
    reached = reached_by(defined, board) if kind is EventKind.SCORE else [board]
    return Context(kind, board.id, "game", {each.id: accepted(each, defined.versions[each.id], at) for each in reached})


def detail_under(defined: Defined, board: Board, attributes: dict[str, str]) -> Detail | None:
    reached = reached_by(defined, board)
    names = {name for each in reached for name in (*each.scopes, *([each.team.attribute] if each.team else []))}
    used = {name: attributes[name] for name in sorted(names) if name in attributes}
    return Detail(used) if used else None


class Writers:
    """Random writers of one log: their clocks disagree, and so do the definitions they know."""

    def __init__(self, rng: random.Random, log: Log, writers: int = 3) -> None:
        self.rng = rng
        self.log = log
        self.now = START
        self._skews = [rng.choice([0, 1, -3, 40, 900, -900, -400_000]) for _ in range(writers)]
        self._defined = [Defined({}, {})]  # by the number of control events
        self._copied = [0] * log.partitions  # control events
        self._known = [0] * writers
        self._sent: list[Sent] = []

    def control(self, kind: EventKind, board: str, detail: Detail | None = None, *, everywhere: bool = False) -> None:
        """Append a control event; it reaches the partitions now or bit by bit."""
        defined = self._defined[-1]
        if kind is EventKind.DEFINE:
            assert detail is not None
            made, version = define_board(board, detail.definition), defined.versions.get(board, 0) + 1
        else:
            made, version = defined.boards[board], defined.versions[board]
        context = Context(kind, board, "admin", {board: accepted(made, version, self.now)})
        self.log.controls.append((self.log.number_context(context), detail, self.now))
        self._defined.append(after_control(defined, context, detail))
        if everywhere:
            for partition in range(self.log.partitions):
                while self._copied[partition] < len(self.log.controls):
                    self._copy(partition)

    def define(self, board: str, definition: dict[str, Any], *, everywhere: bool = False) -> None:
        self.control(EventKind.DEFINE, board, Detail(definition=definition), everywhere=everywhere)

    def step(self) -> None:
        """Do one thing or another."""
        rng = self.rng
        self.now += rng.choice([0, 0, 1, 5, 700, 60_000, HOUR_MS // 3] if rng.random() < 0.3 else [0, 1, 2])
        if rng.random() < 0.01:
            self.now += rng.choice([REPEATS_KNOWN_MS - HOUR_MS, REPEATS_KNOWN_MS])
        chance = rng.random()
        if chance < 0.45:
            self._request()
        elif chance < 0.62 and self._sent:
            self._send(rng.choice(self._sent[-8:]), is_half=rng.random() < 0.2)
        elif chance < 0.66 and self._sent:
            again = rng.choice(self._sent[-8:])
            rows = tuple((player, score + 1, *rest) for player, score, *rest in again.rows)
            self._send(again._replace(rows=rows))  # type: ignore[arg-type]
        elif chance < 0.76:
            self._advance_copies()
        elif chance < 0.80:
            self._change()
        elif chance < 0.84:
            self._remove()
        elif chance < 0.90:
            self.mark(rng.randrange(self.log.partitions), self.now)
        else:
            self._known[rng.randrange(len(self._known))] = min(self._copied)

    def finish(self) -> None:
        """Complete the copies, and let the time pass in every partition."""
        while min(self._copied) < len(self.log.controls):
            self._advance_copies()
        for partition in range(self.log.partitions):
            self.mark(partition, self.now + HOUR_MS)
        for partition in range(self.log.partitions):
            self.mark(partition, self.now + HOUR_MS + 1)

    def mark(self, partition: int, time: int) -> None:
        self.log.append(partition, Place(MARK, time, time))

    def _change(self) -> None:
        rng, boards = self.rng, self._defined[-1].boards
        feeding = [each.id for each in boards.values() if each.feeds]
        chance = rng.random()
        if chance < 0.15 and "solo" in boards:
            self.control(EventKind.DELETE, "solo")
        elif chance < 0.5:
            feeds = sorted({*(boards["arcade"].feeds if feeding else ()), rng.choice(list(FED))})
            scopes = sorted({*boards["arcade"].scopes, rng.choice(["country", "level"])})
            self.define(
                "arcade", {**ARCADE, "feeds": feeds, "scopes": scopes, "score_max": rng.choice([400, 1_000, 2_000])}
            )
        elif chance < 0.8:
            has_raid = rng.random() < 0.3 or ("solo" in boards and "raid" in boards["solo"].all_windows)
            windows = [*SOLO["windows"], RAID] if has_raid else SOLO["windows"]
            is_open = rng.random() < 0.7
            self.define("solo", {**SOLO, "score_max": rng.choice([300, 1_000]), "open": is_open, "windows": windows})
        else:
            fed = rng.choice(list(FED))
            self.define(fed, {**FED[fed], "open": rng.random() < 0.6})

    def _advance_copies(self) -> None:
        partition = self.rng.randrange(self.log.partitions)
        if self._copied[partition] < len(self.log.controls):
            self._copy(partition)
        elif self._copied[partition]:  # another process copies it again
            self._barrier(partition, self.rng.randint(1, self._copied[partition]))

    def _copy(self, partition: int) -> None:
        self._copied[partition] += 1
        self._barrier(partition, self._copied[partition])

    def _barrier(self, partition: int, number: int) -> None:
        context, _, at = self.log.controls[number - 1]
        gap = int(self.rng.random() < 0.05)
        self.log.append(partition, Place(context, self.now + self.rng.choice(self._skews), at, number=number), gap)

    def _request(self) -> None:
        rng = self.rng
        board = rng.choice(["solo", "arcade", "arcade", "guilds", "heroes"])
        rows = []
        for _ in range(rng.choice([1, 1, 2, 6])):
            attributes = {"country": rng.choice(["BR", "AR"]), "level": rng.choice("12")}
            if rng.random() < 0.9:
                attributes["guild"] = rng.choice(["red", "blue"])
            at = self.now - rng.choice([0, 1, 5_000, HOUR_MS]) if rng.random() < 0.2 else None
            rows.append((rng.choice(PLAYERS), rng.randint(0, 1_100), rng.randint(0, 3), attributes, at))
        key = f"key-{rng.randrange(10**9)}" if rng.random() < 0.7 else None
        self._sent.append(Sent(board, tuple(rows), key))
        self._send(self._sent[-1], is_half=rng.random() < 0.15)

    def _send(self, sent: Sent, *, is_half: bool = False) -> None:
        """Append a request as some writer accepts it, or a part of its events."""
        writer = self.rng.randrange(len(self._known))
        time = self.now + self._skews[writer]
        defined = self._defined[self._known[writer]]
        board = defined.boards.get(sent.board)
        if board is None or not board.open:
            return
        if not all(board.score_min <= row[1] <= board.score_max for row in sent.rows):
            return
        for index, (player, score, tiebreak, attributes, sent_at) in enumerate(sent.rows):
            if is_half and self.rng.random() < 0.5:
                continue
            at = time if sent_at is None else sent_at
            key = NO_KEY
            if sent.key is not None:
                key = blake2b(f"{sent.key}#{index}".encode(), digest_size=16).digest() + sent.fingerprint
            place = Place(
                self.log.number_context(context_under(defined, board, at)),
                time,
                at,
                player,
                score,
                tiebreak,
                detail_under(defined, board, attributes),
                sent_at is not None,
                key,
            )
            self.log.append(partition_of(player, self.log.partitions), place, gap=int(self.rng.random() < 0.02))

    def _remove(self) -> None:
        writer = self.rng.randrange(len(self._known))
        defined, time = self._defined[self._known[writer]], self.now + self._skews[writer]
        board = defined.boards.get(self.rng.choice(["solo", "arcade", "guilds"]))
        if board is not None:
            number = self.log.number_context(context_under(defined, board, time, EventKind.REMOVE))
            player = self.rng.choice(PLAYERS)
            self.log.append(partition_of(player, self.log.partitions), Place(number, time, time, player))


def written_log(rng: random.Random, steps: int) -> Log:
    """Return a log as random writers leave it."""
    log = Log(rng.randint(1, 4))
    writers = Writers(rng, log)
    for board, definition in {**FED, "solo": SOLO, "arcade": ARCADE}.items():
        writers.define(board, definition, everywhere=True)
    for _ in range(steps):
        writers.step()
    writers.finish()
    return log
