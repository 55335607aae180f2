"""Exports the standings of one instance to a file, page by page in standing order.

The cursor of a page holds the instance and the last entry, so that a board of any size can be exported under writes: a
player whose standing does not change meanwhile is exported exactly once.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import msgspec

from rankd.operations.transfer.formats import detect_format
from rankd.operations.transfer.port import Source
from rankd.operations.transfer.writing import open_writer

PAGE_ENTRIES = 1_000  # the largest page of a read

Progress = Callable[[int, int], None]  # done, all


class ExportReport(msgspec.Struct, frozen=True):
    """The result of an export."""

    board: str
    window: str  # the instance, such as weekly:2026-W18
    scope: str
    players: int
    position: str  # of the ledger, when the first page was read
    left_out: int = 0  # players below a board's exact_top, where places are estimates


def export_standings(
    source: Source,
    board: str,
    out: str | os.PathLike[str],
    *,
    window: str | None = None,
    scope: str | None = None,
    format: str | None = None,  # noqa: A002 - as the option is called
    on_progress: Progress | None = None,
) -> ExportReport:
    """Write the standings of a board's window and scope, first place first, to a file or, for `-`, standard output.

    The file is complete or absent. `on_progress` is called with (players written, all players).
    """
    named_format = detect_format(os.fspath(out), format)
    first = page = source.top(board, PAGE_ENTRIES, window=window, scope=scope)
    players = 0
    with open_writer(out, named_format) as writer:
        while True:
            writer.write(page.entries)
            players += len(page.entries)
            if on_progress is not None:
                on_progress(players, max(players, page.total))
            if page.next is None:
                break
            page = source.top(board, PAGE_ENTRIES, cursor=page.next)
    left_out = 0 if page.exact else max(0, page.total - players)
    return ExportReport(first.board, first.window, first.scope, players, first.position, left_out)
