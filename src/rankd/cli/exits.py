"""Exit codes, and the error message of a command."""

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

TRACE_CHARACTERS_MAX = 100_000  # of a traceback
_mask = masking(characters_max=TRACE_CHARACTERS_MAX)


class ExitCode(IntEnum):
    """Every exit code of every command."""

    FINE = 0
    REFUSED = 1  # a value, a credential or the present state does not allow it, or the thing does not exist
    USAGE = 2  # the command line itself is wrong
    UNAVAILABLE = 3  # a server or a disk is unavailable: try again later
    LOCKED = 4  # another process uses the data folder
    DAMAGED = 5  # ranks, ledger or file are damaged
    INTERRUPTED = 130


class UsageError(typer.TyperException):
    """The command line is wrong; the message says what to write instead."""


# The first matching class decides.
_CODES: tuple[tuple[type[errors.RankdError], ExitCode], ...] = (
    (errors.FolderLocked, ExitCode.LOCKED),
    (errors.Unavailable, ExitCode.UNAVAILABLE),
    (errors.RateExceeded, ExitCode.UNAVAILABLE),
    (errors.SnapshotUnwritten, ExitCode.UNAVAILABLE),
    (errors.VerificationFailed, ExitCode.DAMAGED),
    (errors.LedgerUnreadable, ExitCode.DAMAGED),
    (errors.RanksNewer, ExitCode.DAMAGED),
    (errors.SnapshotUnreadable, ExitCode.DAMAGED),
    (errors.ArchiveDamaged, ExitCode.DAMAGED),
    (errors.EngineBroken, ExitCode.DAMAGED),
    (errors.ArchiveDamaged, ExitCode.DAMAGED),
)


def code_of(error: errors.RankdError) -> ExitCode:
    """Return the exit code of an error."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), ExitCode.REFUSED)


def is_debugging() -> bool:
    """Tell whether errors are shown with tracebacks."""
    return os.environ.get("RANKD_DEBUG", "") not in ("", "0")


def complain(problem: BaseException, message: str | None = None) -> None:
    """Print one sentence about an error to standard error, secrets masked."""
    if is_debugging():
        sys.stderr.write(escaped(_mask("".join(traceback.format_exception(problem))), kept="\n"))
    sentence = _mask(" ".join((message or str(problem)).split()))
    error_console().print(Text.assemble(("error: ", "bold red"), escaped(sentence)), soft_wrap=True)
