"""The digest of an instance: a 128-bit number that is equal in two backends exactly when their scores are.

    digest = sum over entries of H(entry) mod 2^128
    H      = SipHash-1-3 with 128-bit output, read as a little-endian integer
    key    = the 16 bytes "rankd digest  v1"
    entry  = score (8 bytes, two's complement, little-endian) || tie field (8 bytes, little-endian) || id in UTF-8

A sum does not depend on order, so digests merge over shards and can be updated entry by entry. It detects damage and
divergence; it is no defence against an attacker who chooses all entries.
"""

from __future__ import annotations

from collections.abc import Iterable

DIGEST_KEY = b"rankd digest  v1"
DIGEST_MODULUS = 1 << 128
_MASK = (1 << 64) - 1


def digest(entries: Iterable[tuple[str, int, int]]) -> int:
    """Return the digest of (player, score, tie field) entries, in any order.

    >>> digest([("a", 1, 0), ("b", 2, 0)]) == digest([("b", 2, 0), ("a", 1, 0)])
    True
    """
    return sum(entry_digest(player, score, tie) for player, score, tie in entries) % DIGEST_MODULUS


def entry_digest(player: str, score: int, tie: int) -> int:
    """Return the part of one entry in its instance's digest."""
    message = score.to_bytes(8, "little", signed=True) + tie.to_bytes(8, "little") + player.encode()
    return siphash_1_3_128(DIGEST_KEY, message)


def siphash_1_3_128(key: bytes, message: bytes) -> int:
    """Return SipHash with one round a block, three at the end and 128 bits of output."""
    state = _absorbed(key, message, 0xEE)
    return _squeeze(state, 0xEE) | _squeeze(state, 0xDD, word=1) << 64


def siphash_1_3_64(key: bytes, message: bytes) -> int:
    """Return SipHash with one round a block, three at the end and 64 bits of output."""
    return _squeeze(_absorbed(key, message, 0), 0xFF)


def _absorbed(key: bytes, message: bytes, width: int) -> list[int]:
    k0, k1 = int.from_bytes(key[:8], "little"), int.from_bytes(key[8:16], "little")
    state = [k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D ^ width, k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573]
    whole = len(message) & ~7
    tail = message[whole:].ljust(7, b"\0") + bytes([len(message) & 0xFF])
    for start in range(0, whole, 8):
        _absorb(state, int.from_bytes(message[start : start + 8], "little"))
    _absorb(state, int.from_bytes(tail, "little"))
    return state


def _absorb(state: list[int], block: int) -> None:
    state[3] ^= block
    _round(state)
    state[0] ^= block


def _squeeze(state: list[int], marker: int, word: int = 2) -> int:
    state[word] ^= marker
    for _ in range(3):
        _round(state)
    return state[0] ^ state[1] ^ state[2] ^ state[3]


def _round(state: list[int]) -> None:
    v0, v1, v2, v3 = state
    v0 = (v0 + v1) & _MASK
    v1 = _rotate(v1, 13) ^ v0
    v0 = _rotate(v0, 32)
    v2 = (v2 + v3) & _MASK
    v3 = _rotate(v3, 16) ^ v2
    v0 = (v0 + v3) & _MASK
    v3 = _rotate(v3, 21) ^ v0
    v2 = (v2 + v1) & _MASK
    v1 = _rotate(v1, 17) ^ v2
    v2 = _rotate(v2, 32)
    state[:] = v0, v1, v2, v3


def _rotate(word: int, bits: int) -> int:
    return ((word << bits) | (word >> (64 - bits))) & _MASK
