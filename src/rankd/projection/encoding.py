"""JSON of what may be large, made part by part: between two parts other threads get their turn.

One call of the encoder holds the interpreter from its first byte to its last. For the state of millions of players that
is seconds, in which the thread that keeps the lease could not speak.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import msgspec

PART_VALUES = 20_000  # of one call of the encoder
SMALL_VALUES = 1_000  # what holds so few is encoded together with others
_WITHIN = (dict, set, frozenset, list, tuple)
_encode = msgspec.json.Encoder().encode


def encoded_in_parts(value: object) -> Iterator[bytes]:
    """Return the bytes that msgspec.json.encode returns, in parts of a bounded number of values.

    Structs within lists and sets are taken whole, and so are those within a mapping if they hold no mapping: they are
    small.
    """
    if isinstance(value, msgspec.Struct) and _has_containers(value):
        yield from _members((name, getattr(value, name)) for name in value.__struct_fields__)
    elif isinstance(value, dict):
        yield from _mapping(value)
    elif isinstance(value, _WITHIN) and len(value) > PART_VALUES:
        yield b"["
        values = iter(value)
        for index, part in enumerate(iter(lambda: list(islice(values, PART_VALUES)), [])):
            yield (b"," if index else b"") + _encode(part)[1:-1]
        yield b"]"
    else:
        yield _encode(value)


def _mapping(value: dict[str, object]) -> Iterator[bytes]:
    first = next(iter(value.values()), None)
    if isinstance(first, _WITHIN) or (isinstance(first, msgspec.Struct) and _has_containers(first)):
        yield from _members(iter(value.items()))
        return
    yield b"{"
    items = iter(value.items())
    for index, part in enumerate(iter(lambda: dict(islice(items, PART_VALUES)), {})):
        yield (b"," if index else b"") + _encode(part)[1:-1]
    yield b"}"


def _members(items: Iterator[tuple[str, object]]) -> Iterator[bytes]:
    """Encode members one by one, but for small ones that come together."""
    small: dict[str, object] = {}
    size, separator = 0, b"{"
    for name, value in items:
        if _is_small(value):
            small[name] = value
            size += 1 + (len(value) if isinstance(value, _WITHIN) else 0)
            if size < PART_VALUES:
                continue
        if small:
            yield separator + _encode(small)[1:-1]
            size, separator = 0, b","
        if name not in small:
            yield separator + _encode(name) + b":"
            separator = b","
            yield from encoded_in_parts(value)
        small = {}
    if small:
        yield separator + _encode(small)[1:-1]
        separator = b","
    yield b"{}" if separator == b"{" else b"}"


def _is_small(value: object) -> bool:
    """Tell whether a value holds few others, none of which holds any."""
    if isinstance(value, msgspec.Struct):
        return not _has_containers(value)
    if not isinstance(value, _WITHIN):
        return True
    if len(value) > SMALL_VALUES:
        return False
    first = next(iter(value.values() if isinstance(value, dict) else value), None)
    return not isinstance(first, (*_WITHIN, msgspec.Struct))


def _has_containers(value: msgspec.Struct) -> bool:
    return any(isinstance(getattr(value, name), _WITHIN) for name in value.__struct_fields__)
