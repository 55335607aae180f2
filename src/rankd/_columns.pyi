"""Columns looked over without a look by Python at each item."""

from typing import Any

def first_odd(ids: list[Any], begin: int, end: int, bytes_max: int) -> int:
    """
    The first of some ids that is not plain printable ASCII of at most so many bytes; `end` when all are.
    """

def extent(column: object) -> tuple[int, int]:
    """The least and the greatest of a column of 64-bit integers."""
