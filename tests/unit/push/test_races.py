"""What happens at the same time: friends are looked up in threads, commits change one thing after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

import pytest

from rankd.errors import EngineBroken, LedgerUnavailable, Overloaded, RankdError
from rankd.push import views, watched
from rankd.push.topics import parse_topic
from rankd.push.views import View

from .conftest import Client, Ear, Gate, Table, World, on_loop, until

Result = TypeVar("Result")
FRIENDS = parse_topic("friends:arcade:alice")


@on_loop
async def test_two_who_come_to_a_new_topic_at_the_same_time_watch_the_same(world: World) -> None:
    gate = Gate()
    hub = world.hub(gate)
    first, second = Ear(), Ear()
    coming = [asyncio.create_task(hub.watch(FRIENDS, ear)) for ear in (first, second)]
    await until(lambda: len(gate.begun) == 2)
    for begun in gate.begun:
        begun.set()
    first_watch, second_watch = await asyncio.gather(*coming)
    assert first_watch is second_watch

    world.boards.submit("arcade", "alice", 70)
    rank_source = asyncio.create_task(hub.poll())
    await until(lambda: len(gate.begun) == 3)
    gate.begun[2].set()
    await rank_source
    assert (first.woken, second.woken) == (1, 1)


@on_loop
async def test_an_older_look_that_comes_back_later_changes_nothing(world: World) -> None:
    gate = Gate()
    hub = world.hub(gate)
    ears = [Ear(), Ear()]
    coming = [asyncio.create_task(hub.watch(FRIENDS, ears[0]))]
    await until(lambda: len(gate.begun) == 1)
    world.boards.submit("arcade", "alice", 70)
    coming.append(asyncio.create_task(hub.watch(FRIENDS, ears[1])))
    await until(lambda: len(gate.begun) == 2)
    gate.begun[1].set()
    topic = await coming[1]
    gate.begun[0].set()
    await coming[0]

    (snapshot,) = topic.snapshot(hub.offset)
    table = Table()
    table.take(snapshot)
    assert table.entries["alice"]["score"] == 70


@on_loop
async def test_somebody_who_goes_while_being_shown_in_is_not_kept(world: World) -> None:
    gate = Gate()
    hub = world.hub(gate)
    ear = Ear()
    coming = asyncio.create_task(hub.watch(FRIENDS, ear))
    await until(lambda: len(gate.begun) == 1)
    coming.cancel()
    with pytest.raises(asyncio.CancelledError):
        await coming

    assert hub.topics == 0


@on_loop
async def test_a_connection_that_ends_while_it_subscribes_watches_nothing(world: World) -> None:
    gate = Gate()
    hub = world.hub(gate)
    client = Client(hub)
    other = Ear()
    staying = asyncio.create_task(hub.watch(FRIENDS, other))
    await until(lambda: len(gate.begun) == 1)
    gate.begun[0].set()
    watched_by_other = await staying
    coming = asyncio.create_task(client.watch("friends:arcade:alice"))
    await until(lambda: len(gate.begun) == 2)
    client.stream.leave()
    coming.cancel()
    with pytest.raises(asyncio.CancelledError):
        await coming

    assert watched_by_other.watchers == {other}


@pytest.mark.parametrize("problem", [Overloaded("too much to do"), LedgerUnavailable("the disk"), EngineBroken("")])
@on_loop
async def test_a_server_in_trouble_ends_no_topic(world: World, problem: RankdError) -> None:
    busy = False

    async def in_thread(work: Callable[[], Result]) -> Result:
        if busy:
            raise problem
        return work()

    hub = world.hub(in_thread)
    client = Client(hub)
    table = await client.watch("friends:arcade:alice")
    client.read()
    busy = True
    world.boards.submit("arcade", "alice", 70)
    with suppress(EngineBroken):  # which is logged for whoever runs the server
        await hub.poll()
    assert client.read() == []

    busy = False
    await hub.poll()
    client.read()
    assert table.entries == world.friends("alice")
    assert table.types == ["snapshot", "change"]


@on_loop
async def test_a_look_in_the_midst_of_a_commit_is_put_right(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fingerprint says that a commit is over while what it changed is not all to be seen yet."""
    hub = world.hub()
    client = Client(hub)
    table = await client.watch("top:arcade")
    client.read()
    await hub.poll()
    view_of = views.view_of
    stale = view_of(world.boards, parse_topic("top:arcade"), world.boards.resolve("arcade"))
    world.boards.submit("arcade", "dave", 70)

    def too_early(*_: Any) -> View:
        monkeypatch.setattr(watched, "view_of", view_of)
        return stale

    monkeypatch.setattr(watched, "view_of", too_early)
    await hub.poll()
    assert client.read() == []
    await hub.poll()
    client.read()
    assert table.entries == world.top()


@on_loop
async def test_a_players_snapshot_and_its_entry_are_of_one_moment(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A score between two reads would show one rank in the snapshot and keep the change to it from being sent."""
    boards = world.boards
    hub = world.hub()
    around_in = boards.around_in

    def then_scores(*args: Any) -> Any:
        around = around_in(*args)
        monkeypatch.setattr(boards, "around_in", around_in)
        boards.submit("arcade", "dave", 70)
        return around

    monkeypatch.setattr(boards, "around_in", then_scores)
    client = Client(hub)
    table = await client.watch("player:arcade:bob")
    client.read()
    for _ in range(2):
        await hub.poll()
        client.read()

    standing = boards.rank("arcade", "bob")
    assert standing is not None
    assert table.entries["bob"]["rank"] == standing.rank == 3
    assert table.total == 4
