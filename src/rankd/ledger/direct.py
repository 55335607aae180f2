"""The native way of events into the driver's own SQLite, where there is one.

Its module is built where SQLite's headers are, and loaded where the driver lets extensions in. Everywhere else the
driver does the same.
"""

from __future__ import annotations

from contextlib import suppress
from mmap import mmap
from typing import TYPE_CHECKING

import apsw

if TYPE_CHECKING:
    from rankd._appender import Appender

__all__ = ["Appender", "appender_of", "error_of"]
_ENTRY = "rankd_appender_init"


def appender_of(connection: apsw.Connection, insert: str, witness: mmap) -> Appender | None:
    """Prepare the statement that inserts one event; None where that is not possible.

    It is closed before the connection and the witness are, and used by one thread at a time with both.
    """
    try:
        from rankd import _appender  # noqa: PLC0415 (there may be none)
    except ImportError:
        return None
    with suppress(apsw.Error, AttributeError, ValueError):
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 1)
        try:
            connection.load_extension(_appender.__file__, _ENTRY)
        finally:
            connection.config(apsw.SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 0)
        return _appender.Appender(connection.sqlite3_pointer(), insert, witness)
    return None


def error_of(code: int, problem: str) -> Exception:
    """Return the driver's error for what an appender answered."""
    error = apsw.exception_for(code)
    error.args = (problem,)
    return error
