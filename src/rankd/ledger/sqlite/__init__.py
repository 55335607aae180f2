"""The embedded ledger: one SQLite file, one partition."""
