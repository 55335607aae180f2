"""Rows of the `origins` table: where requests came from, each with its checksum."""

from __future__ import annotations

from typing import Any

from rankd.ledger.origin import RequestOrigin
from rankd.ledger.sqlite.checksum import check, checksum

SELECT_ORIGINS = "SELECT first, upto, address, user_agent, request_id, checksum FROM origins"


def origin_row(first: int, upto: int, origin: RequestOrigin) -> tuple[object, ...]:
    """Return the row of a request's events."""
    values = (first, upto, origin.address, origin.user_agent, origin.request_id)
    return (*values, _checksum(values))


def origin_in(row: Any) -> RequestOrigin:
    """Return a row's origin; LedgerDamaged where the checksum does not match."""
    *values, stored = row
    first, _, address, user_agent, request_id = values
    check(f"where the events from {first} on came from", stored, *_covered(values))
    return RequestOrigin(str(address), user_agent, request_id)


def _checksum(values: Any) -> int:
    return checksum(*_covered(values))


def _covered(values: Any) -> Any:
    """Return what the checksum covers: an address alone has that of versions which kept nothing else."""
    *_, user_agent, request_id = values
    return values[:3] if user_agent is None and request_id is None else values
