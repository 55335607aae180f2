"""Where answers go: a table on a terminal, tab-separated text in a pipe, JSON when it is asked for."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Protocol

import msgspec
from rich import box
from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from rankd.cli.texts import field


def console() -> Console:
    """Return standard output; NO_COLOR, FORCE_COLOR and COLUMNS are honoured."""
    return Console(file=sys.stdout, highlight=False, emoji=False, markup=False)


def error_console() -> Console:
    """Return standard error."""
    return Console(file=sys.stderr, highlight=False, emoji=False, markup=False)


def answer(
    value: object,
    as_json: bool,
    pretty: Callable[[], RenderableType],
    plain: Callable[[], Iterable[Sequence[object]]],
) -> None:
    """Show an answer in the form that fits who reads it."""
    out = console()
    if as_json:
        sys.stdout.write(msgspec.json.encode(value).decode() + "\n")
    elif out.is_terminal:
        out.print(pretty())
    else:
        sys.stdout.writelines("\t".join(field(one) for one in row) + "\n" for row in plain())


def note(text: str, style: str = "dim") -> None:
    """Say something beside the answer, on standard error."""
    error_console().print(Text(text, style), soft_wrap=True)


def table(*columns: str, right: Sequence[str] = (), whole: Sequence[str] = (), title: Text | None = None) -> Table:
    """Return an empty table; the columns named in `right` are numbers, and those in `whole` are never broken."""
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
    """How many of how many, and how many a second."""

    def render(self, task: Task) -> Text:
        """Draw them as far as they are known."""
        if task.total is None:
            return Text("")
        rate = f", {task.speed:,.0f}/s" if task.speed else ""
        return Text(f"{int(task.completed):,} of {int(task.total):,}{rate}", "dim")


class Told(Protocol):
    """What long work calls to say how far it is."""

    def __call__(self, done: int, total: int, what: str | None = None) -> None:
        """`what` is done from now on."""
        ...


@contextmanager
def progress(what: str) -> Iterator[Told]:
    """Show how far long work is, on a terminal and only there."""
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
        shown = bar.add_task(what, total=None)

        def told(done: int, total: int, what: str | None = None) -> None:
            bar.update(shown, completed=done, total=total, description=what)

        yield told


def duration_text(seconds: float) -> str:
    """Return how long something took.

    >>> duration_text(0.34), duration_text(75)
    ('0.3 s', '0:01:15')
    """
    return f"{seconds:.1f} s" if seconds < 60 else str(timedelta(seconds=round(seconds)))
