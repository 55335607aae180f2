"""A board's definition as JSON Schema: what `define` reads and `definition` answers with.

Names and defaults are those of `domain.definition`, which also refuses conflicts between options with 422.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rankd.domain.board import Writes
from rankd.domain.calendar import WeekStarts
from rankd.domain.declared import PERIODS_MAX, WINDOWS_MAX
from rankd.domain.definition import (
    ARCHIVE_TOP_MAX,
    DECIMALS_MAX,
    DESCRIPTION_BYTES_MAX,
    EXACT_TOP_MAX,
    FEEDS_MAX,
    NAMES,
    SCOPE_VALUES_MAX,
    SCOPES_MAX,
    SHARDS_MAX,
    TITLE_BYTES_MAX,
    define_board,
    definition_of,
)
from rankd.domain.history import EVERY, TOP_MAX
from rankd.domain.instant import AT_MS_END
from rankd.domain.order import SCORE_MAX_POSSIBLE, SCORE_MIN_POSSIBLE, Keep, Order, Ranking, Ties
from rankd.domain.rollup import RollUp
from rankd.domain.team import TeamBy
from rankd.domain.window import NAMED_BY_KIND

Schema = dict[str, Any]

NAME_PATTERN = "^[a-z0-9][a-z0-9_.-]{0,63}$"
DURATION_PATTERN = "^(0|[1-9][0-9]{0,14})(ms|s|m|h|d)$"


def _one_of(words: Iterable[str], about: str) -> Schema:
    return {"type": "string", "enum": list(words), "description": about}


def _duration(about: str) -> Schema:
    return {"type": "string", "pattern": DURATION_PATTERN, "examples": ["5m"], "description": about}


def _object(about: str, **properties: Schema) -> Schema:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
        "description": about,
    }


def _names(items_max: int, about: str) -> Schema:
    return {
        "type": ["array", "null"],
        "items": {"type": "string", "pattern": NAME_PATTERN},
        "uniqueItems": True,
        "maxItems": items_max,
        "description": about,
    }


def _integer(low: int, high: int, about: str) -> Schema:
    return {"type": "integer", "minimum": low, "maximum": high, "description": about}


def _retention(about: str) -> Schema:
    return {
        "anyOf": [
            {"type": "null", "description": "For ever."},
            _duration("Of every window."),
            {
                "type": "object",
                "additionalProperties": {"anyOf": [_duration("Of that window."), {"type": "null"}]},
                "description": "By window; for ever by default.",
            },
        ],
        "description": about,
    }


_NAME: Schema = {"type": "string", "pattern": NAME_PATTERN}
_INSTANT: Schema = {
    "anyOf": [_integer(0, AT_MS_END - 1, "In ms since 1970."), {"type": "string", "description": "By RFC 3339."}]
}
_KEEP = [*Keep, *RollUp]

_OPTIONS: dict[str, Schema] = {
    "title": {
        "type": ["string", "null"],
        "minLength": 1,
        "maxLength": TITLE_BYTES_MAX,
        "description": "Its name for people; by default the id.",
    },
    "description": {
        "type": ["string", "null"],
        "maxLength": DESCRIPTION_BYTES_MAX,
        "description": "A text for people.",
    },
    "keep": {
        "anyOf": [
            _one_of(_KEEP, "In every window."),
            {
                "type": "object",
                "additionalProperties": _one_of(_KEEP, "In that window."),
                "description": "By window; `best` by default.",
            },
        ],
        "examples": ["best", {"daily": "first", "weekly": "sum_of_daily"}],
        "description": "What is kept when a player with a score sends another: the better, the latest, the sum, the"
        " first; or, in a longer window, the sum of shorter ones.",
    },
    "order": _one_of(Order, "Which scores are better: `desc`, more; `asc`, less."),
    "ties": _one_of(
        Ties, "What decides between equal scores: the first or the last to reach it, the tiebreak, or the id."
    ),
    "tie_resolution": _duration("Scores reached within the same step count as reached at once."),
    "ranking": _one_of(Ranking, "How equal scores are counted by default: 1234, 1224 or 1223."),
    "windows": {
        "type": "array",
        "items": {
            "anyOf": [
                _one_of(NAMED_BY_KIND, "By the calendar."),
                _object(
                    "A window that resets by a cron expression.",
                    name=_NAME,
                    reset={"type": "string", "examples": ["0 18 * * 5"]},
                ),
            ]
        },
        "minItems": 1,
        "maxItems": WINDOWS_MAX,
        "description": "The windows in which scores count; the first is the default of reads.",
    },
    "periods": {
        "type": ["array", "null"],
        "items": _object(
            "A tournament or a season: start ≤ at < end.",
            name=_NAME,
            start={**_INSTANT, "description": "The first instant that counts."},
            end={**_INSTANT, "description": "The first that does not."},
        ),
        "maxItems": PERIODS_MAX,
        "description": "Named periods besides the windows; read as `period:name`.",
    },
    "time_zone": {
        "type": "string",
        "minLength": 1,
        "examples": ["America/Sao_Paulo"],
        "description": "The time zone of days and weeks.",
    },
    "week_starts": _one_of(WeekStarts, "The first day of a week."),
    "scopes": _names(SCOPES_MAX, "Attributes by whose values players are ranked too, such as `country`."),
    "global": {"type": "boolean", "description": "Whether all players are ranked together."},
    "score_min": _integer(SCORE_MIN_POSSIBLE, SCORE_MAX_POSSIBLE, "The least score that is accepted."),
    "score_max": _integer(SCORE_MIN_POSSIBLE, SCORE_MAX_POSSIBLE, "The highest score that is accepted."),
    "decimals": _integer(0, DECIMALS_MAX, "How many digits of a shown score follow the decimal point."),
    "late_by": _duration("How far back a service's `at` may lie, and how long a window stays open after its end."),
    "retention": _retention("How long past windows stay in the ranks; they are archived, and read from there then."),
    "archive_keep": _retention("How long past windows stay in the archive after they became final."),
    "archive_top": {
        "anyOf": [{"type": "null", "description": "All."}, _integer(1, ARCHIVE_TOP_MAX, "The first so many.")],
        "description": "How many of each scope are archived.",
    },
    "history": {
        "anyOf": [
            {"type": "null", "description": "Nothing is kept."},
            _object(
                "Places and scores at each local midnight, or hour.",
                every=_one_of(EVERY, "How often."),
                top={
                    "anyOf": [_integer(1, TOP_MAX, "Of so many players."), {"type": "string", "const": "all"}],
                    "description": "Of how many players, in standing order.",
                },
                keep=_duration("How long they are kept."),
            )
            | {"required": []},
        ],
        "description": "What is kept of where players stood, in windows longer than `every`.",
    },
    "feeds": _names(FEEDS_MAX, "Other boards that get the same scores, under their own rules."),
    "team": {
        "anyOf": [
            {"type": "null"},
            _object(
                "Teams are ranked in place of players.",
                attribute={**_NAME, "description": "The attribute that names the team."},
                by=_one_of(TeamBy, "How the team's score is made."),
            ),
        ],
        "description": "Whether teams are ranked, and how.",
    },
    "decay": {
        "anyOf": [
            {"type": "null"},
            _object(
                "A score is worth `factor` of itself after each `every`.",
                factor={"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1, "examples": [0.9]},
                every=_duration("How long that takes."),
            ),
        ],
        "description": "Whether scores fade, and how fast.",
    },
    "writes": _one_of(Writes, "Who may send scores: `server`, services only; `players`, also players for themselves."),
    "signing": {
        "type": ["string", "null"],
        "pattern": NAME_PATTERN,
        "description": "The name of the signing key for submissions, which must then name their player.",
    },
    "open": {"type": "boolean", "description": "Whether scores are accepted at present."},
    "shards": _integer(1, SHARDS_MAX, "Over how many shards its players are spread in Redis."),
    "exact_top": {
        **_integer(1, EXACT_TOP_MAX, "Down to which place ranks are exact in Redis; below, they are estimates."),
        "type": ["integer", "null"],
    },
    "scope_values_max": {
        **_integer(
            1,
            SCOPE_VALUES_MAX,
            "How many values each attribute of `scopes` may have; null: as many as the server's setting says. A lower"
            " number than there are values refuses new ones only.",
        ),
        "type": ["integer", "null"],
    },
}


def definition_schemas() -> dict[str, Schema]:
    """Return the schemas of a definition as it is sent and as it is answered, by name."""
    defaults = definition_of(define_board("any", {}))
    options = {
        name: _OPTIONS[name] | ({} if name == "title" or defaults[name] is None else {"default": defaults[name]})
        for name in NAMES
    }
    about_id = "The board's id; where a definition is sent, as in the path or left out."
    properties = {"id": {**_NAME, "description": about_id}, **options}
    return {
        "Definition": {
            "title": "Definition",
            "description": "How a board ranks. What is left out has its default; what is unknown is refused.",
            "type": "object",
            "properties": properties,
            "additionalProperties": False,
        },
        "Board": {
            "title": "Board",
            "description": "A board's whole definition.",
            "type": "object",
            "properties": properties,
            "required": list(properties),
        },
    }
