"""A player's course: where somebody stood at each midnight, and at the end of windows that are over.

recorded places (`seasons/history.py`) → points          closed windows that are in the ranks → finals
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from rankd.domain.board import Board
from rankd.domain.fields import read_integer
from rankd.domain.instance import InstanceKey
from rankd.domain.instant import AT_MS_END, check_at
from rankd.domain.order import Ranking, percentile, top_percent
from rankd.domain.player import check_player
from rankd.domain.resolve import resolve_window
from rankd.domain.scope import GLOBAL
from rankd.domain.window import Window
from rankd.errors import InvalidValue, WindowGone
from rankd.projection.state import BoardState
from rankd.reads.standings import Standings
from rankd.seasons.history import PlaceHistory

LIMIT_MAX = 1_000
LIMIT_DEFAULT = 366


class CourseSpan(NamedTuple):
    """From one instant to another, both inclusive."""

    since: int = 0
    until: int = AT_MS_END - 1


class CoursePoint(msgspec.Struct, frozen=True):
    """Where a player stood at an instant, in standing order."""

    at: int
    window: str
    rank: int
    score: int
    total: int


class CourseFinal(msgspec.Struct, frozen=True):
    """Where a player stood at the end of a window, in standing order."""

    window: str
    ends_at: int
    rank: int
    score: int
    total: int
    percentile: float
    top_percent: float


class Course(msgspec.Struct, frozen=True, kw_only=True):
    """A player's course in the instances of a window; `best` is the best of its points, the first of equal ones."""

    board: str
    player: str
    window: str  # a window, or one instance
    scope: str
    position: str
    as_of: int
    stale: bool
    points: list[CoursePoint]
    finals: list[CourseFinal]
    best: CoursePoint | None


class CourseReads(Standings):
    """Reads of courses; from any thread."""

    _places: PlaceHistory | None = None  # None: nothing is recorded in this process

    def course(
        self,
        board: str,
        player: str,
        *,
        window: str | None = None,
        scope: str | None = None,
        since: int = 0,
        until: int = AT_MS_END - 1,
        limit: int = LIMIT_DEFAULT,
    ) -> Course:
        """Return where a player stood from one instant to another, both inclusive.

        `window` names a window, for all its instances, or a single instance. `limit` is how many midnights are looked
        at, the newest; points are recorded in the global scope.
        """
        span = CourseSpan(check_at(since, "since"), check_at(until, "until"))
        if span.until < span.since:
            raise InvalidValue("until", "must not be before since")
        return self.course_in(board, player, span, window=window, scope=scope, limit=limit)

    def course_in(
        self,
        board: str,
        player: str,
        span: CourseSpan,
        *,
        window: str | None = None,
        scope: str | None = None,
        limit: int = LIMIT_DEFAULT,
    ) -> Course:
        """Return the same for a span that was checked."""
        check_player(player)
        count = read_integer("limit", limit, 1, LIMIT_MAX)
        if self._places is None:
            raise InvalidValue(
                "board", "has no courses where ranks are in Redis; ask a server with ranks.url = engine: on this ledger"
            )
        if isinstance(board, str):
            self._roll_over(board)
        definition, now = self.board(board), self._clock.now()
        named = definition.check_scope(GLOBAL if scope is None else scope)
        resolved, instance, _ = resolve_window(definition, window, now)
        is_whole = window is None or ":" not in window
        live = self._state.boards.get(definition.id)
        course = _Course(definition, live, player, resolved, None if is_whole else instance)
        points = self._points(course, span, count) if named == GLOBAL else []
        finals = self._finals(course, named, span, count)
        session = self._open(InstanceKey(definition.id, instance, named))
        return Course(
            board=definition.id,
            player=player,
            window=resolved.name if is_whole else instance,
            scope=named,
            position=session.position,
            as_of=now,
            stale=session.is_stale,
            points=points,
            finals=finals,
            best=min(points, key=lambda point: point.rank, default=None),
        )

    def _points(self, course: _Course, span: CourseSpan, files_max: int) -> list[CoursePoint]:
        board, live, places = course.board, course.live, self._places
        if live is None or places is None:
            return []
        windows = [name for name in places.instances(board.id, live.born) if course.has(name)]
        recorded = places.points(
            board.id, live.born, windows, course.player, since=span.since, until=span.until, files_max=files_max
        )
        return [
            CoursePoint(point.at, point.window, point.rank, board.shown_score(point.score, point.at), point.total)
            for point in recorded
        ]

    def _finals(self, course: _Course, scope: str, span: CourseSpan, windows_max: int) -> list[CourseFinal]:
        """Return the final standings in the newest windows that are over, from the ranks or from the archive."""
        board, live = course.board, course.live
        if live is None:
            return []
        over = filter(course.has, {*live.closed, *live.retired})
        ends = sorted((end, name) for name in over if (end := course.window.span(name).end) is not None)
        newest = [(end, name) for end, name in ends if span.since <= end <= span.until][-windows_max:]
        finals = []
        for end, name in newest:
            try:
                ref = self.resolve_now(board.id, name, scope, Ranking.ORDINAL)
                ranked = self._open_ref(ref).store.rank(ref.key, course.player, Ranking.ORDINAL)
            except WindowGone:
                continue  # it was pruned
            if ranked is not None:
                finals.append(
                    CourseFinal(
                        name,
                        end,
                        ranked.rank,
                        board.shown_score(ranked.score, end),
                        ranked.total,
                        percentile(ranked.better, ranked.total),
                        top_percent(ranked.better, ranked.total),
                    )
                )
        return finals


class _Course(NamedTuple):
    """Whose course is read, in which instances."""

    board: Board
    live: BoardState | None
    player: str
    window: Window
    instance: str | None  # None: all of the window

    def has(self, instance: str) -> bool:
        """Return whether it goes through an instance."""
        if self.instance is not None:
            return instance == self.instance
        return instance == self.window.name or instance.partition(":")[0] == self.window.name
