"""Definitions of boards from a file, from standard input, or from `--set`."""

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
from rankd.domain.window import WindowKind
from rankd.errors import InvalidValue
from rankd.redis.forms import explain_form
from rankd.shortening import list_names

STANDARD_INPUT = "-"
_LISTS = ("windows", "scopes", "feeds")
_TEXTS = ("title", "description", "signing", "time_zone")
DefinitionFields = dict[str, object]


def read_definition(board: str, source: str) -> DefinitionFields:
    """Read a definition from a JSON or TOML file; of a file with several boards, the named one."""
    name = "standard input" if source == STANDARD_INPUT else source
    try:
        text = sys.stdin.read() if source == STANDARD_INPUT else Path(source).read_bytes().decode()
    except OSError as problem:
        raise InvalidValue(name, f"cannot be read: {problem.strerror}") from None
    except UnicodeDecodeError:
        raise InvalidValue(name, "is not UTF-8; save it as UTF-8") from None
    parsed = _parse(name, text)
    definition: object = parsed
    boards = parsed.get("boards")
    if isinstance(boards, dict):  # a rankd.toml, or the answer of `rankd boards list --json`
        if board not in boards:
            raise InvalidValue(name, f"defines no board {board}; {nearest(board, list(boards))}")
        definition = boards[board]
    if not isinstance(definition, dict):
        raise InvalidValue(name, f'must be an object such as {{"keep": "best"}}; got {type(definition).__name__}')
    return _without_id(board, definition)


def _parse(name: str, text: str) -> dict[str, object]:
    is_json = name.endswith(".json") or (not name.endswith(".toml") and text.lstrip()[:1] in ("{", "["))
    try:
        return msgspec.json.decode(text, type=dict[str, object]) if is_json else tomllib.loads(text)
    except (msgspec.DecodeError, tomllib.TOMLDecodeError, RecursionError) as problem:
        detail = str(problem) or "it is nested too deeply"
        raise InvalidValue(name, f"is not {'JSON' if is_json else 'TOML'}: {detail[:1].lower()}{detail[1:]}") from None


def _without_id(board: str, definition: Mapping[str, object]) -> DefinitionFields:
    """Return a definition without the id in a server's answer."""
    if definition.get("id", board) != board:
        raise InvalidValue("id", f"must be {board}, or be left out; got {definition['id']!r:.80}")
    return {name: value for name, value in definition.items() if name != "id"}


def with_options(definition: DefinitionFields, options: Sequence[str]) -> DefinitionFields:
    """Return a definition with options such as `keep=best`, `windows=all_time,weekly` or `keep.daily=first`."""
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
    """Return hints about a definition; `boards` are the other boards, as far as they are known."""
    scopes = ", ".join(["global"] * board.with_global + list(board.scopes))
    fed = [boards[other] for other in board.feeds if other in boards]
    total = instances_per_event(board, fed)
    windows = counted(instances_per_event(board) // board.scope_count, "window")
    each = counted(board.scope_count, "scope")
    fed_places = "".join(f", and {instances_per_event(other)} of {other.id}" for other in fed)
    hints = [f"a score counts in up to {counted(total, 'place')}: {windows} × {each} ({scopes}){fed_places}"]
    kept = [name for name in board.all_windows if name != WindowKind.ALL_TIME and name not in board.retention_ms]
    if kept:
        hints.append(f"{list_names(kept)}: past windows stay in memory for ever; set retention to archive them")
    if board.writes is Writes.PLAYERS and board.signing is None:
        hints.append("players may send unsigned scores: a modified game can send any score; set signing")
    if board.writes is Writes.PLAYERS and board.score_max == SCORE_BOUND_DEFAULT:
        hints.append("players may send scores up to 2^53 - 1; set score_max and score_min to refuse impossible ones")
    if not board.open:
        hints.append("it accepts no scores until open is true")
    if in_redis:
        hints += _redis_hints(board)
    elif board.shards != 1 or board.exact_top is not None:
        hints.append("shards and exact_top have no effect on the embedded engine, where every rank is exact")
    return hints


def _redis_hints(board: Board) -> list[str]:
    """Explain how a board is stored in Redis, why, and what it costs there."""
    hints = list(
        dict.fromkeys(
            f"in Redis: {line[0].lower()}{line[1:].rstrip(chr(46))}"
            for rules in {board.rules_for(window): None for window in board.all_windows.values()}
            for line in explain_form(rules, board.tie_resolution_ms, board.exact_top)
        )
    )
    if board.shards > 1 and board.ranking is Ranking.DENSE:
        hints.append("dense ranks cannot be counted over several shards; choose ordinal or competition")
    return hints
