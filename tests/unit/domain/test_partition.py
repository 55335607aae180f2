"""Players' partitions: the same for ever, in any language, and even."""

from __future__ import annotations

from collections import Counter

import pytest

from rankd.domain.partition import partition_of


# Written down once: events already stand where these say.
@pytest.mark.parametrize(
    ("player", "partitions", "expected"),
    [("alice", 8, 5), ("Zoë", 8, 0), ("player-1", 8, 0), ("player-1", 7, 3), ("😀", 1_000, 805), ("alice", 1, 0)],
)
def test_a_players_partition_never_changes(player: str, partitions: int, expected: int) -> None:
    assert partition_of(player, partitions) == expected


def test_players_are_spread_evenly() -> None:
    counts = Counter(partition_of(f"player-{number}", 8) for number in range(8_000))

    assert set(counts) == set(range(8))
    assert max(counts.values()) < 1.15 * min(counts.values())
