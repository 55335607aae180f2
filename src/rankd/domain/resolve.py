"""Resolves the window of a read: `weekly`, `weekly:previous`, `weekly:2026-W18` or none."""

from __future__ import annotations

from typing import NamedTuple

from rankd.domain.board import Board
from rankd.domain.text import is_name
from rankd.domain.window import FIELD, Window, WindowKind
from rankd.errors import InvalidValue, WindowGone, WindowUnknown
from rankd.shortening import list_names, quote

PREVIOUS = "previous"


class Resolved(NamedTuple):
    """A window of the board and the full name of one of its instances."""

    window: Window
    instance: str
    is_over: bool = False  # past its retention


def resolve_window(board: Board, named: object, now: int) -> Resolved:
    """Return the instance that a read names; None is the current instance of the board's first window.

    A declared window without scores, or in the future, is empty. Raises InvalidValue for a malformed name and
    WindowUnknown for an undeclared window.
    """
    if named is None:
        resolved = _current(board.first_window, now)
    elif isinstance(named, str):
        resolved = _named(board, named, now)
    else:
        raise InvalidValue(FIELD, f'must be text such as "weekly" or "weekly:previous"; got {type(named).__name__}')
    gone_at = board.gone_at(resolved.window, resolved.instance)
    return resolved._replace(is_over=gone_at is not None and gone_at <= now)


def window_gone(instance: str) -> WindowGone:
    """Return the error for a window instance that has left the rank store, and cannot be read from the archive."""
    return WindowGone(f"{FIELD}: {instance} is past its retention, and not in the archive")


def _named(board: Board, named: str, now: int) -> Resolved:
    name, separator, label = named.partition(":")
    if name == WindowKind.PERIOD:
        return _period(board, named, label)
    window = board.all_windows.get(name)
    if window is None:
        if not is_name(name):
            raise InvalidValue(FIELD, f"{quote(named)} names no window; this board declares {_declared(board)}")
        raise WindowUnknown(f"{FIELD}: this board does not declare {name!r}; it declares {_declared(board)}")
    if not separator:
        return _current(window, now)
    if label == PREVIOUS:
        previous = window.previous(_current(window, now).instance)
        if previous is None:
            raise InvalidValue(FIELD, f"{named!r} does not exist: {name} never ends; read {name}")
        return Resolved(window, previous)
    return Resolved(window, window.parse(named))


def _period(board: Board, named: str, label: str) -> Resolved:
    window = board.all_windows.get(named)
    if window is not None:
        return Resolved(window, named)
    if not is_name(label):
        raise InvalidValue(FIELD, f'{quote(named)} names no period; write "period:" and the name of one')
    raise WindowUnknown(f"{FIELD}: this board does not declare {named!r}; it declares {_declared(board)}")


def _current(window: Window, now: int) -> Resolved:
    instance = window.instance_at(now)
    if instance is None:
        raise AssertionError("only periods have gaps, and they are read by name")
    return Resolved(window, instance)


def _declared(board: Board) -> str:
    return list_names(board.all_windows)
