"""The names of all keys of rankd in Redis.

A board's players are spread over its shards; all keys of a shard have the hash tag `{board#shard}`, so that they live
in one slot and change in one function call.

    rankd:{arcade#0}:meta        hash   version, generation, time, cut, loading, stale, newest, p<n> "epoch:sequence"
    rankd:{arcade#0}:<g>:i       hash   "<window>@<scope>" → InstanceForm, in MessagePack (forms.py)
    rankd:{arcade#0}:<g>:z:<n>   sorted set; ascending order is standing order (forms.py: number and member)
    rankd:{arcade#0}:<g>:h:<n>   hash   player → 8-byte prefix of the member (prefixed form)
    rankd:{arcade#0}:<g>:d:<n>   sorted set of distinct scores (boards whose own ranking is dense)
    rankd:{arcade#0}:<g>:n:<n>   hash   distinct score → number of players, beside `d`
    rankd:{arcade#0}:<g>:c:<n>   hash   bucket → MessagePack map player → captured place; "n" → number of buckets
    rankd:{arcade#0}:<g>:m:<n>   hash   player → "<partition>:<sequence>" of the event whose metadata the score has
    rankd:{arcade#0}:<g>:s:<n>   hash   bucket → scores of all players (boards with exact_top: functions/tail.lua)
    rankd:{arcade#0}:<g>:t:<n>   hash   score step → number of players (likewise)

where <g> is the generation and <n> the instance, "<window>@<scope>".
"""

from __future__ import annotations

from enum import StrEnum
from hashlib import blake2b

from rankd.domain.instance import SEPARATOR, InstanceKey

LAYOUT_VERSION = 1
CAPTURE_PLAYERS_PER_BUCKET = 48  # small enough to decode quickly, large enough to amortize a bucket's overhead
_HALF_BITS = 32


class KeyKind(StrEnum):
    """The kinds of keys of an instance."""

    STANDING = "z"
    PREFIXES = "h"
    DISTINCT = "d"
    DISTINCT_COUNTS = "n"
    CAPTURED = "c"
    METADATA = "m"
    SCORES = "s"
    STEPS = "t"


def player_hash(player: str) -> int:
    """Return the 64-bit hash that spreads players over partitions, shards and buckets."""
    return int.from_bytes(blake2b(player.encode(), digest_size=8).digest(), "little")


def shard_of(player: str, shards: int) -> int:
    """Return the shard of a player.

    >>> shard_of("alice", 1)
    0
    """
    return player_hash(player) % shards if shards > 1 else 0


def bucket_hash(player: str) -> int:
    """Return the 32-bit hash of a player's bucket of captured places: `bucket_hash % number of buckets`."""
    return player_hash(player) >> _HALF_BITS


def buckets_for(players: int) -> int:
    """Return the number of buckets for so many captured places."""
    return max(1, -(-players // CAPTURE_PLAYERS_PER_BUCKET))


def instance_name(instance: InstanceKey) -> bytes:
    """Return the name of an instance within its board.

    >>> instance_name(InstanceKey("arcade", "daily:2026-05-04", "country:BR"))
    b'daily:2026-05-04@country:BR'
    """
    return f"{instance.window}{SEPARATOR}{instance.scope}".encode()


def instance_of(board: str, name: bytes) -> InstanceKey:
    """Return the instance that `instance_name` named."""
    window, scope = name.decode().split(SEPARATOR, 1)
    return InstanceKey(board, window, scope)


class ShardKeys:
    """The keys of one board shard.

    >>> ShardKeys("arcade", 0).of(KeyKind.STANDING, 3, b"weekly:2026-W18@global")
    b'rankd:{arcade#0}:3:z:weekly:2026-W18@global'
    """

    __slots__ = ("board", "meta", "prefix", "shard")

    def __init__(self, board: str, shard: int) -> None:
        """Build the names; nothing is read."""
        self.board = board
        self.shard = shard
        self.prefix = f"rankd:{{{board}#{shard}}}:".encode()
        self.meta = self.prefix + b"meta"

    def described(self, generation: int) -> bytes:
        """Return the hash that describes each instance of a generation."""
        return b"%b%d:i" % (self.prefix, generation)

    def of(self, kind: KeyKind, generation: int, name: bytes) -> bytes:
        """Return a key of an instance, by the name `instance_name` gave."""
        return b"%b%d:%b:%b" % (self.prefix, generation, kind.encode(), name)
