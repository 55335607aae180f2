"""The command `rankd` with its subcommands; every error is one sentence."""

from __future__ import annotations

import os
import sys
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from rankd import __version__
from rankd.cli import (
    archive,
    audit,
    backing_up,
    bench,
    boards,
    configuration,
    consuming,
    course,
    relaying,
    roles,
    scores,
    serve,
    tokens,
    transferring,
    upkeep,
)
from rankd.cli.exits import ExitCode, code_of, complain
from rankd.cli.options import BOARDS_PANEL, SERVER_PANEL, UPKEEP_PANEL, examples
from rankd.errors import RankdError


class Commands(TyperGroup):
    """The commands; every error becomes one sentence and an exit code."""

    def main(self, *args: Any, **extra: Any) -> NoReturn:
        """Run the command line and exit."""
        sys.exit(self._run(*args, **{**extra, "standalone_mode": False}))

    def invoke(self, ctx: typer.Context) -> Any:  # type: ignore[override]
        """Run the chosen command."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            # The reader has closed the pipe: the rest of the output is dropped, without an error.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(ExitCode.FINE) from None
        return result

    def _run(self, *args: Any, **extra: Any) -> int:
        try:
            result = super().main(*args, **extra)
        except (Exception, KeyboardInterrupt) as problem:
            return _explain(problem)
        return result if isinstance(result, int) else ExitCode.FINE


def _explain(problem: BaseException) -> int:
    """Print the error, and return the exit code."""
    match problem:
        case KeyboardInterrupt() | typer.Abort():
            return ExitCode.INTERRUPTED
        case typer.TyperException():
            _explain_usage(problem)
            return ExitCode.USAGE
        case RankdError():
            complain(problem)
            return code_of(problem)
        case OSError():
            complain(problem)
            return ExitCode.UNAVAILABLE
    complain(problem, f"{type(problem).__name__}: {problem}; this is a bug of rankd: RANKD_DEBUG=1 shows where it is")
    return ExitCode.REFUSED


def _explain_usage(problem: typer.TyperException) -> None:
    message = problem.format_message().replace("Value error, ", "")
    if message:  # empty after the help was shown
        context = getattr(problem, "ctx", None)
        more = "" if context is None else f" See {context.command_path} --help."
        complain(problem, (message if message.endswith((".", "?")) else f"{message}.") + more)


app = typer.Typer(
    name="rankd",
    cls=Commands,
    help="A real-time leaderboard with exact ranks: serve it, fill it, ask it.",
    epilog=examples("rankd boards put arcade --set keep=best", "rankd submit arcade alice 976", "rankd top arcade"),
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        sys.stdout.write(f"rankd {__version__}\n")
        raise typer.Exit


@app.callback()
def rankd(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    """Take the options of the program itself."""


app.add_typer(serve.app)
app.add_typer(tokens.app, name="token", rich_help_panel=SERVER_PANEL)
app.add_typer(
    configuration.app, name="config", help="Check the configuration, or show it.", rich_help_panel=SERVER_PANEL
)
app.add_typer(
    boards.app, name="boards", help="List, show, define, check and delete boards.", rich_help_panel=BOARDS_PANEL
)
app.add_typer(scores.app)
app.add_typer(course.app)
app.add_typer(transferring.app)
app.add_typer(upkeep.app)
app.add_typer(
    archive.app,
    name="archive",
    help="List, verify, fetch and prune archived windows.",
    rich_help_panel=UPKEEP_PANEL,
)
app.add_typer(backing_up.app)
app.add_typer(audit.app)
app.add_typer(roles.app)
app.add_typer(consuming.app)
app.add_typer(
    consuming.dlq, name="dlq", help="List, replay and drop records that were refused.", rich_help_panel=UPKEEP_PANEL
)
app.add_typer(relaying.app)
app.add_typer(bench.app)


def main() -> None:
    """Run the command line."""
    app(prog_name="rankd")


if __name__ == "__main__":
    main()
