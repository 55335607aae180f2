"""Load `rankd.toml`, the environment and the command line into one Config; each refusal says where the value stood.

    defaults → rankd.toml → RANKD_<SECTION>_<KEY> → options of the command → checked

The later source wins. A relative path starts at the working directory.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from types import UnionType
from typing import Any, Literal, NamedTuple, get_args, get_origin

import msgspec

from rankd.config.checks import check_config, folder_of
from rankd.config.model import Config
from rankd.domain.definition import define_board
from rankd.domain.fields import nearest, type_name
from rankd.errors import InvalidValue
from rankd.settings import Settings

FILE_NAME = "rankd.toml"
PREFIX = "RANKD_"
BOARDS = "boards"
# Read by the command line; they are not settings.
OTHER_VARIABLES = ("RANKD_CONFIG", "RANKD_URL", "RANKD_TOKEN", "RANKD_DEBUG")
# The command line's options, by key.
OPTIONS = {"server.host": "--host", "server.port": "--port", "server.workers": "--workers", "ledger.url": "--data"}
SECTIONS = {field.name: field.type for field in msgspec.structs.fields(Config) if field.name != BOARDS}
KEYS = {
    f"{section}.{field.name}": field.type
    for section, struct in SECTIONS.items()
    for field in msgspec.structs.fields(struct)
}
VARIABLES = {f"{PREFIX}{key.replace('.', '_').upper()}": key for key in KEYS}
_INTEGER = re.compile(r"[+-]?[0-9]+(_[0-9]+)*", re.ASCII)
_TABLE = re.compile(r"\s*\[\s*([\w.-]+)\s*\]")


class ConfigValue(NamedTuple):
    """A value and its source, as an error names it."""

    value: object
    where: str


def load_config(
    path: str | Path | None, environment: Mapping[str, str], options: Mapping[str, object] | None = None
) -> Config:
    """Return the configuration in force; a named file must exist, otherwise `rankd.toml` is optional.

    `options` are values of the command line by key, such as {"server.port": 9000}.
    """
    sources, boards = _from_file(path)
    sources.update(_from_environment(environment))
    for key, value in (options or {}).items():
        where = OPTIONS.get(key, key)
        sources[key] = ConfigValue(_read(where, KEYS[key], value), where)
    values: dict[str, dict[str, object]] = {section: {} for section in SECTIONS}
    for key, (value, _) in sources.items():
        section, name = key.split(".")
        values[section][name] = value
    sections = {section: struct(**values[section]) for section, struct in SECTIONS.items()}
    config = Config(**sections, boards=boards)
    check_config(config, lambda key: sources[key].where if key in sources else key)
    return config


def open_settings(config: Config) -> dict[str, object]:
    """Return the settings of `rankd.open` in a configuration."""
    names = {field.name for field in msgspec.structs.fields(Settings)}
    settings = {
        name: value
        for section in (config.ledger, config.registry, config.ranks, config.limits)
        for name, value in msgspec.structs.asdict(section).items()
        if name in names
    }
    return settings | {f"archive_{name}": value for name, value in msgspec.structs.asdict(config.archive).items()}


def data_folder(config: Config) -> Path:
    """Return the folder of the embedded ledger."""
    return folder_of("ledger.url", config.ledger.url)


# The file


class _File:
    """A TOML file that finds the line of a key, where that is easy."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._text = path.read_bytes().decode()
            self.tables = tomllib.loads(self._text)
        except OSError as problem:
            raise InvalidValue(str(path), f"cannot be read: {problem.strerror}; name a {FILE_NAME}") from None
        except UnicodeDecodeError as problem:
            raise InvalidValue(str(path), f"is not UTF-8 at byte {problem.start}; save it as UTF-8") from None
        except tomllib.TOMLDecodeError as problem:
            raise InvalidValue(str(path), f"is not TOML: {_first_lower(str(problem))}") from None

    def where(self, table: str, key: str | None = None) -> str:
        """Return how an error names a key, or a table."""
        name = table if key is None else f"{table}.{key}"
        line = self._line(table, key)
        return f"{self._path}: {name}" if line is None else f"{self._path}, line {line}: {name}"

    def _line(self, table: str, key: str | None) -> int | None:
        current = ""
        for number, line in enumerate(self._text.splitlines(), start=1):
            if header := _TABLE.match(line):
                current = header[1]
                if key is None and (current == table or current.startswith(f"{table}.")):
                    return number
            elif key is not None and current == table and re.match(rf"\s*{re.escape(key)}\s*=", line):
                return number
        return None


def _from_file(path: str | Path | None) -> tuple[dict[str, ConfigValue], dict[str, dict[str, object]]]:
    if path is None and not Path(FILE_NAME).exists():
        return {}, {}
    file = _File(Path(FILE_NAME if path is None else path))
    values = {}
    for section, table in file.tables.items():
        if section == BOARDS:
            continue
        struct = SECTIONS.get(section)
        if struct is None:
            raise InvalidValue(file.where(section), f"is not a section; {nearest(section, [*SECTIONS, BOARDS])}")
        if not isinstance(table, dict):
            raise InvalidValue(file.where(section), f"must be a section, [{section}]; got {type_name(table)}")
        names = [field.name for field in msgspec.structs.fields(struct)]
        for name, value in table.items():
            where = file.where(section, name)
            if name not in names:
                raise InvalidValue(where, f"is not known; {nearest(name, names)}")
            values[f"{section}.{name}"] = ConfigValue(_read(where, KEYS[f"{section}.{name}"], value), where)
    return values, _boards(file)


def _boards(file: _File) -> dict[str, dict[str, object]]:
    boards = file.tables.get(BOARDS, {})
    if not isinstance(boards, dict):
        raise InvalidValue(file.where(BOARDS), f"must hold boards such as [boards.arcade]; got {type_name(boards)}")
    for board, definition in boards.items():
        table = f"{BOARDS}.{board}"
        try:
            define_board(board, definition)
        except InvalidValue as problem:
            if problem.field in ("board", "definition"):
                raise InvalidValue(file.where(table), problem.problem) from None
            first = problem.field.partition(".")[0].partition("[")[0]
            where = file.where(table, first).removesuffix(first) + problem.field
            raise InvalidValue(where, problem.problem) from None
    return boards


def _first_lower(text: str) -> str:
    return text[:1].lower() + text[1:]


# The environment


def _from_environment(environment: Mapping[str, str]) -> dict[str, ConfigValue]:
    values = {}
    for name, text in environment.items():
        if not name.startswith(PREFIX) or name in OTHER_VARIABLES:
            continue
        key = VARIABLES.get(name)
        if key is None:
            if name.startswith(f"{PREFIX}BOARDS_"):
                raise InvalidValue(name, f"is not a setting: define boards in {FILE_NAME} or by `rankd boards put`")
            raise InvalidValue(name, f"is not a setting; {nearest(name, [*VARIABLES, *OTHER_VARIABLES])}")
        values[key] = ConfigValue(_read(name, KEYS[key], _parse(name, KEYS[key], text)), name)
    return values


def _parse(where: str, wanted: Any, text: str) -> object:
    if wanted is int:
        if not _INTEGER.fullmatch(text):
            raise InvalidValue(where, f"must be an integer; got {text!r:.80}")
        return int(text)
    if wanted is bool:
        if text not in ("true", "false"):
            raise InvalidValue(where, f"must be true or false; got {text!r:.80}")
        return text == "true"
    if get_origin(wanted) is tuple:
        return [part for part in (part.strip() for part in text.split(",")) if part]
    return text


# Types


def _read(where: str, wanted: Any, value: object) -> object:
    """Return the value of a key; one of another type is refused, never converted."""
    origin = get_origin(wanted)
    if origin is Literal:
        words = get_args(wanted)
        if value not in words:
            got = f"{value!r:.80}" if isinstance(value, str) else type_name(value)
            raise InvalidValue(where, f"must be one of {', '.join(words)}; got {got}")
        return value
    if origin is tuple:
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            got = f"a list with {type_name(_not_text(value))}" if isinstance(value, list) else type_name(value)
            raise InvalidValue(where, f"must be a list of texts; got {got}")
        return tuple(value)
    if origin is UnionType or wanted not in _TYPES:
        raise AssertionError(f"{where} has a type that the loader cannot read: {wanted}")
    if type(value) is not wanted:
        raise InvalidValue(where, f"must be {_TYPES[wanted]}; got {type_name(value)}")
    return value


_TYPES: dict[object, str] = {int: "an integer", bool: "true or false", str: "text"}


def _not_text(items: list[object]) -> object:
    return next(item for item in items if not isinstance(item, str))
