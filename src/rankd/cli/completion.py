"""Board names for the shell's completion: those available at once, and none rather than a wait."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

import apsw
import typer

from rankd.config.checks import is_shared
from rankd.config.loading import data_folder, load_config
from rankd.domain.text import is_name
from rankd.ledger.sqlite.database import FILE_NAME

SERVER_WAIT_S = 0.5
FOLDER_BUSY_MS = 200
SHOWN_MAX = 100  # of a server's boards
# Contexts are few, however many events there are; deleted boards are offered too.
_DEFINED = "SELECT DISTINCT context ->> '$.board' FROM contexts WHERE context ->> '$.kind' = 'define' ORDER BY 1"


def complete_board(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the boards that begin with the typed text; another process may use the folder meanwhile."""
    options = ctx.params
    with suppress(Exception):  # a completion cannot report errors
        url = options.get("url") or (os.environ.get("RANKD_URL") if options.get("data") is None else None)
        boards = (
            _of_server(url, options.get("token"), incomplete)
            if url
            else _of_folder(options.get("data"), options.get("config"))
        )
        return [board for board in boards if board.startswith(incomplete) and is_name(board)]
    return []


def _of_server(url: str, token: str | None, incomplete: str) -> list[str]:
    from rankd.client import Client  # noqa: PLC0415 - a slow import

    credential = token or os.environ.get("RANKD_TOKEN") or None
    with Client(url, credential, timeout_s=SERVER_WAIT_S, retries_max=0) as client:
        definitions = client.definitions(incomplete or None)
        return [str(definition["id"]) for definition in islice(definitions, SHOWN_MAX)]


def _of_folder(data: Path | None, config_file: Path | None) -> Iterator[str]:
    if data is None:
        config = load_config(config_file or os.environ.get("RANKD_CONFIG") or None, os.environ)
        if is_shared(config):
            return  # a database may answer too slowly for a completion
        data = data_folder(config)
    connection = apsw.Connection(str(Path(data) / FILE_NAME), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        connection.set_busy_timeout(FOLDER_BUSY_MS)
        yield from (str(board) for (board,) in connection.execute(_DEFINED).fetchall())
    finally:
        connection.close()
