"""`rankd import` and `rankd export`: scores from a file, standings to a file."""

from __future__ import annotations

import os
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from rankd.cli import options
from rankd.cli.exits import ExitCode, UsageError
from rankd.cli.options import SCORES_PANEL, BoardId, ConfigFile, Data, Json, Token, Url, examples
from rankd.cli.output import answer, note, progress
from rankd.cli.target import Target
from rankd.cli.texts import counted
from rankd.config.checks import is_shared
from rankd.config.loading import data_folder
from rankd.config.masking import masked_url
from rankd.config.model import Config
from rankd.domain.text import escaped
from rankd.operations.transfer import ExportReport, Format, ImportReport, export_standings, import_scores
from rankd.operations.transfer.formats import STANDARD
from rankd.operations.transfer.importing import BATCH_EVENTS

BAD_LINES_SHOWN = 10
FormatOption = Annotated[
    Format | None,
    typer.Option("--format", help="By default taken from the file's ending.", show_default=False),
]

app = typer.Typer()


@app.command(
    "import",
    rich_help_panel=SCORES_PANEL,
    epilog=examples("rankd import arcade scores.csv", "zcat old.gz | rankd import arcade - --format ndjson"),
)
def import_file(
    *,
    board: BoardId,
    file: Annotated[str, typer.Argument(metavar="FILE", help="CSV, NDJSON, Parquet or Arrow; - is standard input.")],
    format_: FormatOption = None,
    skip_bad_lines: Annotated[
        bool, typer.Option("--skip-bad-lines", help="Skip bad lines; otherwise one refuses the whole file.")
    ] = False,
    again: Annotated[
        bool, typer.Option("--again", help="Count every line again, even if an earlier import has counted it.")
    ] = False,
    batch_events: Annotated[int, typer.Option(help="How many lines one request sends.")] = BATCH_EVENTS,
    data: Data = None,
    url: Url = None,
    token: Token = None,
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """Submit every line of a file to a board; repeated after an interruption, it resumes.

    Columns: player, score, and optionally at, tiebreak, metadata, attributes.country and so on. It checks every line
    before it submits the first one.
    """
    target = Target.of(data, url, token, config)
    destination = target.url or _place_of(target.config())
    with target.opened() as boards, progress("checking") as report_progress:
        report = import_scores(
            boards,
            board,
            file,
            None if format_ is None else format_.value,
            batch_events=batch_events,
            skip_bad_lines=skip_bad_lines,
            on_check=lambda done, total: report_progress(done, total, "checking, bytes"),
            on_progress=lambda done, total: report_progress(done, total, "importing, lines"),
            resume=not again,
            destination=destination,
        )
    answer(
        report,
        as_json,
        lambda: _import_text(report, board),
        lambda: [(report.lines, report.imported, report.repeated, report.skipped, report.bad_count)],
    )
    if not as_json:
        _note_bad_lines(report)
    if report.refused:
        raise typer.Exit(ExitCode.REFUSED)


def _import_text(report: ImportReport, board: str) -> RenderableType:
    if report.refused:
        bad = counted(report.bad_count, "bad line")
        return Text(f"Nothing was imported: {bad} of {report.lines:,}. --skip-bad-lines leaves them out.", "yellow")
    parts = [f"{counted(report.imported, 'score')} imported into {board}"]
    if report.repeated:
        parts.append(f"{report.repeated:,} had been before")
    if report.skipped:
        parts.append(f"{counted(report.skipped, 'bad line')} left out")
    return Group(Text.assemble(("✓ ", "green"), "; ".join(parts)))


def _note_bad_lines(report: ImportReport) -> None:
    for bad in report.bad[:BAD_LINES_SHOWN]:
        note(f"line {bad.number:,}: {escaped(bad.problem)}", "yellow")
    if report.bad_count > BAD_LINES_SHOWN:
        note(f"… and {report.bad_count - BAD_LINES_SHOWN:,} more; --json lists the first hundred", "yellow")


@app.command(
    "export",
    rich_help_panel=SCORES_PANEL,
    epilog=examples(
        "rankd export arcade standings.csv",
        "rankd export arcade brazil.ndjson --window weekly:previous --scope country:BR",
        "rankd export arcade - | head",
    ),
)
def export_file(
    *,
    board: BoardId,
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="Ends in .csv, .ndjson, .parquet or .arrow; - is standard output.")
    ],
    window: options.WindowOption = None,
    scope: options.ScopeOption = None,
    format_: FormatOption = None,
    data: Data = None,
    url: Url = None,
    token: Token = None,
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """Write the standings of a board to a file, first place first; the file is complete or absent."""
    is_streamed = file == STANDARD
    if is_streamed and as_json:
        raise UsageError("--json prints the report to standard output, where the standings go; leave one out")
    chosen = Format.CSV if format_ is None and is_streamed else format_
    with Target.of(data, url, token, config).opened() as boards, progress("exporting") as report_progress:
        report = export_standings(
            boards,
            board,
            file,
            window=window,
            scope=scope,
            format=None if chosen is None else chosen.value,
            on_progress=report_progress,
        )
    if not is_streamed:
        answer(
            report,
            as_json,
            lambda: Text.assemble(("✓ ", "green"), f"{_export_text(report)} written to {file}"),
            lambda: [(report.board, report.window, report.scope, report.players, report.position)],
        )
    if report.left_out:
        note(
            f"{counted(report.left_out, 'player')} below the board's exact_top left out: places there are estimates",
            "yellow",
        )


def _export_text(report: ExportReport) -> str:
    return f"{counted(report.players, 'player')} of {report.board}, {report.window}, {report.scope},"


def _place_of(config: Config) -> str:
    """Return a name of the installation, by which an interrupted import is recognised."""
    return masked_url(config.ledger.url) if is_shared(config) else os.path.realpath(data_folder(config))
