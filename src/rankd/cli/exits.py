"""What a command ends with, and how it says why."""

from __future__ import annotations

import os
import sys
import traceback
from enum import IntEnum

import typer
from rich.text import Text

from rankd import errors
from rankd.cli.output import error_console
from rankd.config.masking import masking
from rankd.domain.text import escaped

TRACE_CHARACTERS_MAX = 100_000  # of a trace that is shown
_mask = masking(characters_max=TRACE_CHARACTERS_MAX)


class ExitCode(IntEnum):
    """Every exit code of every command."""

    FINE = 0
    REFUSED = 1  # a value, a credential or what is there does not allow it, or it is not there
    USAGE = 2  # the command line itself is wrong
    UNAVAILABLE = 3  # a server or a disk does not answer at present: try again later
    LOCKED = 4  # another process uses the data folder
    DAMAGED = 5  # ranks, ledger or file are not what they should be
    INTERRUPTED = 130


class Misused(typer.TyperException):
    """The command line cannot be meant as it is; the message says what to write instead."""


# The first class that fits decides.
_CODES: tuple[tuple[type[errors.RankdError], ExitCode], ...] = (
    (errors.FolderLocked, ExitCode.LOCKED),
    (errors.Unavailable, ExitCode.UNAVAILABLE),
    (errors.RateExceeded, ExitCode.UNAVAILABLE),
    (errors.SnapshotUnwritten, ExitCode.UNAVAILABLE),
    (errors.VerificationFailed, ExitCode.DAMAGED),
    (errors.LedgerUnreadable, ExitCode.DAMAGED),
    (errors.RanksNewer, ExitCode.DAMAGED),
    (errors.SnapshotUnreadable, ExitCode.DAMAGED),
    (errors.EngineBroken, ExitCode.DAMAGED),
)


def code_of(error: errors.RankdError) -> ExitCode:
    """Return the exit code of an error."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), ExitCode.REFUSED)


def is_debugging() -> bool:
    """Tell whether errors are shown with where they came from."""
    return os.environ.get("RANKD_DEBUG", "") not in ("", "0")


def complain(problem: BaseException, said: str | None = None) -> None:
    """Say in one sentence on standard error what went wrong, secrets masked."""
    if is_debugging():
        sys.stderr.write(escaped(_mask("".join(traceback.format_exception(problem))), kept="\n"))
    sentence = _mask(" ".join((said or str(problem)).split()))
    error_console().print(Text.assemble(("error: ", "bold red"), escaped(sentence)), soft_wrap=True)
