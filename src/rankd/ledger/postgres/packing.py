"""Columns as PostgreSQL's binary arrays: ten thousand numbers are packed at once and not one by one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from struct import Struct, pack

from psycopg import adapters
from psycopg.adapt import AdaptersMap, Dumper
from psycopg.pq import Format

_HEADER = Struct(">iiIii")  # dimensions, whether there are nulls, the elements' type, how many, and the first's index
_NULL = b"\xff\xff\xff\xff"


class Packed:
    """An array as it goes over the wire; which type it has is said by the class."""

    __slots__ = ("data",)

    element_oid = 0
    array_oid = 0

    def __init__(self, count: int, body: bytes, has_nulls: bool = False) -> None:
        """`body` are the elements, each with its length."""
        header = (
            _HEADER.pack(1, has_nulls, self.element_oid, count, 1) if count else pack(">iiI", 0, 0, self.element_oid)
        )
        self.data = header + body


class Smallints(Packed):
    """smallint[]"""

    __slots__ = ()
    element_oid, array_oid = 21, 1005

    def __init__(self, values: Sequence[int]) -> None:
        """Pack the values, none of them null."""
        super().__init__(len(values), _numbers(values, 2, "h"))


class Integers(Packed):
    """integer[]"""

    __slots__ = ()
    element_oid, array_oid = 23, 1007

    def __init__(self, values: Sequence[int]) -> None:
        """Pack the values, none of them null."""
        super().__init__(len(values), _numbers(values, 4, "i"))


class Bigints(Packed):
    """bigint[]"""

    __slots__ = ()
    element_oid, array_oid = 20, 1016

    def __init__(self, values: Sequence[int]) -> None:
        """Pack the values, none of them null."""
        super().__init__(len(values), _numbers(values, 8, "q"))


class SparseBigints(Packed):
    """bigint[] with nulls"""

    __slots__ = ()
    element_oid, array_oid = Bigints.element_oid, Bigints.array_oid

    def __init__(self, values: Sequence[int | None]) -> None:
        """Pack the values."""
        packed = (_NULL if value is None else pack(">iq", 8, value) for value in values)
        super().__init__(len(values), b"".join(packed), has_nulls=True)


class Texts(Packed):
    """text[], given as UTF-8; None is null"""

    __slots__ = ()
    element_oid, array_oid = 25, 1009

    def __init__(self, values: Sequence[bytes | None]) -> None:
        """Pack the values."""
        super().__init__(len(values), _strings(values), has_nulls=None in values)


class Bytes(Packed):
    """bytea[]"""

    __slots__ = ()
    element_oid, array_oid = 17, 1001

    def __init__(self, values: Sequence[bytes]) -> None:
        """Pack the values."""
        super().__init__(len(values), _strings(values))


def _numbers(values: Sequence[int], size: int, code: str) -> bytes:
    with_sizes = [size] * (2 * len(values))
    with_sizes[1::2] = values
    return pack(f">{f'i{code}' * len(values)}", *with_sizes)


def _strings(values: Iterable[bytes | None]) -> bytes:
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

    def dump(self, obj: Packed) -> bytes:
        """Return it as it is."""
        return obj.data


def packed_adapters() -> AdaptersMap:
    """Return the driver's adapters and those of packed arrays."""
    known = AdaptersMap(adapters)
    for kind in (Smallints, Integers, Bigints, SparseBigints, Texts, Bytes):
        dumper = type(f"{kind.__name__}Dumper", (_PackedDumper,), {"oid": kind.array_oid})
        known.register_dumper(kind, dumper)
    return known
