"""Scopes: all players, or those who share an attribute, such as `country:BR`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from rankd.domain.text import NAME_BYTES_MAX, check_name, check_text, is_name, is_plain
from rankd.errors import InvalidValue, ScopeUnknown
from rankd.shortening import list_names, quote

GLOBAL = "global"
SCOPE_VALUE_BYTES_MAX = 64
ATTRIBUTES_MAX = 32


def check_attribute_name(field: str, value: object) -> str:
    """Return an attribute's name: like a board's id, but not `global`."""
    name = check_name(field, value)
    if name == GLOBAL:
        raise InvalidValue(field, "must not be 'global', which every board has unless it says global = false")
    return name


def check_attributes(value: object, field: str = "attributes") -> dict[str, str]:
    """Return an event's or a profile's attributes as text, without those of value None.

    An integer becomes its digits, so that {"level": 7} counts in `level:7`.
    """
    if not isinstance(value, Mapping):
        raise InvalidValue(field, f'must be an object such as {{"country": "BR"}}; got {type(value).__name__}')
    if len(value) > ATTRIBUTES_MAX:
        raise InvalidValue(field, f"must be at most {ATTRIBUTES_MAX}; got {len(value)}")
    attributes = {}
    for name, sent in value.items():
        if not is_plain(name, NAME_BYTES_MAX) or not _is_attribute_name(name):
            check_attribute_name(field, name)
        if is_plain(sent, SCOPE_VALUE_BYTES_MAX):
            attributes[name] = sent
        elif sent is not None:
            text = str(sent) if type(sent) is int and sent.bit_length() <= 64 else sent
            attributes[name] = check_text(f"{field}.{name}", text, SCOPE_VALUE_BYTES_MAX)
    return attributes


@lru_cache(maxsize=1_000)
def _is_attribute_name(name: str) -> bool:
    """Return whether a short text is an attribute's name: events bring the same few again and again."""
    return name != GLOBAL and is_name(name)


def scopes_of(attributes: Mapping[str, str], declared: Sequence[str], with_global: bool) -> list[str]:
    """Return the scopes an event counts in; an attribute without a value has none.

    >>> scopes_of({"country": "BR", "car": "red"}, ["country", "level"], with_global=True)
    ['global', 'country:BR']
    """
    scopes = [GLOBAL] if with_global else []
    scopes.extend(f"{name}:{attributes[name]}" for name in declared if name in attributes)
    return scopes


def check_scope(value: object, declared: Sequence[str], with_global: bool, field: str = "scope") -> str:
    """Return the scope of a read if the board declares it; an unused value is an empty scope, not an error."""
    if not isinstance(value, str):
        raise InvalidValue(field, f'must be "global" or "attribute:value"; got {type(value).__name__}')
    if value == GLOBAL:
        if not with_global:
            raise ScopeUnknown(f"{field}: this board has no global scope; it declares {_listed(declared)}")
        return value
    attribute, separator, sent = value.partition(":")
    if attribute not in declared and (not separator or not is_name(attribute)):
        raise InvalidValue(field, f'must be "global" or "attribute:value", such as "country:BR"; got {quote(value)}')
    check_text(field, sent, SCOPE_VALUE_BYTES_MAX)
    if attribute not in declared:
        raise ScopeUnknown(f"{field}: this board does not rank by {attribute!r}; it declares {_listed(declared)}")
    return value


def _listed(declared: Sequence[str]) -> str:
    return list_names(declared) or "no attributes"
