"""Failures of Kafka as those of a ledger."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rankd.errors import KafkaUnavailable, KafkaUnusable, LedgerUnavailable

_AWAY = "Kafka"
_REMEDY = "try again when it can be reached, with the same key if it is a write"


@contextmanager
def as_ledger_failures() -> Iterator[None]:
    """Raise LedgerUnavailable where Kafka does not do what the ledger needs."""
    try:
        yield
    except KafkaUnavailable as problem:
        raise unavailable(str(problem)) from problem
    except KafkaUnusable as problem:  # somebody has to act
        raise LedgerUnavailable(
            f"Kafka refuses what the ledger needs: {problem}",
            public_message="Kafka refuses what the ledger needs; the server's log says what to change",
            away=_AWAY,
        ) from problem


def unavailable(what: str) -> LedgerUnavailable:
    """Return the error of a ledger whose Kafka cannot be used, for the reason `what`."""
    return LedgerUnavailable(
        f"Kafka cannot be used now ({what}); {_REMEDY}",
        public_message=f"Kafka cannot be used now; {_REMEDY}",
        away=_AWAY,
    )
