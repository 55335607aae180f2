"""Position tokens: opaque text for clients that names the ledger's position after a write."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from rankd.errors import InvalidValue
from rankd.shortening import quote

_ONE = "(0|[1-9][0-9]{0,4})-(0|[1-9][0-9]{0,18})"
_WRITTEN = re.compile(_ONE, re.ASCII)
_BETWEEN = "~"  # the positions of several partitions
POSITION_PATTERN = f"^{_ONE}({_BETWEEN}{_ONE})*$"  # of a token, for descriptions
_PARTITIONS_MAX = 1_024


class LedgerPosition(NamedTuple):
    """A partition of the ledger and the sequence of an event in it."""

    partition: int
    sequence: int

    @property
    def token(self) -> str:
        """The text given to clients.

        >>> LedgerPosition(0, 8731).token
        '0-8731'
        """
        return token(self.partition, self.sequence)


def token(partition: int, sequence: int) -> str:
    """Return a position as a token."""
    return f"{partition}-{sequence}"


def parse_position(value: object, field: str = "at_least") -> LedgerPosition:
    """Parse a token of an earlier answer."""
    written = _WRITTEN.fullmatch(value) if isinstance(value, str) else None
    if written is None:
        raise InvalidValue(field, f"must be a position as an answer gave it; got {quote(value)}")
    return LedgerPosition(int(written[1]), int(written[2]))


def tokens(positions: Mapping[int, int]) -> str:
    """Return the positions of several partitions as one token.

    >>> tokens({0: 8731, 3: 12})
    '0-8731~3-12'
    """
    if len(positions) == 1:
        ((partition, sequence),) = positions.items()
        return f"{partition}-{sequence}"
    return _BETWEEN.join(token(partition, positions[partition]) for partition in sorted(positions)) or token(0, 0)


def is_upto(ranked: Mapping[int, int], wanted: Mapping[int, int]) -> bool:
    """Return whether the ranked positions, by partition, have reached all the wanted ones.

    Where nothing of a partition is ranked, it has not reached 0 either: a board that is not there yet has no positions.

    >>> is_upto({0: 5, 3: 12}, {3: 12}), is_upto({0: 5}, {0: 5, 3: 1}), is_upto({}, {0: 0})
    (True, False, False)
    """
    for partition, sequence in wanted.items():  # noqa: SIM110 - called for every score, mostly with one partition
        if ranked.get(partition, -1) < sequence:
            return False
    return True


def parse_positions(value: object, field: str = "at_least") -> dict[int, int]:
    """Parse a token of one or several partitions."""
    parts = value.split(_BETWEEN) if isinstance(value, str) else []
    if not 1 <= len(parts) <= _PARTITIONS_MAX:
        raise InvalidValue(field, f"must be a position as an answer gave it; got {quote(value)}")
    positions = [parse_position(part, field) for part in parts]
    return {position.partition: position.sequence for position in positions}
