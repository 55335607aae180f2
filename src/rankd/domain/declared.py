"""The declared windows of a definition, with keep and retention for all or for each."""

from __future__ import annotations

from collections.abc import Mapping

from rankd.domain.board import CronWindow, DeclaredPeriod
from rankd.domain.cron import check_cron
from rankd.domain.duration import parse_duration
from rankd.domain.fields import nearest, read_list, read_object, type_name
from rankd.domain.instant import parse_instant
from rankd.domain.order import Keep
from rankd.domain.resolve import PREVIOUS
from rankd.domain.rollup import RollUp, WindowKeep
from rankd.domain.text import check_name
from rankd.domain.window import NAMED_BY_KIND, WindowKind
from rankd.errors import InvalidValue
from rankd.shortening import list_names, quote

WINDOWS_MAX = 16
PERIODS_MAX = 1_000


def read_windows(value: object) -> tuple[WindowKind | CronWindow, ...]:
    """Return the declared windows in order, at least one: the first is the default of reads."""
    windows: list[WindowKind | CronWindow] = []
    for index, item in enumerate(read_list("windows", value, WINDOWS_MAX, '["all_time", "weekly"]')):
        field = f"windows[{index}]"
        window = _kind(field, item) if isinstance(item, str) else _cron_window(field, item)
        windows.append(window)
        *others, name = names_of(tuple(windows), ())
        if name in others:
            raise InvalidValue(field, f"is {name!r} a second time; name each window once")
    if not windows:
        raise InvalidValue("windows", 'must name at least one window, such as "all_time": reads need a default')
    return tuple(windows)


def _kind(field: str, item: str) -> WindowKind:
    if item not in NAMED_BY_KIND:
        raise InvalidValue(
            field,
            f"{quote(item)} is no window; {nearest(item, NAMED_BY_KIND)} "
            'One of your own is written {"name": "raid", "reset": "0 18 * * 5"}',
        )
    return WindowKind(item)


def _cron_window(field: str, item: object) -> CronWindow:
    example = '"weekly" or {"name": "raid", "reset": "0 18 * * 5"}'
    given = read_object(field, item, ("name", "reset"), example)
    name = check_name(f"{field}.name", given.get("name"))
    if name in tuple(WindowKind):
        raise InvalidValue(f"{field}.name", f"must not be {name!r}, which has a meaning already; choose another")
    return CronWindow(name, check_cron(f"{field}.reset", given.get("reset")))


def read_periods(value: object) -> tuple[DeclaredPeriod, ...]:
    """Return the declared periods by name."""
    example = '{"name": "summer-26", "start": "2026-06-01T00:00:00Z", "end": "2026-09-01T00:00:00Z"}'
    periods: dict[str, DeclaredPeriod] = {}
    for index, item in enumerate(read_list("periods", value, PERIODS_MAX, f"[{example}]")):
        field = f"periods[{index}]"
        given = read_object(field, item, ("name", "start", "end"), example)
        name = check_name(f"{field}.name", given.get("name"))
        if name in periods or name == PREVIOUS:
            raise InvalidValue(f"{field}.name", f"must not be {name!r}, which is taken; choose another")
        start = parse_instant(f"{field}.start", given.get("start"))
        end = parse_instant(f"{field}.end", given.get("end"))
        if start >= end:
            raise InvalidValue(f"{field}.end", "must be after start")
        periods[name] = DeclaredPeriod(name, start, end)
    return tuple(sorted(periods.values(), key=lambda period: period.name))


def names_of(windows: tuple[WindowKind | CronWindow, ...], periods: tuple[DeclaredPeriod, ...]) -> list[str]:
    """Return the names of windows and periods in keep and retention."""
    named = [window.name if isinstance(window, CronWindow) else window.value for window in windows]
    return named + [f"{WindowKind.PERIOD}:{period.name}" for period in periods]


def read_keep(value: object, declared: list[str]) -> dict[str, WindowKeep]:
    """Return the keep rule of every declared window, `best` by default."""
    if isinstance(value, Mapping):
        rules = {name: _one_keep(f"keep.{name}", rule) for name, rule in _by_window("keep", value, declared).items()}
        return {name: rules.get(name) or rules.get(_group(name)) or Keep.BEST for name in declared}
    return dict.fromkeys(declared, _one_keep("keep", value))


def _one_keep(field: str, value: object) -> WindowKeep:
    words = [*Keep, *RollUp]
    if not isinstance(value, str) or value not in words:
        got = quote(value) if isinstance(value, str) else type_name(value)
        raise InvalidValue(field, f"must be one of {list_names(words)}, or an object by window; got {got}")
    return Keep(value) if value in tuple(Keep) else RollUp(value)


def read_retention(field: str, value: object, declared: list[str]) -> dict[str, int]:
    """Return the retention (ms), in the ranks or in the archive, of every declared window that has one."""
    ending = [name for name in declared if name != WindowKind.ALL_TIME]
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        return dict.fromkeys(ending, parse_duration(field, value))
    rules = {}
    for name, rule in _by_window(field, value, declared).items():
        if name == WindowKind.ALL_TIME:
            raise InvalidValue(f"{field}.all_time", "is not possible: all_time never ends; leave it out")
        rules[name] = None if rule is None else parse_duration(f"{field}.{name}", rule)
    chosen = {name: rules.get(name, rules.get(_group(name))) for name in ending}
    return {name: retention_ms for name, retention_ms in chosen.items() if retention_ms is not None}


def _by_window(field: str, value: Mapping[str, object], declared: list[str]) -> Mapping[str, object]:
    groups = {_group(name) for name in declared} & {WindowKind.PERIOD.value}
    return read_object(field, value, [*declared, *groups], "")


def _group(name: str) -> str:
    return name.partition(":")[0]
