"""Reads as steps: each asks the library and counts the same from the oracle's table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .oracle import Life, Oracle
from .oracle_calendar import Instance, Window
from .oracle_table import Line, Table
from .steps import Step, World

Named = tuple[str, int]  # a window and an instant within the instance that is meant
QUANTILES = ("0.01", "0.1", "0.25", "0.5", "0.75", "0.9", "0.99")
About = tuple[str, str | Named | None, str | None, str | None]  # board, window, scope, ranking


@dataclass(frozen=True)
class Sight:
    """The instance a read is about, as the oracle sees it."""

    oracle: Oracle
    life: Life
    window: Window
    instance: Instance
    scope: str
    ranking: str
    table: Table

    @property
    def frame(self) -> tuple[Any, ...]:
        """What every answer says of the instance."""
        return self.life.spec.board, self.instance.name, self.scope, self.table.total, True, False

    def shown(self, line: Line) -> tuple[Any, ...]:
        profile = self.oracle.profiles.get(line.player, {})
        about = [profile.get(name) for name in ("name", "avatar_url", "country")]
        return line.rank, line.player, line.score, line.reached_at, line.tiebreak, line.metadata, *about

    def standing(self, place: int) -> tuple[Any, ...]:
        line = self.table.line(place, self.ranking)
        change = self.oracle.rank_change((self.life, self.window, self.instance), self.scope, self.table, line.player)
        return *self.shown(line), self.table.percentile(place), self.table.top_percent(place), change

    def lines(self, first: int, last: int) -> list[tuple[Any, ...]]:
        return [self.shown(line) for line in self.table.range(first, last, self.ranking)]


def frame_of(answer: Any) -> tuple[Any, ...]:
    return answer.board, answer.window, answer.scope, answer.total, answer.exact, answer.stale


def line_of(entry: Any) -> tuple[Any, ...]:
    about = entry.name, entry.avatar_url, entry.country
    return entry.rank, entry.player, entry.score, entry.reached_at, entry.tiebreak, entry.metadata, *about


def standing_of(answer: Any) -> tuple[Any, ...]:
    return *line_of(answer), answer.percentile, answer.top_percent, answer.rank_change


@dataclass(frozen=True)
class ReadStep(Step):
    """A read of one instance: `window` as it is written, or a window and an instant to name it in full."""

    board: str
    window: str | Named | None
    scope: str | None
    ranking: str | None

    def do(self, world: World) -> None:
        world.same(lambda: self.said(world, self._options(world)), lambda: self.expected(self._sight(world.oracle)))

    def said(self, world: World, options: dict[str, Any]) -> Any:
        raise NotImplementedError

    def expected(self, sight: Sight) -> Any:
        raise NotImplementedError

    def _options(self, world: World) -> dict[str, Any]:
        window = self.window
        if isinstance(window, tuple):
            spec = world.oracle.boards[self.board].spec
            instance = spec.instance(spec.window(window[0]), window[1])
            window = None if instance is None else instance.name
        return {"window": window, "scope": self.scope, "ranking": self.ranking}

    def _sight(self, oracle: Oracle) -> Sight:
        if isinstance(self.window, tuple):
            window = oracle.life(self.board).spec.window(self.window[0])
            instance_ref = oracle.resolve_at(self.board, window, self.window[1])
        else:
            instance_ref = oracle.resolve(self.board, self.window)
        ranking = self.ranking or instance_ref[0].spec["ranking"]
        return Sight(oracle, *instance_ref, self.scope or "global", ranking, oracle.table(*instance_ref, self.scope))


@dataclass(frozen=True)
class ReadTop(ReadStep):
    limit: int
    offset: int

    def said(self, world: World, options: dict[str, Any]) -> Any:
        page = world.boards.top(self.board, self.limit, offset=self.offset, **options)
        return frame_of(page), [line_of(entry) for entry in page.entries]

    def expected(self, sight: Sight) -> Any:
        return sight.frame, sight.lines(self.offset + 1, self.offset + self.limit)


@dataclass(frozen=True)
class ReadAll(ReadStep):
    """Go through all pages by cursor."""

    limit: int

    def said(self, world: World, options: dict[str, Any]) -> Any:
        page = world.boards.top(self.board, self.limit, **options)
        entries = list(page.entries)
        while page.next is not None:
            page = world.boards.top(self.board, self.limit, cursor=page.next, **options)
            entries += page.entries
        return frame_of(page), [line_of(entry) for entry in entries]

    def expected(self, sight: Sight) -> Any:
        return sight.frame, sight.lines(1, sight.table.total)


@dataclass(frozen=True)
class ReadRange(ReadStep):
    first: int
    last: int

    def said(self, world: World, options: dict[str, Any]) -> Any:
        page = world.boards.range(self.board, self.first, self.last, **options)
        return frame_of(page), [line_of(entry) for entry in page.entries]

    def expected(self, sight: Sight) -> Any:
        return sight.frame, sight.lines(self.first, self.last)


@dataclass(frozen=True)
class ReadPlayer(ReadStep):
    player: str

    def said(self, world: World, options: dict[str, Any]) -> Any:
        answer = world.boards.rank(self.board, self.player, **options)
        return answer and (frame_of(answer), standing_of(answer))

    def expected(self, sight: Sight) -> Any:
        place = sight.table.place(self.player)
        return place and (sight.frame, sight.standing(place))


@dataclass(frozen=True)
class ReadAround(ReadStep):
    player: str
    above: int
    below: int

    def said(self, world: World, options: dict[str, Any]) -> Any:
        answer = world.boards.around(self.board, self.player, above=self.above, below=self.below, **options)
        if answer is None:
            return None
        above, below = ([line_of(entry) for entry in part] for part in (answer.above, answer.below))
        return frame_of(answer), above, line_of(answer.player), below

    def expected(self, sight: Sight) -> Any:
        place = sight.table.place(self.player)
        if place is None:
            return None
        above, below = sight.lines(max(1, place - self.above), place - 1), sight.lines(place + 1, place + self.below)
        return sight.frame, above, sight.lines(place, place)[0], below


@dataclass(frozen=True)
class ReadPlayers(ReadStep):
    players: tuple[str, ...]

    def said(self, world: World, options: dict[str, Any]) -> Any:
        answer = world.boards.ranks(self.board, list(self.players), **options)
        return frame_of(answer), [line_of(entry) for entry in answer.entries], list(answer.missing)

    def expected(self, sight: Sight) -> Any:
        once = list(dict.fromkeys(self.players))
        places = [sight.table.place(player) for player in once]
        lines = [sight.lines(place, place)[0] for place in places if place is not None]
        return sight.frame, lines, [player for player, place in zip(once, places, strict=True) if place is None]


@dataclass(frozen=True)
class ReadFriends(ReadStep):
    """A group's own board: of the players named, or of a player's stored friends and themselves."""

    players: tuple[str, ...] | str

    def said(self, world: World, options: dict[str, Any]) -> Any:
        if isinstance(self.players, str):
            answer = world.boards.friends_of(self.board, self.players, **options)
        else:
            answer = world.boards.friends(self.board, list(self.players), **options)
        return frame_of(answer), [(*line_of(entry), entry.global_rank) for entry in answer.entries]

    def expected(self, sight: Sight) -> Any:
        group = sight.table.group(self._players(sight.oracle))
        lines = []
        for line in group.range(1, group.total, sight.ranking):
            place = sight.table.place(line.player)
            assert place is not None
            lines.append((*sight.shown(line), sight.table.rank_at(place, sight.ranking)))
        return sight.frame, lines

    def _players(self, oracle: Oracle) -> Sequence[str]:
        if isinstance(self.players, str):
            return [self.players, *oracle.friends.get(self.players, [])]
        return self.players


@dataclass(frozen=True)
class ReadScore(ReadStep):
    score: int
    tiebreak: int

    def said(self, world: World, options: dict[str, Any]) -> Any:
        place = world.boards.rank_of_score(self.board, self.score, tiebreak=self.tiebreak, **options)
        return frame_of(place), place.rank

    def expected(self, sight: Sight) -> Any:
        return sight.frame, sight.table.rank_of_score(self.score, self.tiebreak, sight.ranking, sight.oracle.at)


@dataclass(frozen=True)
class ReadDistribution(ReadStep):
    buckets: int

    def said(self, world: World, options: dict[str, Any]) -> Any:
        options.pop("ranking")
        answer = world.boards.distribution(self.board, buckets=self.buckets, **options)
        buckets = [(bucket.low, bucket.high, bucket.count) for bucket in answer.buckets]
        if world.oracle.boards[self.board].spec["decay"]:
            return frame_of(answer), sum(count for _, _, count in buckets)
        return frame_of(answer), buckets, answer.quantiles

    def expected(self, sight: Sight) -> Any:
        table = sight.table
        if sight.life.spec["decay"]:
            return sight.frame, table.total
        return sight.frame, table.buckets(self.buckets), {q: table.quantile(q) for q in QUANTILES if table.total}
