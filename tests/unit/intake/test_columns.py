"""Columns looked over natively, beside the same rules in Python."""

from __future__ import annotations

import random
from array import array
from typing import Any

import pytest

from rankd._columns import extent, first_odd

BYTES_MAX = 128


class Named(str):
    """A str that is not quite one."""


ODD: list[Any] = [
    "",
    ".",
    ".hidden",
    "a\tb",
    "a\x7f",
    "\x00",
    "Zoë",
    "a" * 129,
    "\ud800",
    7,
    None,
    b"bytes",
    Named("ann"),
    1.5,
]
PLAIN = ["a", "a" * 128, "user_00000001", "a b", "~", " ", "a.b"]


def is_plain(player: Any) -> bool:
    return (
        type(player) is str
        and player.isascii()
        and player.isprintable()
        and 0 < len(player) <= BYTES_MAX
        and player[0] != "."
    )


@pytest.mark.parametrize("player", [*ODD, *PLAIN], ids=repr)
def test_an_id_is_plain_or_odd_as_python_says(player: Any) -> None:
    assert (first_odd([player], 0, 1, BYTES_MAX) == 1) == is_plain(player)


def test_the_first_odd_one_is_found_wherever_it_is(rng: random.Random) -> None:
    for _ in range(300):
        ids = [rng.choice(ODD if rng.random() < 0.05 else PLAIN) for _ in range(rng.randrange(60))]
        begin = rng.randrange(len(ids) + 1)
        end = rng.randrange(begin, len(ids) + 1)
        wanted = next((index for index in range(begin, end) if not is_plain(ids[index])), end)
        assert first_odd(ids, begin, end, BYTES_MAX) == wanted


def test_an_end_behind_the_last_is_no_harm() -> None:
    assert first_odd(["a"], 0, 9, BYTES_MAX) == 9
    assert first_odd([], 0, 0, BYTES_MAX) == 0
    assert first_odd(["a"], -3, 1, BYTES_MAX) == 1


def test_the_least_and_the_greatest_of_a_column(rng: random.Random) -> None:
    for _ in range(100):
        column = array("q", [rng.randrange(-(2**63), 2**63) for _ in range(rng.randrange(1, 50))])
        assert extent(column) == (min(column), max(column))


@pytest.mark.parametrize("column", [array("q"), array("i", [1]), array("d", [1.0])], ids=repr)
def test_what_is_no_column_of_integers_is_refused(column: array[Any]) -> None:
    with pytest.raises(ValueError, match="64-bit"):
        extent(column)
