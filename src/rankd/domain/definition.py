"""A board's written definition: read strictly, written back complete.

JSON, TOML and the keywords of `define()` have the same names and defaults. `keep` is one word or an object by window; a
window that the object does not name keeps `best`. `retention` and `archive_keep` are one duration or an object by
window; a window that it does not name is kept for ever. In all three, `period:summer-26` names one period and `period`
all the others.
"""

from __future__ import annotations

from collections.abc import Mapping

from rankd.domain.board import LATE_BY_MS_DEFAULT, TIE_RESOLUTION_MS_DEFAULT, Board, CronWindow, Writes, check_board_id
from rankd.domain.calendar import WeekStarts
from rankd.domain.consistency import check_consistency
from rankd.domain.decay import EVERY_MS_MIN, Decay
from rankd.domain.declared import names_of, read_keep, read_periods, read_retention, read_windows
from rankd.domain.duration import format_duration, parse_duration
from rankd.domain.fields import read_choice, read_flag, read_integer, read_list, read_object, type_name
from rankd.domain.history import history_of, read_history
from rankd.domain.order import (
    SCORE_BOUND_DEFAULT,
    SCORE_MAX_POSSIBLE,
    SCORE_MIN_POSSIBLE,
    Keep,
    Order,
    Ranking,
    Ties,
)
from rankd.domain.scope import check_attribute_name
from rankd.domain.team import Team, TeamBy
from rankd.domain.text import NAME_RULE, check_text, is_name
from rankd.domain.window import WindowKind
from rankd.domain.zone import check_time_zone
from rankd.errors import InvalidValue

SCOPES_MAX = 16
FEEDS_MAX = 16
SHARDS_MAX = 4_096
DECIMALS_MAX = 18
ARCHIVE_TOP_MAX = 1_000_000_000
EXACT_TOP_MAX = 1_000_000_000
SCOPE_VALUES_MAX = 100_000_000  # of one attribute on one board
TITLE_BYTES_MAX = 256
DESCRIPTION_BYTES_MAX = 4_096


def define_board(board_id: object, definition: object) -> Board:
    """Return the board of a definition; missing fields have defaults, unknown fields are refused.

    `global` is a keyword of Python: as an argument it may be spelled `global_`.
    """
    name = check_board_id(board_id)
    if not isinstance(definition, Mapping):
        raise InvalidValue("definition", f'must be an object such as {{"keep": "best"}}; got {type_name(definition)}')
    given = {"global" if key == "global_" else key: value for key, value in definition.items()}
    read_object("", given, NAMES, "")
    windows = read_windows(given.get("windows", ["all_time"]))
    periods = read_periods(given.get("periods"))
    declared = names_of(windows, periods)
    title = given.get("title")
    description = given.get("description")
    exact_top = given.get("exact_top")
    scope_values_max = given.get("scope_values_max")
    board = Board(
        id=name,
        title=name if title is None else check_text("title", title, TITLE_BYTES_MAX),
        description=None
        if description is None
        else check_text("description", description, DESCRIPTION_BYTES_MAX, bytes_min=0, lines=True),
        keep=read_keep(given.get("keep", Keep.BEST), declared),
        order=read_choice("order", given.get("order", Order.DESC), Order),
        ties=read_choice("ties", given.get("ties", Ties.EARLIEST), Ties),
        tie_resolution_ms=_duration(given, "tie_resolution", TIE_RESOLUTION_MS_DEFAULT, at_least_ms=1),
        ranking=read_choice("ranking", given.get("ranking", Ranking.ORDINAL), Ranking),
        windows=windows,
        periods=periods,
        time_zone=check_time_zone("time_zone", given.get("time_zone", "UTC")),
        week_starts=read_choice("week_starts", given.get("week_starts", WeekStarts.MONDAY), WeekStarts),
        scopes=_scopes(given.get("scopes")),
        with_global=read_flag("global", given.get("global", True)),
        score_min=_bound(given, "score_min", -SCORE_BOUND_DEFAULT),
        score_max=_bound(given, "score_max", SCORE_BOUND_DEFAULT),
        decimals=read_integer("decimals", given.get("decimals", 0), 0, DECIMALS_MAX),
        late_by_ms=_duration(given, "late_by", LATE_BY_MS_DEFAULT),
        retention_ms=read_retention("retention", given.get("retention"), declared),
        history=read_history(given.get("history")),
        archive_keep_ms=read_retention("archive_keep", given.get("archive_keep"), declared),
        archive_top=None
        if given.get("archive_top") is None
        else read_integer("archive_top", given.get("archive_top"), 1, ARCHIVE_TOP_MAX),
        feeds=_feeds(given.get("feeds")),
        team=_team(given.get("team")),
        decay=_decay(given.get("decay")),
        writes=read_choice("writes", given.get("writes", Writes.SERVER), Writes),
        signing=_signing(given.get("signing")),
        open=read_flag("open", given.get("open", True)),
        shards=read_integer("shards", given.get("shards", 1), 1, SHARDS_MAX),
        exact_top=None if exact_top is None else read_integer("exact_top", exact_top, 1, EXACT_TOP_MAX),
        scope_values_max=None
        if scope_values_max is None
        else read_integer("scope_values_max", scope_values_max, 1, SCOPE_VALUES_MAX),
    )
    check_consistency(board)
    return board


def _signing(value: object) -> str | None:
    if value is None or (isinstance(value, str) and is_name(value)):
        return value
    # The value may be the secret itself: do not repeat it.
    raise InvalidValue("signing", f"must be the name of a signing key, never the key: {NAME_RULE}")


def _scopes(value: object) -> tuple[str, ...]:
    names = [
        check_attribute_name(f"scopes[{index}]", item)
        for index, item in enumerate(read_list("scopes", value, SCOPES_MAX, '["country"]'))
    ]
    return _each_once("scopes", names)


def _feeds(value: object) -> tuple[str, ...]:
    ids = [
        check_board_id(item, f"feeds[{index}]")
        for index, item in enumerate(read_list("feeds", value, FEEDS_MAX, '["xp"]'))
    ]
    return _each_once("feeds", ids)


def _each_once(field: str, names: list[str]) -> tuple[str, ...]:
    for index, name in enumerate(names):
        if name in names[:index]:
            raise InvalidValue(f"{field}[{index}]", f"is {name!r} a second time; name each once")
    return tuple(sorted(names))


def _team(value: object) -> Team | None:
    if value is None:
        return None
    given = read_object("team", value, ("attribute", "by"), '{"attribute": "guild", "by": "sum"}')
    attribute = check_attribute_name("team.attribute", given.get("attribute"))
    return Team(attribute, read_choice("team.by", given.get("by"), TeamBy))


def _decay(value: object) -> Decay | None:
    if value is None:
        return None
    given = read_object("decay", value, ("factor", "every"), '{"factor": 0.9, "every": "1d"}')
    factor = given.get("factor")
    if not isinstance(factor, float):
        raise InvalidValue("decay.factor", f"must be a number above 0 and below 1; got {type_name(factor)}")
    return Decay(factor, parse_duration("decay.every", given.get("every"), at_least_ms=EVERY_MS_MIN))


def _bound(given: Mapping[str, object], name: str, default: int) -> int:
    return read_integer(name, given.get(name, default), SCORE_MIN_POSSIBLE, SCORE_MAX_POSSIBLE)


def _duration(given: Mapping[str, object], name: str, default_ms: int, at_least_ms: int = 0) -> int:
    return parse_duration(name, given.get(name, format_duration(default_ms)), at_least_ms)


def definition_of(board: Board) -> dict[str, object]:
    """Return the whole definition in canonical form: `define_board` makes an equal board from it."""
    declared = names_of(board.windows, board.periods)
    keep = {name: rule.value for name, rule in board.keep.items()}
    ending = [name for name in declared if name != WindowKind.ALL_TIME]
    return {
        "title": board.title,
        "description": board.description,
        "keep": _one_for_all(keep, declared),
        "order": board.order.value,
        "ties": board.ties.value,
        "tie_resolution": format_duration(board.tie_resolution_ms),
        "ranking": board.ranking.value,
        "windows": [
            {"name": window.name, "reset": window.reset} if isinstance(window, CronWindow) else window.value
            for window in board.windows
        ],
        "periods": [{"name": period.name, "start": period.start, "end": period.end} for period in board.periods],
        "time_zone": board.time_zone,
        "week_starts": board.week_starts.value,
        "scopes": list(board.scopes),
        "global": board.with_global,
        "score_min": board.score_min,
        "score_max": board.score_max,
        "decimals": board.decimals,
        "late_by": format_duration(board.late_by_ms),
        "retention": _durations(board.retention_ms, ending),
        "history": history_of(board.history),
        "archive_keep": _durations(board.archive_keep_ms, ending),
        "archive_top": board.archive_top,
        "feeds": list(board.feeds),
        "team": board.team and {"attribute": board.team.attribute, "by": board.team.by.value},
        "decay": board.decay and {"factor": board.decay.factor, "every": format_duration(board.decay.every_ms)},
        "writes": board.writes.value,
        "signing": board.signing,
        "open": board.open,
        "shards": board.shards,
        "exact_top": board.exact_top,
        "scope_values_max": board.scope_values_max,
    }


def _durations(durations_ms: Mapping[str, int], names: list[str]) -> object:
    """Return the duration that all windows share, those by window, or None where no window has one."""
    durations = {name: format_duration(duration_ms) for name, duration_ms in durations_ms.items()}
    return _one_for_all(durations, names) if durations else None


def _one_for_all(settings: Mapping[str, str], names: list[str]) -> object:
    """Return the value that all names share, else the values by name."""
    values = {settings.get(name) for name in names}
    return values.pop() if len(values) == 1 else dict(settings)


NAMES = tuple(definition_of(Board(id="any", title="any")))  # every option
