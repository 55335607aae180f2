"""Print answers: a table on a terminal, tab-separated text in a pipe, JSON on request."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Protocol, TextIO

import msgspec
from rich import box
from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderableType, RenderHook, RenderResult
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from rankd.cli.texts import field
from rankd.domain.text import escaped, escaped_json


class _Escaped:
    """A drawing whose texts are escaped when it is rendered; the console's own control codes stay."""

    def __init__(self, drawn: ConsoleRenderable) -> None:
        self._drawn = drawn

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for segment in console.render(self._drawn, options):
            yield segment if segment.control else Segment(escaped(segment.text, kept="\n"), segment.style)


class _Escaping(RenderHook):
    """Escapes everything printed; table cells are escaped before too, so that columns do not shift."""

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        return [_Escaped(drawn) for drawn in renderables]


def console(file: TextIO | None = None) -> Console:
    """Return a console on standard output, or another file; it honours NO_COLOR, FORCE_COLOR and COLUMNS."""
    made = Console(file=file or sys.stdout, highlight=False, emoji=False, markup=False)
    made.push_render_hook(_Escaping())
    return made


def error_console() -> Console:
    """Return a console on standard error."""
    return console(sys.stderr)


def answer(
    value: object,
    as_json: bool,
    pretty: Callable[[], RenderableType],
    plain: Callable[[], Iterable[Sequence[object]]],
) -> None:
    """Print an answer as JSON, as a table or as lines."""
    out = console()
    if as_json:
        sys.stdout.write(escaped_json(msgspec.json.encode(value).decode()) + "\n")
    elif out.is_terminal:
        out.print(pretty())
    else:
        sys.stdout.writelines("\t".join(field(value) for value in row) + "\n" for row in plain())


def note(text: str, style: str = "dim") -> None:
    """Print a note to standard error."""
    error_console().print(Text(text, style), soft_wrap=True)


def table(*columns: str, right: Sequence[str] = (), whole: Sequence[str] = (), title: Text | None = None) -> Table:
    """Return an empty table; columns in `right` are numbers, columns in `whole` never wrap."""
    made = Table(
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
        title=title,
        title_justify="left",
        title_style="",
        header_style="dim",
    )
    for column in columns:
        is_number = column in right
        made.add_column(
            column,
            justify="right" if is_number else "left",
            overflow="fold",
            no_wrap=is_number or column in whole,
        )
    return made


class _Figures(ProgressColumn):
    """How many of how many, and the rate."""

    def render(self, task: Task) -> Text:
        """Draw the figures."""
        if task.total is None:
            return Text("")
        rate = f", {task.speed:,.0f}/s" if task.speed else ""
        return Text(f"{int(task.completed):,} of {int(task.total):,}{rate}", "dim")


class ProgressReporter(Protocol):
    """Reports the progress of long work."""

    def __call__(self, done: int, total: int, what: str | None = None) -> None:
        """`what` changes the description."""


@contextmanager
def progress(what: str) -> Iterator[ProgressReporter]:
    """Show a progress bar, on a terminal only."""
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=30),
        _Figures(),
        TimeRemainingColumn(),
        console=error_console(),
        transient=True,
        disable=not sys.stderr.isatty(),
    )
    with bar:
        task = bar.add_task(what, total=None)

        def report_progress(done: int, total: int, what: str | None = None) -> None:
            bar.update(task, completed=done, total=total, description=what)

        yield report_progress


def duration_text(seconds: float) -> str:
    """Return a duration.

    >>> duration_text(0.34), duration_text(75)
    ('0.3 s', '0:01:15')
    """
    return f"{seconds:.1f} s" if seconds < 60 else str(timedelta(seconds=round(seconds)))
