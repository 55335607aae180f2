"""`rankd serve` and `rankd demo`: the server, and the server with simulated players."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rankd.cli.options import SERVER_PANEL, ConfigFile, Data, examples
from rankd.cli.target import Target, in_use
from rankd.config.model import Config, Ledger
from rankd.errors import FolderLocked

app = typer.Typer()
DEMO_FOLDER = Path("rankd-demo")

Host = Annotated[
    str | None,
    typer.Option(metavar="ADDRESS", help="Where to listen; by default 127.0.0.1.", show_default=False),
]
Port = Annotated[int | None, typer.Option(help="By default 8080; 0 takes any that is free.", show_default=False)]


def _config(data: Path | None, config: Path | None, host: str | None, port: int | None) -> Config:
    given = {"server.host": host, "server.port": port}
    return Target.folder_of(data, config).config({key: value for key, value in given.items() if value is not None})


@app.command(
    rich_help_panel=SERVER_PANEL,
    epilog=examples("rankd serve", "rankd serve --data scores --port 9000", "rankd serve --config production.toml"),
)
def serve(*, data: Data = None, host: Host = None, port: Port = None, config: ConfigFile = None) -> None:
    """Serve the boards of a data folder over HTTP, until it is stopped.

    The folder is made when it is missing, and an administrator's key with it.
    """
    from rankd.serving import serve as serve_until_stopped  # noqa: PLC0415 - a server takes a while to import

    loaded = _config(data, config, host, port)
    try:
        serve_until_stopped(loaded)
    except FolderLocked as problem:
        raise in_use(loaded, problem) from None


@app.command(rich_help_panel=SERVER_PANEL, epilog=examples("rankd demo", "rankd demo --port 9000"))
def demo(*, data: Data = None, host: Host = None, port: Port = None, config: ConfigFile = None) -> None:
    """Serve sample boards with simulated players, to look at.

    They are in a folder of their own, rankd-demo, unless one is named.
    """
    from rankd.demo import run  # noqa: PLC0415 - as above

    loaded = _config(data, config, host, port)
    if data is None and loaded.ledger.url == Ledger().url:
        # Boards of one's own may have the sample boards' names, and nobody wants strangers among their players.
        loaded = _config(DEMO_FOLDER, config, host, port)
    try:
        run(loaded)
    except FolderLocked as problem:
        raise in_use(loaded, problem) from None
