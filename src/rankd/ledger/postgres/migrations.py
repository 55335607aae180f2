"""Migrates a database to the schema of this rankd: numbered scripts, each run once.

    advisory lock → read the stored version → run the later scripts → store the new version, all in one transaction

The first line of a script names the oldest rankd that works with it: `-- usable from version 3` means one that knows
version 3. So servers one version apart run side by side during an upgrade.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from importlib.resources import files

import psycopg

from rankd.errors import LedgerNewer, LedgerUnavailable
from rankd.ledger.postgres.connections import (
    MIGRATE_HINT,
    SCHEMA,
    PostgresConnection,
    connected,
    raise_translated,
    with_limits,
)

MIGRATE_WAIT_S = 600.0  # for the lock, and for a script
_USABLE = re.compile(r"-- usable from version (\d+)\s")
_VERSIONS = """
CREATE TABLE IF NOT EXISTS versions (
  component   text PRIMARY KEY,           -- each has scripts of its own
  version     integer NOT NULL,           -- the number of the last script that was run
  usable_from integer NOT NULL            -- a rankd that knows this version works on it
)
"""


def scripts_of(package: str, folder: str = "schema") -> list[str]:
    """Return the numbered scripts in a package's folder, in order."""
    scripts = [script for script in files(package).joinpath(folder).iterdir() if script.name.endswith(".sql")]
    return [script.read_text() for script in sorted(scripts, key=lambda script: script.name)]


def migrate_component(
    url: str, component: str, scripts: Sequence[str], finish: Callable[[PostgresConnection], None] | None = None
) -> int:
    """Run the scripts of a component that were not run yet; return its former version.

    `finish` runs in the same transaction, every time. LedgerNewer when the database is newer than these scripts.
    """
    connection = connected(with_limits(url), MIGRATE_WAIT_S)
    try:
        with connection, connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(hashtextextended('rankd.migrate', 0))")
            if connection.execute("SELECT to_regnamespace(%s)", (SCHEMA,)).fetchone() == (None,):
                connection.execute(f"CREATE SCHEMA {SCHEMA}")
            if connection.execute("SELECT to_regclass('versions')").fetchone() == (None,):
                connection.execute(_VERSIONS)
            before, usable_from = _version(connection, component) or (0, 0)
            if before > len(scripts):
                _check_usable(component, before, usable_from, len(scripts))
                return before
            for number, script in enumerate(scripts[before:], start=before + 1):
                connection.execute(script.encode())
                usable = _USABLE.match(script)
                usable_from = number if usable is None else int(usable.group(1))
            if before < len(scripts):
                connection.execute(
                    "INSERT INTO versions (component, version, usable_from) VALUES (%s, %s, %s) ON CONFLICT (component)"
                    " DO UPDATE SET version = excluded.version, usable_from = excluded.usable_from",
                    (component, len(scripts), usable_from),
                )
            if finish is not None:
                finish(connection)
            return before
    except psycopg.Error as problem:
        raise_translated(problem)


def check_component(connection: PostgresConnection, component: str, known: int) -> None:
    """Refuse a database whose schema is older or newer than this rankd supports."""
    try:
        stored = _version(connection, component)
    except psycopg.errors.UndefinedTable:
        stored = None
    if stored is None:
        raise LedgerUnavailable(f"the database has no {component} of rankd yet: {MIGRATE_HINT}")
    version, usable_from = stored
    if version < known:
        raise LedgerUnavailable(
            f"the {component} in the database has version {version}, and this rankd needs {known}: {MIGRATE_HINT}"
        )
    _check_usable(component, version, usable_from, known)


def _version(connection: PostgresConnection, component: str) -> tuple[int, int] | None:
    row = connection.execute("SELECT version, usable_from FROM versions WHERE component = %s", (component,)).fetchone()
    return None if row is None else (row[0], row[1])


def _check_usable(component: str, version: int, usable_from: int, known: int) -> None:
    if usable_from > known:
        raise LedgerNewer(
            f"the {component} in the database has version {version}, and this rankd knows versions up to {known}: "
            "upgrade rankd"
        )
