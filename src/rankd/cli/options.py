"""Options that several commands share, and the examples at the end of each help."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rankd.cli.completion import complete_board
from rankd.domain.order import Ranking

WHERE = "Which boards"
BOARDS_PANEL = "Boards"
SCORES_PANEL = "Scores and ranks"
SERVER_PANEL = "The server"
UPKEEP_PANEL = "Upkeep"

Data = Annotated[
    Path | None,
    typer.Option(
        "--data",
        metavar="FOLDER",
        help="The data folder; by default the one in rankd.toml.",
        rich_help_panel=WHERE,
        show_default=False,
    ),
]
Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        metavar="URL",
        help="A running server in place of a folder, such as http://127.0.0.1:8080. Also: RANKD_URL.",
        rich_help_panel=WHERE,
        show_default=False,
    ),
]
Token = Annotated[
    str | None,
    typer.Option(
        "--token",
        metavar="TOKEN",
        help="The server's credential. Safer: RANKD_TOKEN, which no process list shows.",
        rich_help_panel=WHERE,
        show_default=False,
    ),
]
ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="The configuration; by default ./rankd.toml, if it exists. Also: RANKD_CONFIG.",
        rich_help_panel=WHERE,
        show_default=False,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Answer in JSON, as the HTTP interface does.")]
BoardId = Annotated[str, typer.Argument(metavar="BOARD", help="The board's id.", autocompletion=complete_board)]
BoardOption = Annotated[
    str | None,
    typer.Option(
        "--board", metavar="BOARD", help="Of this board only.", autocompletion=complete_board, show_default=False
    ),
]
PlayerId = Annotated[str, typer.Argument(metavar="PLAYER", help="The player's id.")]
WindowOption = Annotated[
    str | None,
    typer.Option(
        metavar="WINDOW",
        help="Such as weekly, weekly:previous or weekly:2026-W18; by default the board's first.",
        show_default=False,
    ),
]
ScopeOption = Annotated[
    str | None,
    typer.Option(metavar="SCOPE", help="Such as country:BR; by default global.", show_default=False),
]
AsOfOption = Annotated[
    str | None,
    typer.Option(
        "--as-of",
        metavar="TIME",
        help="The board as it was then: ms since 1970, or 2026-05-04T12:00:00Z; by default now.",
        show_default=False,
    ),
]
RankingOption = Annotated[
    Ranking | None,
    typer.Option(help="How ties are counted: 1234, 1224 or 1223; by default the board's.", show_default=False),
]


def examples(*commands: str) -> str:
    """Return the examples of a help text."""
    heading = f"[bold]{'Example' if len(commands) == 1 else 'Examples'}[/bold]"
    return "\n".join([heading, *(f"  {command}" for command in commands)])
