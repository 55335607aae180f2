"""The digest of an instance, against an independent SipHash that gives the published values."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankd.domain.digest import DIGEST_KEY, DIGEST_MODULUS, digest, entry_digest, siphash_1_3_128

PUBLISHED_KEY = bytes(range(16))
# From the authors' reference implementation: SipHash-2-4-128 of the empty message, of 00, and of 00 01.
PUBLISHED = ["a3817f04ba25a8e66df67214c7550293", "da87c1d86b99af44347659119b22fc45", "8177228da4a45dc7fca38bdef60affe4"]

ENTRIES = st.lists(
    st.tuples(st.text(max_size=20), st.integers(-(2**63), 2**63 - 1), st.integers(0, 2**48 - 1)), max_size=12
)


class Word:
    """A 64-bit word whose operators wrap: the other way to write SipHash."""

    def __init__(self, value: int) -> None:
        self.value = value % 2**64

    def __add__(self, other: Word) -> Word:
        return Word(self.value + other.value)

    def __xor__(self, other: Word) -> Word:
        return Word(self.value ^ other.value)

    def __lshift__(self, bits: int) -> Word:
        return Word(int(f"{self.value:064b}"[bits:] + f"{self.value:064b}"[:bits], 2))


def siphash(rounds: int, last_rounds: int, key: bytes, message: bytes) -> bytes:
    a, b, c, d = (Word(part) for part in struct.unpack("<4Q", b"uespemosmodnarodarenegylsetybdet"))
    k0, k1 = (Word(part) for part in struct.unpack("<2Q", key))
    a, b, c, d = a ^ k0, b ^ k1 ^ Word(0xEE), c ^ k0, d ^ k1

    def mix(times: int) -> None:
        nonlocal a, b, c, d
        for _ in range(times):
            a, c = a + b, c + d
            b, d = (b << 13) ^ a, (d << 16) ^ c
            a = a << 32
            c, a = c + b, a + d
            b, d = (b << 17) ^ c, (d << 21) ^ a
            c = c << 32

    padded = message + bytes(-(len(message) + 1) % 8) + bytes([len(message) % 256])
    for (part,) in struct.iter_unpack("<Q", padded):
        d = d ^ Word(part)
        mix(rounds)
        a = a ^ Word(part)
    c = c ^ Word(0xEE)
    mix(last_rounds)
    low = a ^ b ^ c ^ d
    b = b ^ Word(0xDD)
    mix(last_rounds)
    return struct.pack("<2Q", low.value, (a ^ b ^ c ^ d).value)


@pytest.mark.parametrize(("length", "published"), list(enumerate(PUBLISHED)))
def test_the_independent_siphash_gives_the_published_values(length: int, published: str) -> None:
    assert siphash(2, 4, PUBLISHED_KEY, bytes(range(length))).hex() == published


@given(st.binary(min_size=16, max_size=16), st.binary(max_size=300))
def test_siphash_1_3_128_agrees_with_the_independent_one(key: bytes, message: bytes) -> None:
    assert siphash_1_3_128(key, message) == int.from_bytes(siphash(1, 3, key, message), "little")


def test_an_entry_is_hashed_as_score_tie_field_and_id_in_little_endian() -> None:
    message = struct.pack("<qQ", -5, 7) + "Zoë".encode()
    assert entry_digest("Zoë", -5, 7) == int.from_bytes(siphash(1, 3, DIGEST_KEY, message), "little")


def test_an_empty_instance_has_digest_0() -> None:
    assert digest([]) == 0


@given(ENTRIES, st.randoms(use_true_random=False))
def test_the_digest_does_not_depend_on_the_order_of_entries(
    entries: list[tuple[str, int, int]], random: object
) -> None:
    shuffled = list(entries)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert digest(shuffled) == digest(entries)


@given(ENTRIES, ENTRIES)
def test_digests_of_shards_add_up_to_the_digest_of_the_whole(
    first_shard: list[tuple[str, int, int]], second_shard: list[tuple[str, int, int]]
) -> None:
    assert (digest(first_shard) + digest(second_shard)) % DIGEST_MODULUS == digest(first_shard + second_shard)


@given(ENTRIES.filter(bool))
def test_a_digest_is_kept_up_to_date_entry_by_entry(entries: list[tuple[str, int, int]]) -> None:
    *others, last = entries
    assert (digest(entries) - entry_digest(*last)) % DIGEST_MODULUS == digest(others)


@pytest.mark.parametrize("other", [("alicf", 976, 5), ("alice", 977, 5), ("alice", 976, 6), ("alice", -976, 5)])
def test_another_player_score_or_tie_field_gives_another_digest(other: tuple[str, int, int]) -> None:
    assert digest([("alice", 976, 5)]) != digest([other])
