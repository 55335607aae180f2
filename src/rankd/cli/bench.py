"""`rankd bench`: how fast a server answers at a fixed rate."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group
from rich.text import Text

from rankd.cli.exits import ExitCode
from rankd.cli.options import UPKEEP_PANEL, Json, examples
from rankd.cli.output import answer, note, progress, table
from rankd.cli.texts import counted
from rankd.domain.duration import parse_duration
from rankd.domain.text import escaped

if TYPE_CHECKING:
    from rankd.bench import LoadReport
    from rankd.bench.report import Latencies

app = typer.Typer()

_COLUMNS = ("call", "sent", "answered", "errors", "p50 ms", "p95 ms", "p99 ms", "max ms")


@app.command(
    rich_help_panel=UPKEEP_PANEL,
    epilog=examples(
        "rankd bench --url http://127.0.0.1:8080 --board arcade --players 10000 --rate 5600 --writes 0.1",
        "rankd bench --url http://127.0.0.1:8080 --board arcade --rate 0 --writes 0 --mix rank=1 --json",
    ),
)
def bench(
    *,
    board: Annotated[str, typer.Option(metavar="BOARD", help="The board to read and write; players are added to it.")],
    url: Annotated[
        str | None,
        typer.Option(metavar="URL", help="The server. Also: RANKD_URL.", show_default=False),
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(
            metavar="TOKEN",
            help="A credential with scores:write. Safer: RANKD_TOKEN, which no process list shows.",
            show_default=False,
        ),
    ] = None,
    players: Annotated[int, typer.Option(help="How many players take part.")] = 1_000,
    rate: Annotated[
        float, typer.Option(help="Requests a second, sent on schedule; 0: as fast as answers come.")
    ] = 1_000.0,
    writes: Annotated[float, typer.Option(help="The share of scores among the requests, from 0 to 1.")] = 0.1,
    mix: Annotated[
        str, typer.Option(metavar="READ=WEIGHT,…", help="The weights of the reads.")
    ] = "rank=8,around=1,top=1",
    connections: Annotated[int, typer.Option(help="Each sends one request at a time.")] = 64,
    duration: Annotated[str, typer.Option(metavar="DURATION", help="How long, such as 10s or 5m.")] = "10s",
    even: Annotated[bool, typer.Option("--even", help="Send at even intervals, not at random ones.")] = False,
    keys: Annotated[bool, typer.Option("--keys", help="Give every score an Idempotency-Key.")] = False,
    prefix: Annotated[str, typer.Option(help="The prefix of the players' ids; eight digits follow.")] = "bench_",
    seed: Annotated[
        int | None, typer.Option(help="Repeat the requests and instants of another run.", show_default=False)
    ] = None,
    joining: Annotated[bool, typer.Option("--join/--no-join", help="Put the players on the board first.")] = True,
    as_json: Json = False,
) -> None:
    """Send requests at a fixed rate and show the latencies, counted from when each request was due.

    A server that stalls does not slow the requests down, so the stall shows in every request that was due meanwhile.
    Exit code 1 after any error. The scores it sends stay on the board.
    """
    from rankd import bench as load_generator  # noqa: PLC0415 - most commands do without
    from rankd.bench.load import Spacing, read_address, read_mix  # noqa: PLC0415

    address = url or os.environ.get("RANKD_URL")
    if not address:
        raise typer.BadParameter("give --url, the server's address, such as http://127.0.0.1:8080")
    load = load_generator.Load(
        address=read_address(address),
        token=token or os.environ.get("RANKD_TOKEN") or None,
        board=board,
        players=players,
        prefix=prefix,
        rate=rate,
        writes=writes,
        mix=read_mix(mix),
        spacing=Spacing.EVEN if even else Spacing.POISSON,
        connections=connections,
        duration_s=parse_duration("duration", duration, at_least_ms=1) / 1_000,
        has_keys=keys,
        seed=seed,
    )
    if joining:
        with progress("joining") as report_progress:
            load = load_generator.join(load, report_progress)
    with progress("asking") as report_progress:
        report = load_generator.generate(load, report_progress)
    answer(report, as_json, lambda: _pretty(report), lambda: _lines(report))
    for warning in report.warnings:
        note(f"warning: {warning}", "yellow")
    if report.errors:
        for name, body in report.first_errors.items():
            note(f"{name}: {escaped(body)}")
        raise typer.Exit(ExitCode.REFUSED)


def _rows(report: LoadReport) -> Iterator[tuple[str, int, int, int, Latencies]]:
    for name, kind in report.kinds.items():
        yield name, kind.sent, kind.answered, kind.errors, kind.latencies
    yield "all", report.sent, report.answered, sum(report.errors.values()), report.latencies


def _lines(report: LoadReport) -> Iterator[tuple[object, ...]]:
    yield tuple(column.replace(" ", "_") for column in _COLUMNS)
    for name, sent, answered, errors, took in _rows(report):
        yield name, sent, answered, errors, took.p50_ms, took.p95_ms, took.p99_ms, took.max_ms


def _pretty(report: LoadReport) -> Group:
    target = "as fast as answers came" if report.rate_asked is None else f"of {report.rate_asked:,.0f}/s asked for"
    shown = table(*_COLUMNS, right=_COLUMNS[1:], title=Text(f"{report.rate:,.0f} requests/s, {target}", "bold"))
    for name, sent, answered, errors, took in _rows(report):
        shown.add_row(
            name,
            f"{sent:,}",
            f"{answered:,}",
            Text(f"{errors:,}", "bold red" if errors else "dim"),
            *(_ms(value) for value in (took.p50_ms, took.p95_ms, took.p99_ms, took.max_ms)),
        )
    return Group(shown, *(Text(line, "dim") for line in _details(report)))


def _details(report: LoadReport) -> Iterator[str]:
    if report.rate_asked is not None:
        sending, late = report.after_sending, report.generator_late
        yield (
            f"from sending to answer: p50 {_ms(sending.p50_ms)} ms, p99 {_ms(sending.p99_ms)} ms; sent later than due, "
            f"by the generator's timer: p50 {_ms(late.p50_ms)} ms, p99 {_ms(late.p99_ms)} ms"
        )
        if report.waited_for_connection:
            yield f"{counted(report.waited_for_connection, 'request')} waited for a free connection"
    for name, number in report.errors.items():
        yield f"{name}: {number:,}"


def _ms(value: float | None) -> str:
    return "" if value is None else f"{value:,.2f}"
