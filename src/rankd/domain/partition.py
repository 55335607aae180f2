"""The partition of a player's events in a scaled-out ledger: a function of the player's id that never changes."""

from __future__ import annotations

from hashlib import blake2b

PARTITIONS_MAX = 1_024
_HASH_BYTES = 8


def partition_of(player: str, partitions: int) -> int:
    """Return the partition of a player's events, from 0.

    >>> partition_of("alice", 8), partition_of("Zoë", 8), partition_of("alice", 1)
    (5, 0, 0)
    """
    return int.from_bytes(blake2b(player.encode(), digest_size=_HASH_BYTES).digest(), "little") % partitions
