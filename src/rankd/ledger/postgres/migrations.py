"""Brings a database to the schema this rankd knows: numbered scripts, once each, whoever runs them and how often.

    advisory lock → which version is there → the scripts behind it → its number, all in one transaction

A script says in its first line which versions of rankd may go on beside it: `-- usable from version 3` means that one
which knows version 3 works on it too. So servers one version apart serve side by side while the newer ones come.
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
    Connection,
    connected,
    raise_translated,
    with_limits,
)

MIGRATE_WAIT_S = 600.0  # for others who migrate, and for a script
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
    found = [script for script in files(package).joinpath(folder).iterdir() if script.name.endswith(".sql")]
    return [script.read_text() for script in sorted(found, key=lambda script: script.name)]


def migrate_component(
    url: str, component: str, scripts: Sequence[str], finish: Callable[[Connection], None] | None = None
) -> int:
    """Run the scripts of a component that were not run yet; return its version before.

    `finish` runs in the same transaction, every time. LedgerNewer when the database is beyond these scripts.
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
                said = _USABLE.match(script)
                usable_from = number if said is None else int(said.group(1))
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


def check_component(connection: Connection, component: str, known: int) -> None:
    """Refuse a database whose schema is behind or beyond what this rankd knows."""
    try:
        found = _version(connection, component)
    except psycopg.errors.UndefinedTable:
        found = None
    if found is None:
        raise LedgerUnavailable(f"the database has no {component} of rankd yet: {MIGRATE_HINT}")
    version, usable_from = found
    if version < known:
        raise LedgerUnavailable(
            f"the {component} in the database has version {version}, and this rankd needs {known}: {MIGRATE_HINT}"
        )
    _check_usable(component, version, usable_from, known)


def _version(connection: Connection, component: str) -> tuple[int, int] | None:
    row = connection.execute("SELECT version, usable_from FROM versions WHERE component = %s", (component,)).fetchone()
    return None if row is None else (row[0], row[1])


def _check_usable(component: str, version: int, usable_from: int, known: int) -> None:
    if usable_from > known:
        raise LedgerNewer(
            f"the {component} in the database has version {version}, and this rankd knows versions up to {known}: "
            "upgrade rankd"
        )
