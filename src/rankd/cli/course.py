"""`rankd course`: where a player stood, drawn in the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from rankd.cli import options
from rankd.cli.options import SCORES_PANEL, BoardId, ConfigFile, Data, Json, PlayerId, Token, Url, examples
from rankd.cli.output import answer, table
from rankd.cli.scores import instant_of
from rankd.cli.standings import BoardFormat
from rankd.cli.target import Target
from rankd.cli.texts import counted, share_text, utc_text
from rankd.domain.instant import AT_MS_END
from rankd.domain.text import escaped
from rankd.reads.course import LIMIT_DEFAULT, Course, CourseFinal, CoursePoint

app = typer.Typer()
HEIGHT = 9  # lines of the picture
WIDTH_MAX = 72  # its columns
LISTED_MAX = 10  # points in the table, the newest

WhenOption = Annotated[
    str | None, typer.Option(metavar="TIME", help="ms since 1970, or 2026-05-04T12:00:00Z.", show_default=False)
]


@app.command(
    rich_help_panel=SCORES_PANEL,
    epilog=examples(
        "rankd course arcade alice", "rankd course arcade alice --window weekly --since 2026-05-01T00:00:00Z"
    ),
)
def course(
    *,
    board: BoardId,
    player: PlayerId,
    window: Annotated[
        str | None,
        typer.Option(
            metavar="WINDOW",
            help="Such as weekly, for all weeks, or weekly:2026-W18; by default the board's first.",
            show_default=False,
        ),
    ] = None,
    scope: options.ScopeOption = None,
    since: WhenOption = None,
    until: WhenOption = None,
    limit: Annotated[int, typer.Option(help="How many midnights or hours, the newest; at most 1000.")] = LIMIT_DEFAULT,
    data: Data = None,
    url: Url = None,
    token: Token = None,
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """Draw where a player stood at each midnight or hour, and at the end of closed windows."""
    with Target.of(data, url, token, config).opened() as boards:
        taken = boards.course(
            board,
            player,
            window=window,
            scope=scope,
            since=0 if since is None else instant_of("--since", since),
            until=AT_MS_END - 1 if until is None else instant_of("--until", until),
            limit=limit,
        )
        answer(
            taken,
            as_json,
            lambda: course_picture(taken, BoardFormat.of(board, boards.definition(board))),
            lambda: course_lines(taken),
        )


def course_lines(taken: Course) -> Iterator[Sequence[object]]:
    """Return a course as lines: point or final, time, window, rank, score, total; of finals also their shares."""
    for point in taken.points:
        yield ("point", utc_text(point.at), point.window, point.rank, point.score, point.total)
    for final in taken.finals:
        shares = (final.percentile, final.top_percent)
        yield ("final", utc_text(final.ends_at), final.window, final.rank, final.score, final.total, *shares)


def course_picture(taken: Course, board_format: BoardFormat) -> RenderableType:
    """Draw a course: the first place on top, the best one marked."""
    heading = Text.assemble(
        (escaped(board_format.title), "bold"), " · ", escaped(taken.window), " · ", (escaped(taken.player), "bold")
    )
    parts: list[RenderableType] = [heading]
    if taken.points:
        parts += [_picture(taken, board_format), _points_table(taken.points[-LISTED_MAX:], board_format)]
    else:
        parts.append(Text("Nothing is recorded: the board's history says what is.", "dim"))
    if taken.finals:
        parts.append(_finals_table(taken.finals, board_format))
    return Group(*parts)


def _picture(taken: Course, board_format: BoardFormat) -> Text:
    columns = _columns(taken.points, WIDTH_MAX)
    ranks = [point.rank for point in columns]
    best, worst = min(ranks), max(ranks)
    span = max(worst - best, 1)
    heights = [(rank - best) * (HEIGHT - 1) // span for rank in ranks]
    labels = {0: f"{best:,}", (0 if worst == best else HEIGHT - 1): f"{worst:,}"}
    width = max(len(label) for label in labels.values())
    marked = ranks.index(best)
    picture = Text()
    for line in range(1 if worst == best else HEIGHT):
        picture.append(f"{labels.get(line, ''):>{width}} ┤", "dim")
        for column, height in enumerate(heights):
            if height == line:
                picture.append("◆" if column == marked else "●", "bold yellow" if column == marked else "cyan")
            else:
                picture.append("│" if _is_between(heights, column, line) else " ", "cyan")
        picture.append("\n")
    first, last = (board_format.instant(point.at)[:16] for point in (columns[0], columns[-1]))
    gap = max(1, len(columns) - len(first) - len(last))
    picture.append(f"{' ' * width} └{'─' * len(columns)}\n{' ' * (width + 2)}{first}", "dim")
    if len(columns) > 1:
        picture.append(f"{' ' * gap}{last}", "dim")
    top = columns[marked]
    picture.append(f"\n{' ' * (width + 2)}◆ best: {best:,} of {counted(top.total, 'player')}", "yellow")
    return picture.append(f", {board_format.instant(top.at)[:16]}\n", "yellow")


def _columns(points: Sequence[CoursePoint], columns_max: int) -> list[CoursePoint]:
    """Return at most so many points: of each part of the course the best."""
    count = min(len(points), columns_max)
    parts = [points[len(points) * part // count : len(points) * (part + 1) // count] for part in range(count)]
    return [min(part, key=lambda point: point.rank) for part in parts]


def _is_between(heights: Sequence[int], column: int, line: int) -> bool:
    """Return whether the line from the column before passes here."""
    if column == 0:
        return False
    low, high = sorted((heights[column - 1], heights[column]))
    return low < line < high


def _points_table(points: Sequence[CoursePoint], board_format: BoardFormat) -> RenderableType:
    drawn = table("at", "window", "rank", "score", "players", right=("rank", "score", "players"))
    for point in reversed(points):
        score = board_format.score(point.score)
        drawn.add_row(
            board_format.instant(point.at), escaped(point.window), f"{point.rank:,}", score, f"{point.total:,}"
        )
    return drawn


def _finals_table(finals: Sequence[CourseFinal], board_format: BoardFormat) -> RenderableType:
    drawn = table("final", "rank", "score", "players", "among the top", right=("rank", "score", "players"))
    for final in reversed(finals):
        score = board_format.score(final.score)
        shares = share_text(final.top_percent)
        drawn.add_row(escaped(final.window), f"{final.rank:,}", score, f"{final.total:,}", shares)
    return drawn
