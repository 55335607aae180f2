"""A window that ends: its watchers are shown the one that has begun, without asking."""

from __future__ import annotations

import msgspec
import pytest

from rankd import ManualClock

from .conftest import Client, World, on_loop

WEEK_MS = 7 * 24 * 3_600_000
FIRST = {"windows": ["weekly", "all_time"], "scopes": ["country"]}


@pytest.mark.parametrize("topic", ["top:race", "top:race@weekly@country:BR", "player:race:bob", "friends:race:bob"])
@on_loop
async def test_the_next_window_reaches_watchers_by_itself(world: World, clock: ManualClock, topic: str) -> None:
    boards = world.boards
    boards.define("race", FIRST)
    boards.submit("race", "bob", 5, attributes={"country": "BR"})
    hub = world.hub()
    client = Client(hub)
    table = await client.watch(topic)
    (first,) = client.read()
    assert table.total == 1
    clock.advance(WEEK_MS)
    await hub.poll()

    reset, snapshot = client.read()
    assert (reset.type, snapshot.type) == ("reset", "snapshot")
    before, after = (msgspec.json.decode(message.text("e"))["data"]["window"] for message in (first, snapshot))
    assert (before, after) == ("weekly:2026-W19", "weekly:2026-W20")
    assert (table.entries, table.total) == ({}, 0)

    boards.submit("race", "bob", 6, attributes={"country": "BR"})
    await hub.poll()
    assert [message.type for message in client.read()] == ["change"]
    assert table.entries["bob"]["score"] == 6


@on_loop
async def test_a_window_that_is_named_does_not_roll_over(world: World, clock: ManualClock) -> None:
    world.boards.define("race", FIRST)
    world.boards.submit("race", "bob", 5)
    hub = world.hub()
    client = Client(hub)
    table = await client.watch("top:race@weekly:2026-W19")
    client.read()
    clock.advance(WEEK_MS)
    await hub.poll()

    assert client.read() == []
    assert table.total == 1


@on_loop
async def test_somebody_who_comes_at_the_turn_is_shown_the_new_window_and_the_others_follow(
    world: World, clock: ManualClock
) -> None:
    world.boards.define("race", FIRST)
    world.boards.submit("race", "bob", 5)
    hub = world.hub()
    early, late = Client(hub), Client(hub)
    await early.watch("top:race")
    early.read()
    clock.advance(WEEK_MS)
    world.boards.submit("race", "carol", 1)
    await late.watch("top:race")
    late.read()
    assert early.read() == []
    await hub.poll()
    for client in (early, late):
        client.read()
        assert set(client.tables["top:race"].entries) == {"carol"}


@on_loop
async def test_another_way_of_counting_ranks_is_a_change(world: World) -> None:
    world.boards.define("race", ties="player")
    world.boards.submit_many("race", [("bob", 5), ("carol", 5)])
    hub = world.hub()
    client = Client(hub)
    table = await client.watch("top:race")
    client.read()
    world.boards.define("race", ties="player", ranking="competition")
    await hub.poll()
    client.read()

    assert {entry["rank"] for entry in table.entries.values()} == {1}
