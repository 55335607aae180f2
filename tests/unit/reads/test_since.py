"""A read that waited for a position is not answered from before it, whoever answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import rankd
from rankd import Boards
from rankd.errors import Behind
from rankd.reads.cursor import read_cursor
from rankd.reads.instance_ref import InstanceRef

READS: dict[str, Callable[[Boards, InstanceRef], Any]] = {
    "top": lambda boards, ref: boards.top_in(ref),
    "following": lambda boards, ref: boards.following_in(ref, read_cursor(boards.top("arcade", 1).next or ""), 1),
    "range": lambda boards, ref: boards.range_in(ref, 1, 2),
    "rank": lambda boards, ref: boards.rank_in(ref, "alice"),
    "rank of nobody": lambda boards, ref: boards.rank_in(ref, "nobody"),
    "around": lambda boards, ref: boards.around_in(ref, "alice"),
    "around nobody": lambda boards, ref: boards.around_in(ref, "nobody"),
    "ranks": lambda boards, ref: boards.ranks_in(ref, ["alice"]),
    "ranks of nobody": lambda boards, ref: boards.ranks_in(ref, ["nobody"]),
    "friends": lambda boards, ref: boards.friends_in(ref, ["alice"]),
    "what if": lambda boards, ref: boards.rank_of_score_in(ref, 1),
    "distribution": lambda boards, ref: boards.distribution_in(ref),
}


@pytest.fixture
def boards(tmp_path: Path) -> Iterator[Boards]:
    with rankd.open(tmp_path / "data") as opened:
        opened.define("arcade")
        opened.submit("arcade", "alice", 1)
        opened.submit("arcade", "bob", 2)
        yield opened


@pytest.mark.parametrize("name", READS)
def test_an_answer_from_before_the_position_is_refused(boards: Boards, name: str) -> None:
    sequence = int(boards.position.partition("-")[2])
    ref = boards.resolve_now("arcade")
    READS[name](boards, ref._replace(since={0: sequence}))
    for since in ({0: sequence + 1}, {0: sequence, 1: 1}):
        with pytest.raises(Behind, match=r"at_least: 0-\d"):
            READS[name](boards, ref._replace(since=since))


def test_a_read_remembers_what_it_waited_for(boards: Boards) -> None:
    assert boards.resolve("arcade", at_least=boards.position).since is not None
    assert boards.resolve("arcade").since is None
