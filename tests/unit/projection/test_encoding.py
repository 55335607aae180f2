"""State is encoded in parts: the same bytes as at once, and no part is large."""

from __future__ import annotations

import random
import sys

import msgspec
import pytest

from rankd._columns import MetadataIndex, TeamTotals
from rankd.projection import encoding
from rankd.projection.encoding import decode_native, encode_native, encoded_in_parts
from rankd.projection.state import BoardState, State

PLAYERS = 5_000


def noted_of(players: list[str], event: int) -> MetadataIndex:
    noted = MetadataIndex(bytes(16))
    for player in players:
        noted.put(player, event)
    return noted


def totals_of(teams: list[str]) -> TeamTotals:
    totals = TeamTotals(bytes(16))
    for team in teams:
        totals.replace(team, None, 3)
    return totals


def board_of(rng: random.Random, instances: int, players: int) -> BoardState:
    def some() -> list[str]:
        return [f'p"{number}' for number in range(rng.randint(0, players))]

    return BoardState(
        version=rng.randint(1, 9),
        born=1,
        defined_at=0,
        windows={f"w{number}" for number in range(instances)},
        closed=set(some()),
        midnight=rng.choice([None, 5]),
        wide={f"i{number}": dict.fromkeys(some(), 2**70) for number in range(instances)},
        uncounted={f"i{number}": {part: set(some()) for part in "ab"} for number in range(instances)},
        lost={f"i{number}": set(some()) for number in range(instances)},
        teams={f"i{number}": totals_of(some()) for number in range(instances)},
        metadata={f"i{number}": noted_of(some(), number + 1) for number in range(instances)},
    )


@pytest.mark.parametrize("part_values", [1, 3, 20_000])
def test_parts_together_are_what_is_encoded_at_once(part_values: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "PART_VALUES", part_values)
    monkeypatch.setattr(encoding, "SMALL_VALUES", part_values)
    seed = random.randrange(2**32)
    sys.stdout.write(f"seed {seed}\n")
    rng = random.Random(seed)
    for _ in range(30):
        boards = {f"b{number}": board_of(rng, rng.randint(0, 3), rng.choice([0, 1, 8])) for number in range(3)}
        state = State(boards=boards, versions={"gone": 2}, generation=7)

        assert b"".join(encoded_in_parts(state)) == msgspec.json.encode(state, enc_hook=encode_native)


def test_a_state_comes_back_from_its_json() -> None:
    rng = random.Random(1)
    state = State(boards={"b": board_of(rng, 3, 8)})

    assert msgspec.json.decode(b"".join(encoded_in_parts(state)), type=State, dec_hook=decode_native) == state


def test_no_part_holds_more_than_so_many_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "PART_VALUES", 100)
    monkeypatch.setattr(encoding, "SMALL_VALUES", 50)
    names = [f"p{number}" for number in range(PLAYERS)]
    state = State(
        boards={
            "b": BoardState(
                version=1,
                born=1,
                defined_at=0,
                lost={"i": set(names)},
                teams={"large": totals_of(names), **{f"small-{name}": totals_of([name]) for name in names}},
                metadata={"large": noted_of(names, 1), **{f"small-{name}": noted_of([name], 1) for name in names}},
            )
        }
    )

    assert max(part.count(b",") for part in encoded_in_parts(state)) <= 2 * (100 + 50)
