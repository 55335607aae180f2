"""Encodes columns as PostgreSQL's binary arrays, a whole column at once.

Null is typed too, so that a statement always has the same argument types and is prepared once.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Sequence
from struct import Struct, pack

from psycopg import adapters
from psycopg.adapt import AdaptersMap, Dumper
from psycopg.pq import Format

_HEADER = Struct(">iiI")  # dimensions, has nulls, element type
_DIMENSION = Struct(">ii")  # length, index of the first element
_NULL = b"\xff\xff\xff\xff"


class PackedArray:
    """An encoded array or null; the class has its type."""

    __slots__ = ("data",)

    element_oid = 0
    array_oid = 0

    def __init__(self, body: bytes | None, count: int = 0, has_nulls: bool = False) -> None:
        """`body` is the elements, each with its length; None is null."""
        self.data = None
        if body is not None:
            # An empty array has no dimensions.
            dimensions = _DIMENSION.pack(count, 1) if count else b""
            self.data = _HEADER.pack(bool(count), has_nulls, self.element_oid) + dimensions + body


class Smallints(PackedArray):
    """smallint[]"""

    __slots__ = ()
    element_oid, array_oid = 21, 1005

    def __init__(self, values: Sequence[int] | None) -> None:
        """Pack the values, none of them null."""
        super().__init__(_numbers(values, "h"), len(values or ()))


class Integers(PackedArray):
    """integer[]"""

    __slots__ = ()
    element_oid, array_oid = 23, 1007

    def __init__(self, values: Sequence[int] | None) -> None:
        """Pack the values, none of them null."""
        super().__init__(_numbers(values, "i"), len(values or ()))


class Bigints(PackedArray):
    """bigint[]"""

    __slots__ = ()
    element_oid, array_oid = 20, 1016

    def __init__(self, values: Sequence[int] | None) -> None:
        """Pack the values, none of them null."""
        super().__init__(_numbers(values, "q"), len(values or ()))


class SparseBigints(PackedArray):
    """bigint[] with nulls"""

    __slots__ = ()
    element_oid, array_oid = Bigints.element_oid, Bigints.array_oid

    def __init__(self, values: Sequence[int | None]) -> None:
        """Pack the values."""
        packed = (_NULL if value is None else pack(">iq", 8, value) for value in values)
        super().__init__(b"".join(packed), len(values), has_nulls=True)


class Texts(PackedArray):
    """text[], given as UTF-8; None is null"""

    __slots__ = ()
    element_oid, array_oid = 25, 1009

    def __init__(self, values: Sequence[bytes | None] | None) -> None:
        """Pack the values."""
        super().__init__(_strings(values), len(values or ()), has_nulls=None in (values or ()))


class Bytes(PackedArray):
    """bytea[]"""

    __slots__ = ()
    element_oid, array_oid = 17, 1001

    def __init__(self, values: Sequence[bytes] | None) -> None:
        """Pack the values."""
        super().__init__(_strings(values), len(values or ()))


def _numbers(values: Sequence[int] | None, code: str) -> bytes | None:
    """Return numbers, each after its size; it copies one byte column at a time, without a loop over values."""
    if values is None:
        return None
    column = array(code, values)
    if sys.byteorder == "little":
        column.byteswap()
    size = column.itemsize
    packed = bytearray(size.to_bytes(4, "big") + bytes(size)) * len(column)
    data = column.tobytes()
    for byte in range(size):
        packed[4 + byte :: 4 + size] = data[byte::size]
    return bytes(packed)


def _strings(values: Iterable[bytes | None] | None) -> bytes | None:
    if values is None:
        return None
    parts: list[bytes] = []
    for value in values:
        if value is None:
            parts.append(_NULL)
        else:
            parts.append(len(value).to_bytes(4, "big"))
            parts.append(value)
    return b"".join(parts)


class _PackedDumper(Dumper):
    format = Format.BINARY

    def dump(self, obj: PackedArray) -> bytes | None:
        """Return the encoded array."""
        return obj.data


def packed_adapters() -> AdaptersMap:
    """Return the driver's adapters and those of packed arrays."""
    known = AdaptersMap(adapters)
    for kind in (Smallints, Integers, Bigints, SparseBigints, Texts, Bytes):
        dumper = type(f"{kind.__name__}Dumper", (_PackedDumper,), {"oid": kind.array_oid})
        known.register_dumper(kind, dumper)
    return known
