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
from rankd.reads.meaning import Meant

READS: dict[str, Callable[[Boards, Meant], Any]] = {
    "top": lambda boards, meant: boards.top_in(meant),
    "following": lambda boards, meant: boards.following_in(meant, read_cursor(boards.top("arcade", 1).next or ""), 1),
    "range": lambda boards, meant: boards.range_in(meant, 1, 2),
    "rank": lambda boards, meant: boards.rank_in(meant, "alice"),
    "rank of nobody": lambda boards, meant: boards.rank_in(meant, "nobody"),
    "around": lambda boards, meant: boards.around_in(meant, "alice"),
    "around nobody": lambda boards, meant: boards.around_in(meant, "nobody"),
    "ranks": lambda boards, meant: boards.ranks_in(meant, ["alice"]),
    "ranks of nobody": lambda boards, meant: boards.ranks_in(meant, ["nobody"]),
    "friends": lambda boards, meant: boards.friends_in(meant, ["alice"]),
    "what if": lambda boards, meant: boards.rank_of_score_in(meant, 1),
    "distribution": lambda boards, meant: boards.distribution_in(meant),
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
    meant = boards.meant_now("arcade")
    READS[name](boards, meant._replace(since={0: sequence}))
    for since in ({0: sequence + 1}, {0: sequence, 1: 1}):
        with pytest.raises(Behind, match=r"at_least: 0-\d"):
            READS[name](boards, meant._replace(since=since))


def test_a_read_remembers_what_it_waited_for(boards: Boards) -> None:
    assert boards.meant("arcade", at_least=boards.position).since is not None
    assert boards.meant("arcade").since is None
