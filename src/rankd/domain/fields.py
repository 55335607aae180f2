"""Readers of a definition's fields, for JSON, TOML and keyword arguments; each refusal names its field."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from difflib import get_close_matches
from enum import StrEnum
from typing import TypeVar

from rankd.errors import InvalidValue
from rankd.shortening import list_names, quote, shorten

Choice = TypeVar("Choice", bound=StrEnum)

_TYPE_NAMES = {dict: "an object", list: "a list", str: "text", bool: "a boolean", type(None): "nothing (null)"}


def read_object(field: str, value: object, known: Collection[str], example: str) -> Mapping[str, object]:
    """Return an object, or refuse an unknown name; `field` is empty for the whole definition."""
    if not isinstance(value, Mapping):
        raise InvalidValue(field or "definition", f"must be an object such as {example}; got {type_name(value)}")
    for name in value:
        if name not in known:
            where = shorten(str(name))
            where = f"{field}.{where}" if field else where
            raise InvalidValue(where, f"is not known here; {nearest(name, known)}")
    return value


def read_list(field: str, value: object, items_max: int, example: str) -> list[object]:
    """Return a list of limited length; None is an empty list."""
    if value is None:
        return []
    if not isinstance(value, list | tuple):
        raise InvalidValue(field, f"must be a list such as {example}; got {type_name(value)}")
    if len(value) > items_max:
        raise InvalidValue(field, f"must have at most {items_max} entries; got {len(value)}")
    return list(value)


def read_integer(field: str, value: object, low: int, high: int) -> int:
    """Return an integer from `low` to `high`."""
    if type(value) is not int:
        raise InvalidValue(field, f"must be an integer; got {type_name(value)}")
    if not low <= value <= high:
        raise InvalidValue(field, f"must be from {low} to {high}")
    return value


def read_flag(field: str, value: object) -> bool:
    """Return a boolean, or refuse any other type."""
    if not isinstance(value, bool):
        raise InvalidValue(field, f"must be true or false; got {type_name(value)}")
    return value


def read_choice(field: str, value: object, choices: type[Choice]) -> Choice:
    """Return the choice of a word."""
    words = [choice.value for choice in choices]
    if not isinstance(value, str):
        raise InvalidValue(field, f"must be one of {list_names(words)}; got {type_name(value)}")
    if value not in words:
        raise InvalidValue(field, f"must be one of {list_names(words)}; got {quote(value)}")
    return choices(value)


def nearest(name: object, known: Collection[str]) -> str:
    """Suggest the nearest known name, else list all."""
    sent = shorten(str(name))  # comparison takes quadratic time
    words = sorted(sent.split("_"))
    near = [option for option in known if sorted(option.split("_")) == words]  # `max_score` for `score_max`
    near = near or get_close_matches(sent, known, n=1, cutoff=0.5)
    return f"did you mean {near[0]}?" if near else f"known are {list_names(known) or 'none'}"


def type_name(value: object) -> str:
    """Name a value's type in the words of JSON, else of Python."""
    return _TYPE_NAMES.get(type(value), type(value).__name__)
