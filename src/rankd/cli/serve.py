"""`rankd serve` and `rankd demo`: the server, and the server with simulated players."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rankd.cli.consuming import consuming_of
from rankd.cli.options import SERVER_PANEL, ConfigFile, Data, examples
from rankd.cli.relaying import relay_of
from rankd.cli.target import Target, in_use
from rankd.config.model import Config, LedgerConfig
from rankd.errors import FolderLocked

app = typer.Typer()
DEMO_FOLDER = Path("rankd-demo")

Host = Annotated[
    str | None,
    typer.Option(metavar="ADDRESS", help="Where to listen; by default 127.0.0.1.", show_default=False),
]
Workers = Annotated[
    int | None,
    typer.Option(metavar="N", help="Processes that serve, one of which writes; by default 1.", show_default=False),
]
Port = Annotated[int | None, typer.Option(help="By default 8080; 0 takes any free port.", show_default=False)]


def _config(
    data: Path | None, config: Path | None, host: str | None, port: int | None, workers: int | None = None
) -> Config:
    options = {"server.host": host, "server.port": port, "server.workers": workers}
    return Target.folder_of(data, config).config({key: value for key, value in options.items() if value is not None})


@app.command(
    rich_help_panel=SERVER_PANEL,
    epilog=examples("rankd serve", "rankd serve --data scores --port 9000", "rankd serve --workers 4"),
)
def serve(
    *, data: Data = None, host: Host = None, port: Port = None, workers: Workers = None, config: ConfigFile = None
) -> None:
    """Serve the boards of a data folder over HTTP, until it is stopped.

    Creates the folder when it is missing, with an administrator's key.
    """
    from rankd.serving import serve as serve_until_stopped  # noqa: PLC0415 - a slow import

    loaded = _config(data, config, host, port, workers)
    consuming = None if loaded.consume.url == "none" else consuming_of(loaded)
    relaying = None if loaded.outbox.url == "none" else relay_of(loaded)
    try:
        serve_until_stopped(loaded, consuming=consuming, relaying=relaying)
    except FolderLocked as problem:
        raise in_use(loaded, problem) from None


@app.command(rich_help_panel=SERVER_PANEL, epilog=examples("rankd demo", "rankd demo --port 9000"))
def demo(*, data: Data = None, host: Host = None, port: Port = None, config: ConfigFile = None) -> None:
    """Serve sample boards with simulated players.

    They are in a folder of their own, rankd-demo, unless one is named.
    """
    from rankd.demo import run  # noqa: PLC0415 - a slow import

    loaded = _config(data, config, host, port)
    if data is None and loaded.ledger.url == LedgerConfig().url:
        # The user's own boards may have the sample boards' names, and must not get simulated players.
        loaded = _config(DEMO_FOLDER, config, host, port)
    try:
        run(loaded)
    except FolderLocked as problem:
        raise in_use(loaded, problem) from None
