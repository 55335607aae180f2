"""One computation for all who watch, none for nobody, and no more messages than the interval allows."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from rankd.errors import BoardUnknown, Overloaded, RankdError, ScopeUnknown, WindowUnknown
from rankd.push import hub as hub_module
from rankd.push import views, watched
from rankd.push.topics import parse_topic
from rankd.push.views import View

from .conftest import Client, Ear, Table, World, on_loop, until

TOP = parse_topic("top:arcade")


@on_loop
async def test_a_snapshot_is_the_body_of_the_matching_read(world: World) -> None:
    boards = world.boards
    boards.set_friends("bob", ["alice"])
    hub = world.hub()
    reads = {
        "top:arcade": boards.top("arcade", 10),
        "top:arcade@weekly@country:BR": boards.top("arcade", 10, window="weekly", scope="country:BR"),
        "player:arcade:bob": boards.rank("arcade", "bob"),
        "friends:arcade:bob": boards.friends_of("arcade", "bob"),
    }
    for topic, read in reads.items():
        watched = await hub.watch(parse_topic(topic), Ear())
        (message,) = watched.snapshot(hub.offset)

        assert msgspec.json.decode(message.text("e"))["data"] == msgspec.to_builtins(read)


@on_loop
async def test_a_change_says_who_is_new_or_other_and_who_left(world: World) -> None:
    hub = world.hub()
    client = Client(hub)
    table = await client.watch("top:arcade")
    client.read()
    world.boards.submit("arcade", "bob", 60)
    last = world.boards.remove("arcade", "carol").position
    await hub.poll()

    (change,) = client.read()
    data = msgspec.json.decode(change.text(hub.epoch))["data"]
    assert [(entry["player"], entry["rank"], entry["score"]) for entry in data["set"]] == [
        ("bob", 1, 60),
        ("alice", 2, 50),
    ]
    assert (data["gone"], data["total"], data["position"]) == (["carol"], 2, last)
    assert table.entries == world.top()


@on_loop
async def test_a_thousand_watchers_cost_one_computation(world: World) -> None:
    hub = world.hub()
    ears = [Ear() for _ in range(1_000)]
    for ear in ears:
        await hub.watch(TOP, ear)
    assert world.computed == {"top:arcade": 1}

    world.boards.submit("arcade", "dave", 70)
    await hub.poll()
    assert world.computed == {"top:arcade": 2}
    assert {ear.woken for ear in ears} == {1}


@on_loop
async def test_a_message_is_encoded_once_for_all(world: World) -> None:
    hub = world.hub()
    clients = [Client(hub) for _ in range(10)]
    for client in clients:
        await client.watch("top:arcade")
    snapshots = {id(client.read()[0].sse(hub.epoch)) for client in clients}
    world.boards.submit("arcade", "dave", 70)
    await hub.poll()
    changes = [client.read()[0] for client in clients]

    assert len(snapshots) == 1
    assert len({id(change.sse(hub.epoch)) for change in changes}) == 1
    assert len({id(change.text(hub.epoch)) for change in changes}) == 1


@on_loop
async def test_nothing_is_computed_for_what_nobody_watches(world: World) -> None:
    hub, ear = world.hub(), Ear()
    kept = await hub.watch(TOP, ear)
    await hub.watch(parse_topic("player:arcade:bob"), ear)
    hub.unwatch(kept, ear)
    before = world.computed["top:arcade"]
    for score in range(60, 65):
        world.boards.submit("arcade", "dave", score)
        await hub.poll()

    assert world.computed["top:arcade"] == before == 1
    assert world.computed["player:arcade:bob"] > 5


@on_loop
async def test_nothing_is_computed_while_nothing_changes(world: World) -> None:
    hub = world.hub()
    await hub.watch(TOP, Ear())
    for _ in range(10):
        await hub.poll()

    assert world.computed["top:arcade"] == 2, "one to see it, and one to see that it has settled"


@on_loop
async def test_those_who_come_do_not_make_messages_for_those_who_are_there(world: World) -> None:
    hub, there = world.hub(), Ear()
    await hub.watch(TOP, there)
    await hub.poll()
    for number in range(20):
        world.boards.submit("arcade", f"player-{number}", number)
        await hub.watch(TOP, Ear())
    assert (there.woken, hub.messages) == (0, 0)

    await hub.poll()
    assert (there.woken, hub.messages) == (1, 1)


@on_loop
async def test_who_came_and_went_between_two_messages_is_not_left_with_those_who_saw_them(world: World) -> None:
    hub = world.hub()
    early, late = Client(hub), Client(hub)
    await early.watch("top:arcade")
    early.read()
    world.boards.submit("arcade", "ghost", 99)
    await late.watch("top:arcade")
    late.read()
    assert "ghost" in late.tables["top:arcade"].entries

    world.boards.remove("arcade", "ghost")
    await hub.poll()
    for client in (early, late):
        client.read()
        assert client.tables["top:arcade"].entries == world.top()
        assert client.tables["top:arcade"].total == 3


@on_loop
async def test_a_number_that_went_up_and_down_again_is_sent_to_those_who_saw_it(world: World) -> None:
    boards = world.boards
    boards.submit_many("arcade", [(f"above-{number}", 100 + number) for number in range(10)])
    hub = world.hub()
    early, late = Client(hub), Client(hub)
    await early.watch("top:arcade")
    boards.submit("arcade", "below", 1)
    await late.watch("top:arcade")
    boards.remove("arcade", "below")
    await hub.poll()
    for client in (early, late):
        client.read()
        assert client.tables["top:arcade"].total == 13


@on_loop
async def test_the_interval_is_kept_however_fast_scores_come(world: World) -> None:
    interval_ms = 40
    hub, ear = world.hub(interval_ms=interval_ms), Ear()
    loop = asyncio.get_running_loop()
    began = loop.time()
    running = asyncio.create_task(hub.run())
    await hub.watch(TOP, ear)
    score = 100
    while ear.woken < 5:
        score += 1
        await asyncio.to_thread(world.boards.submit, "arcade", "dave", score)
    running.cancel()

    assert ear.woken <= (loop.time() - began) * 1_000 / interval_ms + 1
    assert score > 105


@on_loop
async def test_the_newest_state_always_arrives(world: World) -> None:
    hub = world.hub(interval_ms=5)
    client = Client(hub)
    table = await client.watch("top:arcade")
    running = asyncio.create_task(hub.run())
    for score in range(100, 200):
        await asyncio.to_thread(world.boards.submit, "arcade", "dave", score)

    def is_there() -> bool:
        client.read()
        return table.entries.get("dave", {}).get("score") == 199

    await until(is_there)
    running.cancel()
    assert table.entries == world.top()


@on_loop
async def test_a_profile_and_a_list_of_friends_reach_watchers(world: World) -> None:
    boards, hub = world.boards, world.hub()
    client = Client(hub)
    top, group = await client.watch("top:arcade"), await client.watch("friends:arcade:alice")
    boards.set_player("alice", name="Alice A.")
    boards.set_friends("alice", ["carol"])
    await hub.poll()
    client.read()

    assert top.entries["alice"]["name"] == "Alice A."
    assert group.entries == world.friends("alice")
    assert set(group.entries) == {"alice", "carol"}


@on_loop
async def test_a_player_hears_whom_they_passed_and_who_passed_them(world: World) -> None:
    hub = world.hub()
    client = Client(hub)
    await client.watch("player:arcade:bob")
    client.read()
    world.boards.submit_many("arcade", [("bob", 55), ("carol", 60)])
    await hub.poll()

    (change,) = client.read()
    data = msgspec.json.decode(change.text("e"))["data"]
    assert (data["passed"], data["overtaken_by"]) == (["alice"], ["carol"])
    assert [(entry["player"], entry["rank"]) for entry in data["set"]] == [("bob", 2)]


@on_loop
async def test_a_player_who_does_not_stand_there_yet_learns_when_they_do(world: World) -> None:
    hub = world.hub()
    client = Client(hub)
    table = await client.watch("player:arcade:dave")
    (snapshot,) = client.read()
    data = msgspec.json.decode(snapshot.text("e"))["data"]
    assert (data["player"], data["rank"], data["total"]) == ("dave", None, 3)

    world.boards.submit("arcade", "dave", 45)
    await hub.poll()
    client.read()
    assert (table.entries["dave"]["rank"], table.total) == (2, 4)

    world.boards.remove("arcade", "dave")
    await hub.poll()
    client.read()
    assert (table.entries, table.total) == ({}, 3)


@pytest.mark.parametrize(
    ("topic", "error"),
    [("top:nowhere", BoardUnknown), ("top:arcade@daily", WindowUnknown), ("top:arcade@weekly@clan:a", ScopeUnknown)],
)
@on_loop
async def test_what_is_not_there_is_refused_as_a_read_would_be_and_leaves_nothing(
    world: World, topic: str, error: type[RankdError]
) -> None:
    hub = world.hub()
    with pytest.raises(error):
        await hub.watch(parse_topic(topic), Ear())

    assert hub.topics == 0


@on_loop
async def test_a_fault_in_one_topic_does_not_keep_the_others_from_being_looked_at(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = world.hub()
    broken, ear = Ear(), Ear()
    await hub.watch(parse_topic("player:arcade:bob"), broken)
    await hub.watch(TOP, ear)
    view_of = views.view_of

    def failing(boards: Any, topic: Any, ref: Any) -> View:
        if topic.player:
            raise ZeroDivisionError
        return view_of(boards, topic, ref)

    monkeypatch.setattr(watched, "view_of", failing)
    world.boards.submit("arcade", "dave", 70)
    with pytest.raises(ZeroDivisionError):
        await hub.poll()
    assert (broken.woken, ear.woken) == (0, 1)

    monkeypatch.setattr(watched, "view_of", view_of)
    await hub.poll()
    assert broken.woken == 1


@on_loop
async def test_a_fault_is_logged_and_looking_goes_on(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = world.hub(interval_ms=1)
    logged: list[str] = []

    async def failing() -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(hub, "poll", failing)
    monkeypatch.setattr(hub_module._log, "exception", logged.append)
    running = asyncio.create_task(hub.run())
    await until(lambda: len(logged) > 3)
    running.cancel()


@on_loop
async def test_no_more_is_watched_than_the_server_takes(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_module, "TOPICS_MAX", 3)
    hub, ear = world.hub(), Ear()
    several = [await hub.watch(parse_topic(f"player:arcade:{name}"), ear) for name in ("alice", "bob", "carol")]
    with pytest.raises(Overloaded):
        await hub.watch(TOP, ear)
    assert hub.topics == 3

    hub.unwatch(several[0], ear)
    await hub.watch(TOP, ear)  # one that is only kept makes room
    assert hub.topics == 3


@on_loop
async def test_a_bounded_number_of_topics_is_kept_for_those_who_left(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub_module, "IDLE_TOPICS_MAX", 20)
    hub, ear = world.hub(), Ear()
    for number in range(1_000):
        hub.unwatch(await hub.watch(parse_topic(f"player:arcade:p{number}"), ear), ear)

    assert hub.topics == 20


@on_loop
async def test_a_board_that_loses_its_score_fades_second_by_second(world: World, clock: Any) -> None:
    world.boards.define("fading", decay={"factor": 0.5, "every": "1h"}, score_min=1, ties="player")
    world.boards.submit("fading", "alice", 1_000_000)
    hub = world.hub()
    client = Client(hub)
    table: Table = await client.watch("top:fading")
    client.read()
    clock.advance(60_000)
    await hub.poll()
    client.read()

    assert table.entries["alice"]["score"] == world.boards.top("fading", 10).entries[0].score < 1_000_000
