"""The ledger on PostgreSQL, for several processes at once."""

from rankd.ledger.postgres.ledger import PARTITIONS, PostgresLedger, migrate

__all__ = ["PARTITIONS", "PostgresLedger", "migrate"]
