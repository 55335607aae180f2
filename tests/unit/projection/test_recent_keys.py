"""The keys that a partition of a log has seen, beside a dict that remembers when each came."""

from __future__ import annotations

import random
from array import array
from hashlib import blake2b

import pytest

from rankd._columns import RecentKeys, rising

TTL_MS = 86_400_000
HOUR_MS = 3_600_000
NO_KEY = bytes(32)


def key_of(number: int, fingerprint: int = 1) -> bytes:
    return blake2b(str(number).encode(), digest_size=16).digest() + fingerprint.to_bytes(16, "little")


def admit(keys: RecentKeys, *sent: tuple[int, bytes]) -> bytes | None:
    """Ask about (time, key)."""
    return keys.admit(b"".join(key for _, key in sent), array("q", [time for time, _ in sent]))


def copied(keys: RecentKeys) -> RecentKeys:
    snapshot = keys.snapshot()
    loaded = RecentKeys(snapshot.key, TTL_MS)
    loaded.reserve(len(snapshot))
    for index in range(snapshot.part_count):
        loaded.restore(snapshot.part(index), snapshot.time)
    return loaded


@pytest.mark.parametrize("seed", range(4))
def test_they_judge_as_a_dict_does_in_batches_of_any_size(seed: int) -> None:
    rng = random.Random(seed)
    keys, expected, time = RecentKeys(rng.randbytes(16), TTL_MS), dict[int, tuple[int, int]](), 10**12
    numbers_max = rng.choice([50, 3_000, 40_000])
    for _ in range(150):
        sent, verdicts = [], []
        for _ in range(rng.choice([1, 30, 700])):
            time += rng.choice([0, 0, 1, 50] if rng.random() < 0.99 else [HOUR_MS, TTL_MS - 1, TTL_MS, 400 * TTL_MS])
            if rng.random() < 0.1:
                sent.append((time, NO_KEY))
                verdicts.append(0)
                continue
            number, fingerprint = rng.randrange(numbers_max), rng.choice([256, 256, 256, 512])
            first_time, first = expected.get(number, (-TTL_MS, 0))
            if time - first_time < TTL_MS:
                verdicts.append(1 if first == fingerprint else 2)
            else:
                verdicts.append(0)
                expected[number] = time, fingerprint
            sent.append((time, key_of(number, fingerprint)))
        assert admit(keys, *sent) == (bytes(verdicts) if any(verdicts) else None)
        if rng.random() < 0.05:
            keys.check()
            keys = copied(keys)
    keys.check()


@pytest.mark.parametrize(("later", "verdict"), [(0, b"\1"), (TTL_MS - 1, b"\1"), (TTL_MS, None), (9 * TTL_MS, None)])
def test_a_key_is_known_until_its_time_to_live_is_over(later: int, verdict: bytes | None) -> None:
    keys = RecentKeys(bytes(16), TTL_MS)
    assert admit(keys, (1_000, key_of(1)), (2_000, key_of(2))) is None
    assert admit(keys, (1_000 + later, key_of(1))) == verdict if later else True
    keys = RecentKeys(bytes(16), TTL_MS)
    assert admit(keys, (1_000, key_of(1)), (1_000 + later, key_of(1))) == (None if verdict is None else b"\0\1")


def test_a_snapshot_stays_as_it_was() -> None:
    keys = RecentKeys(bytes(16), TTL_MS)
    admit(keys, *((1_000, key_of(number)) for number in range(10_000)))
    snapshot = keys.snapshot()
    before = [snapshot.part(index) for index in range(snapshot.part_count)]
    admit(keys, *((2_000, key_of(number)) for number in range(10_000, 30_000)))
    admit(keys, (1_000 + TTL_MS, key_of(0)))
    assert [snapshot.part(index) for index in range(snapshot.part_count)] == before
    assert len(snapshot) == sum(map(len, before)) // 20 == 10_000


def test_keys_take_at_most_32_bytes_and_leave_when_they_have_expired() -> None:
    keys = RecentKeys(bytes(16), TTL_MS)
    admit(keys, *((1_000 + number, key_of(number)) for number in range(50_000)))
    assert len(keys) == 50_000
    assert keys.memory_bytes() <= 32 * len(keys)
    for hour in range(27):
        admit(keys, (60_000 + hour * HOUR_MS, key_of(100_000 + hour)))
    assert len(keys) <= 26
    keys.check()


def test_what_is_no_dump_and_a_time_that_goes_back_are_refused() -> None:
    keys = RecentKeys(bytes(16), TTL_MS)
    admit(keys, (1_000, key_of(1)))
    for dumped in (b"x", bytes(20)):
        with pytest.raises(ValueError, match="no dump"):
            RecentKeys(bytes(16), TTL_MS).restore(dumped, 1)
    with pytest.raises(ValueError, match="never goes back"):
        admit(keys, (999, key_of(2)))
    with pytest.raises(ValueError, match="one length"):
        keys.admit(key_of(1), array("q", [1, 2]))
    with pytest.raises(ValueError, match="16 bytes"):
        RecentKeys(b"short", TTL_MS)


def test_times_never_go_back_and_take_unsent_instants_with_them() -> None:
    times, at = array("q", [5, 3, 9, 8]), array("q", [5, 3, 2, 8])
    assert rising(array("q", [5, 5, 9]), array("q", [5, 5, 9]), None, 5) is None
    assert rising(array("q"), array("q"), None, 5) is None
    for sent, instants in ((None, [5, 5, 9, 9]), (b"\0\0\1\0", [5, 5, 2, 9]), (b"\1\1\1\1", [5, 3, 2, 8])):
        risen = rising(times, at, sent, 4)
        assert risen is not None
        assert [array("q", column).tolist() for column in risen] == [[5, 5, 9, 9], instants]
    later = rising(times, at, None, 7)
    assert later is not None
    assert array("q", later[0]).tolist() == [7, 7, 9, 9]
