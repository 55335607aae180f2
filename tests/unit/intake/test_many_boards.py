"""Batches with scores of several boards: grouped by board, with the outcome of sending them one by one."""

from __future__ import annotations

import random
from typing import Any

import pytest
from tests.unit.conftest import OpenBoards

from rankd import Boards, ManualClock
from rankd.api.calls.bodies import Score
from rankd.errors import BoardUnknown, InvalidValue, KeyReused
from rankd.intake.scores import fingerprint_of
from rankd.intake.sender import LOCAL, sender_of
from rankd.node.open_embedded import embedded_of

# Some feed others that are sent scores too, so that the order between them matters.
BOARDS: dict[str, dict[str, Any]] = {
    "best": {},
    "latest": {"keep": "latest", "windows": ["daily", "all_time"]},
    "first": {"keep": "first"},
    "summed": {"keep": "sum", "score_min": -50, "score_max": 50},
    "scoped": {"scopes": ["country"], "keep": "latest"},
    "guilds": {"team": {"attribute": "guild", "by": "best"}, "keep": "latest"},
    "feeding": {"feeds": ["latest", "summed"]},
    "other": {"feeds": ["summed", "guilds", "first"], "keep": "first"},
}


def events(rng: random.Random, now: int, count: int) -> list[dict[str, Any]]:
    made = []
    for number in range(count):
        event: dict[str, Any] = {
            "board": rng.choice([*BOARDS]),
            "player": f"p{rng.randrange(8)}",
            "score": rng.randrange(-40, 40),
        }
        if rng.random() < 0.5:
            event["attributes"] = {"country": rng.choice("ABC"), "guild": rng.choice("XY")}
        if rng.random() < 0.2:
            event["metadata"] = {"number": number}
        if rng.random() < 0.2:
            event["at"] = now - rng.randrange(1_000)
        made.append(event)
    return made


def defined(boards: Boards) -> Boards:
    for name, options in BOARDS.items():
        boards.define(name, **options)
    return boards


def standings(boards: Boards) -> dict[str, Any]:
    store = embedded_of(boards)._ranks.store
    return {key.text: store.digest(key) for key in store.instances()}


def shown(boards: Boards) -> dict[str, Any]:
    return {
        name: [(entry.player, entry.score, entry.metadata) for entry in boards.top(name, 100).entries]
        for name in BOARDS
    }


def test_a_batch_of_many_boards_counts_like_its_scores_one_by_one(
    open_boards: OpenBoards, clock: ManualClock, rng: random.Random
) -> None:
    together, apart = defined(open_boards("together")), defined(open_boards("apart"))
    for _ in range(40):
        batch = events(rng, clock.now(), rng.randrange(2, 30))
        assert together.submit_events(batch).count == len(batch)
        for event in batch:
            apart.submit(event.pop("board"), event.pop("player"), event.pop("score"), **event)
        clock.advance(rng.randrange(60_000))

    assert standings(together) == standings(apart)
    assert shown(together) == shown(apart)
    together.verify()


def test_a_board_is_one_part_however_its_scores_are_interleaved(boards: Boards) -> None:
    defined(boards)
    sent = [Score(board=name, player=f"p{n}", score=n) for n in range(5) for name in ("best", "latest", "scoped")]
    task = boards.prepare_events(sent, LOCAL)
    assert [(part.board_id, len(part.scores)) for part in task.parts] == [("best", 5), ("latest", 5), ("scoped", 5)]
    assert task.events == 15


@pytest.mark.parametrize(
    ("bad", "field"),
    [
        ({"score": "1"}, "score"),
        ({"score": 51}, "score"),
        ({"player": ""}, "player"),
        ({"at": -1}, "at"),
        ({"at": 1}, "at"),
        ({"attributes": {"guild": ".."}}, "attributes.guild"),
        ({"tiebreak": -1}, "tiebreak"),
        ({"metadata": 7}, "metadata"),
        ({"board": "Not an id"}, "board"),
    ],
    ids=lambda value: str(value)[:30],
)
@pytest.mark.parametrize("key", [None, "one"])
def test_a_refusal_names_the_row_of_the_request(
    boards: Boards, bad: dict[str, Any], field: str, key: str | None
) -> None:
    defined(boards)
    batch: list[dict[str, Any]] = [
        {"board": name, "player": f"p{n}", "score": n} for n in range(4) for name in ("best", "summed", "guilds")
    ]
    row = 8 if "attributes" in bad else 7
    batch[row] |= bad
    before = boards.position
    with pytest.raises(InvalidValue) as refused:
        boards.submit_events(batch, key=key)
    assert refused.value.field == f"events[{row}].{field}"
    assert boards.position == before


def test_an_unknown_board_is_named_by_its_first_row(boards: Boards) -> None:
    defined(boards)
    rows = [{"board": name, "player": "ann", "score": 1} for name in ("best", "nowhere", "best", "nowhere")]
    with pytest.raises(BoardUnknown, match=r"events\[1\]\.board"):
        boards.submit_events(rows)


def test_the_order_of_the_rows_belongs_to_the_request(boards: Boards) -> None:
    defined(boards)
    rows = [{"board": name, "player": "ann", "score": n} for n, name in enumerate(("best", "latest", "best"))]
    assert not boards.submit_events(rows, key="one").repeated
    assert boards.submit_events(rows, key="one").repeated
    with pytest.raises(KeyReused):
        boards.submit_events([rows[0], rows[2], rows[1]], key="one")


def test_the_fingerprint_is_of_the_runs_of_one_board(boards: Boards) -> None:
    """Requests that an earlier version committed are recognised."""
    defined(boards)
    sent = [
        Score(board="best", player="ann", score=1),
        Score(board="best", player="bob", score=2, tiebreak=0),
        Score(board="latest", player="ann", score=3, metadata={"a": 1}),
        Score(board="best", player="cid", score=4, attributes={"country": "BR"}),
    ]
    runs = [
        (["ann", "bob"], [1, 2], None, None),
        (["ann"], [3], None, ['{"a":1}']),
        (["cid"], [4], [{"country": "BR"}], None),
    ]
    names = ("best", "latest", "best")
    columns = [
        (False, name, players, b"".join(score.to_bytes(8, "little") for score in scores), None, None, attributes, json)
        for name, (players, scores, attributes, json) in zip(names, runs, strict=True)
    ]
    assert boards.prepare_events(sent, sender_of("local", "one")).fingerprint == fingerprint_of(
        (*columns[0], *columns[1:])
    )
