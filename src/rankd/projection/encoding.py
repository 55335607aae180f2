"""JSON of large state, encoded in parts so that other threads run between them.

One call of the encoder holds the interpreter until it ends. For the state of millions of players that takes seconds, in
which the thread that renews the lease could not run.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator
from itertools import islice

import msgspec

from rankd._columns import MetadataIndex, TeamTotals
from rankd._numbers import Texts

PART_VALUES = 20_000  # values in one call of the encoder
SMALL_VALUES = 1_000  # containers of at most so many values are encoded together
_WITHIN = (dict, set, frozenset, list, tuple)
_TABLES = (MetadataIndex, TeamTotals)


def encode_native(value: object) -> bytes:
    """Encode a native part of a state; msgspec's enc_hook."""
    if isinstance(value, Texts | MetadataIndex | TeamTotals):
        return value.dump()
    raise NotImplementedError(f"a state holds no {type(value).__name__}")


def decode_native(kind: type, value: object) -> object:
    """Decode a native part of a state, and return anything else unchanged; msgspec's dec_hook."""
    if kind is Texts and isinstance(value, str):
        return Texts(b64decode(value))
    if kind in _TABLES and isinstance(value, str):
        return kind.load(b64decode(value))
    return value


_encode = msgspec.json.Encoder(enc_hook=encode_native).encode


def encoded_in_parts(value: object) -> Iterator[bytes]:
    """Yield the bytes of msgspec.json.encode in parts of a bounded number of values.

    Structs within lists and sets, and structs without containers, are small and are encoded whole.
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
    if isinstance(first, (*_WITHIN, *_TABLES)) or (isinstance(first, msgspec.Struct) and _has_containers(first)):
        yield from _members(iter(value.items()))
        return
    yield b"{"
    items = iter(value.items())
    for index, part in enumerate(iter(lambda: dict(islice(items, PART_VALUES)), {})):
        yield (b"," if index else b"") + _encode(part)[1:-1]
    yield b"}"


def _members(items: Iterator[tuple[str, object]]) -> Iterator[bytes]:
    """Encode large members one by one and small ones together."""
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
    """Return whether a value holds few values, none of them a container."""
    if isinstance(value, _TABLES):
        return len(value) <= SMALL_VALUES
    if isinstance(value, msgspec.Struct):
        return not _has_containers(value)
    if not isinstance(value, _WITHIN):
        return True
    if len(value) > SMALL_VALUES:
        return False
    first = next(iter(value.values() if isinstance(value, dict) else value), None)
    return not isinstance(first, (*_WITHIN, *_TABLES, msgspec.Struct))


def _has_containers(value: msgspec.Struct) -> bool:
    return any(isinstance(getattr(value, name), _WITHIN) for name in value.__struct_fields__)
