"""`rankd boards`: list, show, define, check and delete boards."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from rankd.boards import Boards
from rankd.cli import definitions
from rankd.cli.exits import UsageError
from rankd.cli.options import BoardId, ConfigFile, Data, Json, Token, Url, examples
from rankd.cli.output import answer, note, table
from rankd.cli.target import Target, check_folder
from rankd.cli.texts import counted
from rankd.config.checks import is_in_redis, is_shared
from rankd.config.loading import data_folder
from rankd.domain.board import Board
from rankd.domain.change import change
from rankd.domain.consistency import check_feeds, check_instances_per_event, feeders_of, instances_per_event
from rankd.domain.definition import define_board, definition_of
from rankd.domain.text import escaped
from rankd.errors import BoardUnknown, FolderLocked, InvalidValue

if TYPE_CHECKING:
    from rankd.client import Client

app = typer.Typer(no_args_is_help=True, epilog=examples("rankd boards list"))

SourceArgument = Annotated[
    str | None,
    typer.Argument(metavar="FILE", help="A JSON or TOML file, or - for standard input.", show_default=False),
]
Sets = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Such as keep=best, windows=all_time,weekly or keep.daily=first; may be repeated. "
        "Without a file, the other options stay as they are.",
    ),
]


class CheckedDefinitions(msgspec.Struct, frozen=True):
    """What `rankd boards check --json` prints."""

    board: str
    is_new: bool | None  # None: there was no board to compare with
    changes: list[str]  # names that differ from the present board
    notes: list[str]
    definition: dict[str, object]


Search = Annotated[
    str | None,
    typer.Option("--search", metavar="TEXT", help="Only boards whose id or title begins with it.", show_default=False),
]


@app.command("list", epilog=examples("rankd boards list", "rankd boards list --search arc --url http://127.0.0.1:8080"))
def list_boards(
    *,
    search: Search = None,
    data: Data = None,
    url: Url = None,
    token: Token = None,
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """List all boards, or those whose id or title begins with a text."""
    with Target.of(data, url, token, config).opened() as boards:
        listed = list(boards.definitions(search))
        answer(
            {"boards": listed, "next": None}, as_json, lambda: _boards_table(listed, search), lambda: map(_line, listed)
        )


def _shown(boards: Boards | Client, board: str) -> dict[str, object]:
    definition = boards.definition(board)
    return {"id": board, **{name: value for name, value in definition.items() if name != "id"}}


def _line(shown: Mapping[str, object]) -> tuple[object, ...]:
    return (
        shown["id"],
        shown.get("title"),
        _brief(shown.get("keep")),
        _brief(shown.get("windows")),
        _brief(shown.get("scopes")),
        "open" if shown.get("open", True) else "closed",
    )


def _brief(value: object) -> str:
    """Return a part of a definition on one line."""
    match value:
        case None:
            return ""
        case str():
            return value
        case list():
            return ",".join(_brief(item) for item in value)
        case {"name": str(name)}:
            return name
        case dict():
            return ",".join(f"{name}={_brief(item)}" for name, item in value.items())
    return msgspec.json.encode(value).decode()


def _boards_table(listed: list[dict[str, object]], search: str | None) -> RenderableType:
    if not listed and search:
        return Text(f"No board's id or title begins with {escaped(search)}.", "dim")
    if not listed:
        return Text("There are no boards yet: rankd boards put arcade --set keep=best", "dim")
    drawn = table("board", "title", "keep", "windows", "scopes", "")
    for shown in listed:
        board, title, keep, windows, scopes, is_open = (escaped(str(part or "")) for part in _line(shown))
        state = Text("" if is_open == "open" else "closed", "yellow")
        listed_windows = windows.replace(",", ", ")
        drawn.add_row(
            Text(board, "bold"), Text(title), Text(keep.replace(",", ", ")), Text(listed_windows), scopes, state
        )
    return drawn


@app.command(epilog=examples("rankd boards show arcade"))
def show(
    *,
    board: BoardId,
    data: Data = None,
    url: Url = None,
    token: Token = None,
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """Show a board's whole definition."""
    with Target.of(data, url, token, config).opened() as boards:
        shown = _shown(boards, board)
    answer(
        shown,
        as_json,
        lambda: _definition_table(shown),
        lambda: ((name, value if isinstance(value, str) else _json(value)) for name, value in shown.items()),
    )


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _definition_table(shown: Mapping[str, object]) -> Table:
    board = str(shown["id"])
    defaults = {"id": None, **definition_of(define_board(board, {}))}
    drawn = Table.grid(padding=(0, 2))
    for name, value in shown.items():
        style = "dim" if name in defaults and defaults[name] == value else "bold"
        text = "none" if value is None or value == [] else value if isinstance(value, str) else _json(value)
        drawn.add_row(Text(name, "dim"), Text(escaped(text), style))
    return drawn


@app.command(
    epilog=examples(
        "rankd boards put arcade --set keep=best --set windows=all_time,weekly --set scopes=country",
        "rankd boards put arcade arcade.toml",
        "rankd boards put arcade --set open=false",
    )
)
def put(
    *,
    board: BoardId,
    source: SourceArgument = None,
    sets: Sets = None,
    data: Data = None,
    url: Url = None,
    token: Token = None,
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """Define a board, or change it; the same definition again changes nothing."""
    definition = _read_source(board, source, sets)
    with Target.of(data, url, token, config).opened(creates=True) as boards:
        old = _present(boards, board)
        new = define_board(board, _with_sets(definition, source, old, sets))
        defined = boards.define(board, definition_of(new))
        changes = [] if old is None else _changes(board, old, new)
        answer(
            defined,
            as_json,
            lambda: _put_text(new, old is None, changes),
            lambda: [(board, defined.position, defined.changed)],
        )


def _read_source(board: str, source: str | None, sets: list[str] | None) -> definitions.DefinitionFields:
    """Read the file before anything is opened."""
    if source is None and not sets:
        raise UsageError("give the definition: a FILE, -, or --set NAME=VALUE")
    return {} if source is None else definitions.read_definition(board, source)


def _with_sets(
    definition: definitions.DefinitionFields,
    source: str | None,
    old: Mapping[str, object] | None,
    sets: list[str] | None,
) -> definitions.DefinitionFields:
    start = definition if source is not None or old is None else dict(old)
    return definitions.with_options(start, sets or ())


def _present(boards: Boards | Client, board: str) -> dict[str, object] | None:
    try:
        shown = _shown(boards, board)
    except BoardUnknown:
        return None
    return {name: value for name, value in shown.items() if name != "id"}


def _changes(board: str, old: Mapping[str, object], new: Board) -> list[str]:
    return list(change(define_board(board, old), new))


def _put_text(board: Board, is_new: bool, changes: list[str]) -> Text:
    text = Text.assemble((board.id, "bold"))
    if is_new:
        return text.append(f" is defined; a score counts in up to {counted(instances_per_event(board), 'place')}")
    return text.append(f" has changed: {', '.join(changes)}" if changes else " is as it was")


@app.command(
    epilog=examples(
        "rankd boards check arcade arcade.toml",
        "rankd boards check arcade --set windows=all_time,daily --set scopes=country",
    )
)
def check(
    *,
    board: BoardId,
    source: SourceArgument = None,
    sets: Sets = None,
    data: Data = None,
    url: Url = None,
    token: Token = None,
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """Check a definition and change nothing: is it valid, what would it change, what does it cost?

    Works without a server and without a data folder; where there is one, it compares the definition with the present
    board, and refuses it as the server would.
    """
    definition = _read_source(board, source, sets)
    target = Target.of(data, url, token, config)
    others = _others(target)
    old = (others or {}).get(board)
    new = define_board(board, _with_sets(definition, source, None if old is None else definition_of(old), sets))
    changes = [] if old is None else list(change(old, new))
    if others is not None:
        check_feeds(new, others, feeders_of(board, others))
    if target.url is None:
        feeders = feeders_of(board, others or {})
        check_instances_per_event(new, others or {}, feeders, target.config().limits.instances_per_event_max)
    checked = CheckedDefinitions(
        board,
        None if others is None else old is None,
        changes,
        definitions.notes(new, others or {}, in_redis=target.url is None and is_in_redis(target.config())),
        definition_of(new),
    )
    answer(checked, as_json, lambda: _checked_text(checked), lambda: _checked_lines(checked))


def _others(target: Target) -> dict[str, Board] | None:
    """Return the present boards; None when there is no folder or server to ask."""
    if target.url is None and not is_shared(target.config()):
        try:
            check_folder(data_folder(target.config()))
        except InvalidValue as problem:
            if problem.field != "--data" or target.data is not None:
                raise
            return None
    try:
        with target.opened() as boards:
            return {
                name: define_board(name, definition)
                for definition in boards.definitions()
                for name in [str(definition.pop("id"))]
            }
    except FolderLocked as problem:
        note(f"not compared with the present board: {problem}", "yellow")
        return None


def _outcome(checked: CheckedDefinitions) -> str:
    if checked.is_new is None:
        return "is valid; it was not compared with a board"
    if checked.is_new:
        return "is valid and would be a new board"
    changes = ", ".join(checked.changes)
    return f"is valid and would change {changes}" if changes else "is what the board is already"


def _checked_text(checked: CheckedDefinitions) -> RenderableType:
    head = Text.assemble(("✓ ", "green"), (checked.board, "bold"), f" {_outcome(checked)}")
    return Group(head, *(Padding(Text(line, "dim"), (0, 0, 0, 2)) for line in checked.notes))


def _checked_lines(checked: CheckedDefinitions) -> list[tuple[object, ...]]:
    return [(checked.board, _outcome(checked)), *((checked.board, line) for line in checked.notes)]


@app.command(epilog=examples("rankd boards delete arcade", "rankd boards delete arcade --yes"))
def delete(
    *,
    board: BoardId,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    data: Data = None,
    url: Url = None,
    token: Token = None,
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """Delete a board with all its scores."""
    with Target.of(data, url, token, config).opened() as boards:
        total = boards.top(board, 1).total
        if not yes:
            if not sys.stdin.isatty():
                raise UsageError("there is no terminal to confirm on: add --yes to delete the board")
            typer.confirm(f"Delete {board} with all its scores ({counted(total, 'player')})?", abort=True, err=True)
        deleted = boards.delete(board)
        answer(
            deleted,
            as_json,
            lambda: Text.assemble((board, "bold"), " is deleted"),
            lambda: [(board, deleted.position, deleted.changed)],
        )
