"""Definitions of boards as the command line takes them: from a file, from standard input, from `--set`."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from rankd.cli.texts import counted
from rankd.domain.board import Board, Writes
from rankd.domain.consistency import instances_per_event
from rankd.domain.definition import NAMES
from rankd.domain.fields import nearest
from rankd.domain.order import SCORE_BOUND_DEFAULT, Ranking
from rankd.domain.window import Kind
from rankd.errors import InvalidValue
from rankd.projection.redis.forms import explain_form
from rankd.shortening import list_names

STANDARD_INPUT = "-"
_LISTS = ("windows", "scopes", "feeds")
_TEXTS = ("title", "description", "signing", "time_zone")
Definition = dict[str, object]


def read_definition(board: str, source: str) -> Definition:
    """Read a definition from a JSON or TOML file; of a file with several boards, the one that is meant."""
    name = "standard input" if source == STANDARD_INPUT else source
    try:
        text = sys.stdin.read() if source == STANDARD_INPUT else Path(source).read_bytes().decode()
    except OSError as problem:
        raise InvalidValue(name, f"cannot be read: {problem.strerror}") from None
    except UnicodeDecodeError:
        raise InvalidValue(name, "is not UTF-8; save it as UTF-8") from None
    found = _parsed(name, text)
    boards = found.get("boards")
    if isinstance(boards, dict):  # a rankd.toml, or the answer of `rankd boards list --json`
        if board not in boards:
            raise InvalidValue(name, f"defines no board {board}; {nearest(board, list(boards))}")
        found = boards[board]
    if not isinstance(found, dict):
        raise InvalidValue(name, f'must hold an object such as {{"keep": "best"}}; got {type(found).__name__}')
    return _without_id(board, found)


def _parsed(name: str, text: str) -> dict[str, object]:
    is_json = name.endswith(".json") or (not name.endswith(".toml") and text.lstrip()[:1] in ("{", "["))
    try:
        return msgspec.json.decode(text, type=dict[str, object]) if is_json else tomllib.loads(text)
    except (msgspec.DecodeError, tomllib.TOMLDecodeError, RecursionError) as problem:
        said = str(problem) or "it is nested too deeply"
        raise InvalidValue(name, f"is no {'JSON' if is_json else 'TOML'}: {said[:1].lower()}{said[1:]}") from None


def _without_id(board: str, definition: Mapping[str, object]) -> Definition:
    """Return a definition without the id that a server's answer has."""
    if definition.get("id", board) != board:
        raise InvalidValue("id", f"must be {board}, or be left out; got {definition['id']!r:.80}")
    return {name: value for name, value in definition.items() if name != "id"}


def with_options(definition: Definition, options: Sequence[str]) -> Definition:
    """Return a definition with some names set, such as `keep=best`, `windows=all_time,weekly` or `keep.daily=first`."""
    changed = dict(definition)
    for option in options:
        path, separator, text = option.partition("=")
        name, _, inner = path.partition(".")
        if not separator:
            raise InvalidValue("--set", f"must be a name and a value, such as keep=best; got {option!r:.80}")
        if name not in NAMES:
            raise InvalidValue("--set", f"{name!r:.80} is no option of a board; {nearest(name, NAMES)}")
        value = _value(name, text)
        if inner:
            outer = changed.get(name)
            changed[name] = {**(outer if isinstance(outer, dict) else {}), inner: value}
        else:
            changed[name] = value
    return changed


def _value(name: str, text: str) -> object:
    if name in _TEXTS:
        return text
    if name in _LISTS and not text.startswith("["):
        return [part.strip() for part in text.split(",") if part.strip()]
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return text


def notes(board: Board, boards: Mapping[str, Board], *, in_redis: bool = False) -> list[str]:
    """Return what is worth knowing before a board is defined; `boards` are the others, as far as they are known."""
    scopes = ", ".join(["global"] * board.with_global + list(board.scopes))
    fed = [boards[other] for other in board.feeds if other in boards]
    total = instances_per_event(board, fed)
    windows = counted(instances_per_event(board) // board.scope_count, "window")
    each = counted(board.scope_count, "scope")
    fed_places = "".join(f", and {instances_per_event(other)} of {other.id}" for other in fed)
    said = [f"a score counts in up to {counted(total, 'place')}: {windows} × {each} ({scopes}){fed_places}"]
    kept = [name for name in board.all_windows if name != Kind.ALL_TIME and name not in board.retention_ms]
    if kept:
        said.append(f"{list_names(kept)}: past windows stay in memory for ever; retention lets them go to the archive")
    if board.writes is Writes.PLAYERS and board.signing is None:
        said.append("players may send scores, and nothing signs them: a modified game can send any score")
    if board.writes is Writes.PLAYERS and board.score_max == SCORE_BOUND_DEFAULT:
        said.append("players may send scores up to 2^53 - 1; score_max and score_min refuse what cannot be")
    if not board.open:
        said.append("it takes no scores until open is true")
    if in_redis:
        said += _in_redis(board)
    elif board.shards != 1 or board.exact_top is not None:
        said.append("shards and exact_top have no effect on the embedded engine, which ranks everybody exactly")
    return said


def _in_redis(board: Board) -> list[str]:
    """Say how a board is written in Redis, why, and what it costs there."""
    rules = {board.rules_for(window): None for window in board.all_windows.values()}
    said = list(
        dict.fromkeys(
            f"in Redis: {line[0].lower()}{line[1:].rstrip(chr(46))}"
            for one in rules
            for line in explain_form(one, board.tie_resolution_ms, board.exact_top)
        )
    )
    if board.shards > 1 and board.ranking is Ranking.DENSE:
        said.append("dense places cannot be counted over several shards; a sharded board is ordinal or competition")
    return said
