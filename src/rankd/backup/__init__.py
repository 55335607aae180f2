"""Copies of an embedded ledger in the archive: written while it is used, restored on another machine."""
