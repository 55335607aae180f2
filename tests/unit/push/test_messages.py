"""Several changes in one: whoever applies it has what all of them would have made."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import msgspec

from rankd.push.messages import Change, Message, Type, changed_players, conflate
from rankd.reads.answers import Entry

from .conftest import Table

PLAYERS = "abcdefgh"


def message(kind: Type, offset: int, data: object) -> Message:
    return Message("top:arcade", kind, offset, data)


def entries(rng: random.Random) -> list[Entry]:
    ranked = rng.sample(PLAYERS, rng.randrange(len(PLAYERS)))
    return [Entry(rank, player, rng.randrange(3), None) for rank, player in enumerate(ranked, start=1)]


def change_message(before: list[Entry], after: list[Entry], offset: int) -> Message:
    dirty = changed_players({entry.player: entry for entry in before}, after)
    return message(
        Type.CHANGE,
        offset,
        Change(
            set=[entry for entry in after if entry.player in dirty],
            gone=sorted(dirty - {entry.player for entry in after}),
            total=len(after),
            position=f"0-{offset}",
        ),
    )


def applied(messages: list[Message], start: list[Entry]) -> tuple[dict[str, Any], int | None]:
    table = Table()
    table.apply("snapshot", {"entries": [msgspec.to_builtins(entry) for entry in start], "total": len(start)})
    for push in messages:
        table.take(push)
    return table.entries, table.total


def test_one_message_says_what_many_would(rng: random.Random) -> None:
    for _ in range(200):
        states = [entries(rng) for _ in range(rng.randrange(2, 8))]
        changes = [change_message(before, after, number) for number, (before, after) in enumerate(pairwise(states))]
        (*_, last) = few = conflate(changes)

        assert len(few) == 1
        assert last.offset == changes[-1].offset
        assert applied(few, states[0]) == applied(changes, states[0])


def test_what_was_sent_before_a_reset_is_left_out() -> None:
    change = Change(set=[], gone=["a"], total=1, position="0-1")
    shown = {"entries": [], "total": 0}
    several = [
        message(Type.CHANGE, 1, change),
        message(Type.RESET, 2, None),
        message(Type.SNAPSHOT, 3, shown),
        message(Type.CHANGE, 4, change),
        message(Type.RESET, 5, None),
        message(Type.SNAPSHOT, 6, shown),
        message(Type.CHANGE, 7, change),
        message(Type.CHANGE, 8, change),
    ]

    assert [(push.type, push.offset) for push in conflate(several)] == [
        ("reset", 5),
        ("snapshot", 6),
        ("change", 8),
    ]


def test_whoever_was_passed_and_came_back_was_not_passed() -> None:
    def change(offset: int, **more: Any) -> Message:
        return message(Type.CHANGE, offset, Change(set=[], gone=[], total=9, position="0-1", **more))

    (merged,) = conflate(
        [
            change(1, passed=["ann", "bob"], overtaken_by=["eve"]),
            change(2, passed=["cat"], overtaken_by=["bob"]),
            change(3, passed=["eve"], overtaken_by=["dan"]),
        ]
    )

    assert (merged.change().passed, merged.change().overtaken_by) == (["ann", "cat"], ["dan"])
