"""`rankd config`: check the configuration, or show what is in force."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from datetime import date, datetime, time
from pathlib import Path

import msgspec
import typer
from rich.console import Group, RenderableType
from rich.text import Text

from rankd.cli.options import ConfigFile, Data, Json, examples
from rankd.cli.output import answer
from rankd.cli.target import Target
from rankd.cli.texts import counted
from rankd.clock import SystemClock
from rankd.config.loading import FILE_NAME, VARIABLES
from rankd.config.masking import shown
from rankd.config.model import Config

_DELETE_AND_C1 = re.compile("[\x7f-\x9f]")  # JSON leaves them as they are, TOML wants \u007f
app = typer.Typer(no_args_is_help=True, epilog=examples("rankd config show"))


class CheckedConfig(msgspec.Struct, frozen=True):
    """What `rankd config check --json` prints."""

    file: str | None  # None: there is none
    variables: list[str]  # settings from the environment
    boards: int


@app.command(epilog=examples("rankd config check", "rankd config check --config production.toml"))
def check(*, config: ConfigFile = None, as_json: Json = False) -> None:
    """Check rankd.toml and RANKD_* variables; names the first mistake with its line and the remedy."""
    from rankd.api.auth.tokens import open_tokens  # noqa: PLC0415 - most commands do without

    loaded = Target.folder_of(None, config).config()
    open_tokens(loaded.auth, SystemClock())  # as a server would: the key files must be readable and valid
    file = config or os.environ.get("RANKD_CONFIG") or (FILE_NAME if Path(FILE_NAME).exists() else None)
    checked = CheckedConfig(
        None if file is None else str(file), sorted(set(VARIABLES) & set(os.environ)), len(loaded.boards)
    )
    sentence = _sentence(checked)
    answer(checked, as_json, lambda: Text.assemble(("✓ ", "green"), sentence), lambda: [(sentence,)])


def _sentence(checked: CheckedConfig) -> str:
    file = f"{checked.file} is fine" if checked.file else f"there is no {FILE_NAME}: the defaults are in force"
    boards = f", with {counted(checked.boards, 'board')}" if checked.boards else ""
    variables = f"; {', '.join(checked.variables)} from the environment" if checked.variables else ""
    return f"{file}{boards}{variables}"


@app.command(epilog=examples("rankd config show", "rankd config show --json"))
def show(*, data: Data = None, config: ConfigFile = None, as_json: Json = False) -> None:
    """Show the configuration in force as a rankd.toml; secrets are masked."""
    sections = shown(Target.folder_of(data, config).config())
    answer(
        sections,
        as_json,
        lambda: _toml_text(sections),
        lambda: ((line.replace("\t", " "),) for line in _toml_lines(sections)),
    )


def _toml_lines(sections: dict[str, dict[str, object]]) -> Iterator[str]:
    for section, values in sections.items():
        if section == "boards":
            for board, definition in values.items():
                yield f"[boards.{board}]" if "." not in board else f'[boards."{board}"]'
                if isinstance(definition, dict):
                    yield from (f"{name} = {toml_value(value)}" for name, value in definition.items())
                yield ""
            continue
        yield f"[{section}]"
        yield from (f"{name} = {toml_value(value)}" for name, value in values.items())
        yield ""


def toml_value(value: object) -> str:
    """Return a value as TOML.

    >>> toml_value({"daily": "first", "tags": ["a", "b"], "open": True})
    '{daily = "first", tags = ["a", "b"], open = true}'
    """
    match value:
        case str():
            return _DELETE_AND_C1.sub(lambda match: f"\\u{ord(match[0]):04x}", msgspec.json.encode(value).decode())
        case list() | tuple():
            return f"[{', '.join(toml_value(item) for item in value)}]"
        case dict():
            inner = (f"{_toml_key(str(name))} = {toml_value(item)}" for name, item in value.items())
            return f"{{{', '.join(inner)}}}"
        case datetime() | date() | time():
            return value.isoformat()
    return msgspec.json.encode(value).decode()


def _toml_key(name: str) -> str:
    is_bare = name.isascii() and name.replace("-", "_").isidentifier()
    return name if is_bare else toml_value(name)


def _toml_text(sections: dict[str, dict[str, object]]) -> RenderableType:
    """Draw the same in colours; defaults are dim."""
    defaults = shown(Config())
    lines = []
    section = ""
    for line in _toml_lines(sections):
        if line.startswith("["):
            section = line[1:-1]
            lines.append(Text(line, "bold cyan"))
            continue
        name, _, _ = line.partition(" = ")
        is_default = section in defaults and sections[section].get(name) == defaults[section].get(name)
        lines.append(Text(line, "dim" if is_default else "bold"))
    return Group(*lines)
