"""Whoever comes back gets what was missed, or begins anew; and is never left with a gap."""

from __future__ import annotations

import random
from itertools import pairwise

import msgspec
import pytest

from rankd.api.live.streams import parse_since
from rankd.errors import BoardUnknown
from rankd.push import hub as hub_module
from rankd.push.history import HISTORY_MESSAGES_MAX
from rankd.push.hub import Hub
from rankd.push.messages import NO_OFFSET, Message, Type, encode_events
from rankd.push.topics import parse_topic

from .conftest import Client, Ear, Table, World, on_loop

TOPICS = ("top:arcade", "player:arcade:bob", "friends:arcade:alice", "top:arcade@weekly@country:BR")
SNAPSHOT, CHANGE, RESET = Type.SNAPSHOT, Type.CHANGE, Type.RESET


async def came_back(hub: Hub, topic: str, since: int, table: Table) -> list[str]:
    """Go on with what a client has, and return what it was sent at once."""
    client = Client(hub)
    client.tables[topic] = table
    await client.watch(topic, since)
    return [message.type for message in client.read()]


@on_loop
async def test_a_client_that_comes_back_soon_gets_what_changed(world: World) -> None:
    hub, boards = world.hub(), world.boards
    client = Client(hub)
    table = await client.watch("top:arcade")
    seen = client.read()[-1].offset
    client.stream.leave()
    boards.submit("arcade", "dave", 70)
    boards.remove("arcade", "bob")

    assert await came_back(hub, "top:arcade", seen, table) == [CHANGE]
    assert table.entries == world.top()


@on_loop
async def test_whoever_comes_back_to_what_others_watch_finds_every_message_in_between(world: World) -> None:
    hub, boards = world.hub(), world.boards
    stays, goes = Client(hub), Client(hub)
    await stays.watch("top:arcade")
    table = await goes.watch("top:arcade")
    seen = goes.read()[-1].offset
    goes.stream.leave()
    for score in range(60, 65):
        boards.submit("arcade", "dave", score)
        await hub.poll()

    assert await came_back(hub, "top:arcade", seen, table) == [CHANGE] * 5
    assert table.entries == world.top()


@on_loop
async def test_whoever_was_away_too_long_begins_anew(world: World) -> None:
    hub, boards = world.hub(), world.boards
    stays, goes = Client(hub), Client(hub)
    await stays.watch("top:arcade")
    table = await goes.watch("top:arcade")
    seen = goes.read()[-1].offset
    goes.stream.leave()
    for score in range(60, 60 + HISTORY_MESSAGES_MAX + 1):
        boards.submit("arcade", "dave", score)
        await hub.poll()

    assert await came_back(hub, "top:arcade", seen, table) == [RESET, SNAPSHOT]
    assert table.entries == world.top()


@on_loop
async def test_what_happened_while_a_topic_was_forgotten_is_not_passed_over(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = world.hub()
    client = Client(hub)
    table = await client.watch("top:arcade")
    seen = client.read()[-1].offset
    client.stream.leave()
    monkeypatch.setattr(hub_module, "IDLE_S", -1.0)
    await hub.poll()
    assert hub.topics == 0
    world.boards.submit("arcade", "dave", 70)

    assert await came_back(hub, "top:arcade", seen, table) == [RESET, SNAPSHOT]
    assert table.entries == world.top()


@on_loop
async def test_an_offset_that_was_never_given_begins_anew(world: World) -> None:
    hub = world.hub()
    for since in (-1, 0, 10_000):
        assert await came_back(hub, "top:arcade", since, Table()) == [RESET, SNAPSHOT]


@pytest.mark.parametrize(
    ("text", "offset"),
    [
        ("9f86d081-42", 42),
        ("9f86d081-0", 0),
        ("00000000-42", -1),
        ("9F86D081-42", -1),
        ("42", -1),
        ("-42", -1),
        ("", -1),
        ("9f86d081-", -1),
        ("9f86d081--1", -1),
        ("9f86d081- 42", -1),
        ("9f86d081-4_2", -1),
        ("9f86d081-\u0664\u0662", -1),
        ("9f86d081-" + "9" * 19, -1),
        ("9f86d081-" + "9" * 10_000, -1),
        ("9f86d081-42-42", -1),
        (None, None),
    ],
)
def test_an_id_of_another_process_or_of_no_form_is_too_old(text: str | None, offset: int | None) -> None:
    assert parse_since(text, "9f86d081") == offset


@on_loop
async def test_a_client_that_does_not_read_finds_fewer_and_newer_messages(world: World) -> None:
    hub, boards = world.hub(), world.boards
    slow = Client(hub)
    table = await slow.watch("top:arcade")
    slow.read()
    for score in range(60, 60 + 3 * HISTORY_MESSAGES_MAX):
        boards.submit("arcade", "dave", score)
        await hub.poll()

    assert [message.type for message in slow.read()] == [RESET, SNAPSHOT]
    assert table.entries == world.top()
    assert slow.read() == []


@on_loop
async def test_a_client_that_reads_late_gets_several_changes_in_one(world: World) -> None:
    hub, boards = world.hub(), world.boards
    clients = [Client(hub), Client(hub)]
    for client in clients:
        await client.watch("top:arcade")
        client.read()
    for score in range(60, 70):
        boards.submit("arcade", "dave", score)
        await hub.poll()
    boards.remove("arcade", "bob")
    await hub.poll()
    late = [client.read() for client in clients]

    assert [message.type for message in late[0]] == [CHANGE]
    assert late[0][0] is late[1][0], "worked out once for all who are as late"
    assert clients[0].tables["top:arcade"].entries == world.top()


@on_loop
async def test_a_board_that_is_deleted_ends_and_one_that_comes_back_begins_anew(world: World) -> None:
    hub, boards = world.hub(), world.boards
    client = Client(hub)
    table = await client.watch("top:arcade")
    client.read()
    boards.delete("arcade")
    for _ in range(3):
        await hub.poll()
    assert hub.messages == 1
    (ended,) = client.read()
    assert ended.type is RESET
    assert msgspec.json.decode(ended.text("e"))["data"]["code"] == BoardUnknown.code
    with pytest.raises(BoardUnknown):
        await hub.watch(parse_topic("top:arcade"), Ear())

    boards.define("arcade")
    boards.submit("arcade", "erin", 5)
    await hub.poll()
    assert [message.type for message in client.read()] == [RESET, SNAPSHOT]
    assert table.entries == world.top()
    assert set(table.entries) == {"erin"}


@on_loop
async def test_a_client_that_lags_while_a_board_is_gone_learns_so(world: World) -> None:
    hub, boards = world.hub(), world.boards
    client = Client(hub)
    await client.watch("top:arcade")
    client.read()
    for score in range(60, 60 + 2 * HISTORY_MESSAGES_MAX):
        boards.submit("arcade", "dave", score)
        await hub.poll()
    boards.delete("arcade")
    await hub.poll()

    messages = client.read()
    assert [message.type for message in messages] == [RESET]
    assert msgspec.json.decode(messages[0].text("e"))["data"]["code"] == BoardUnknown.code


@on_loop
async def test_a_board_that_is_deleted_and_defined_between_two_looks_is_seen_as_it_is(world: World) -> None:
    hub, boards = world.hub(), world.boards
    client = Client(hub)
    table = await client.watch("top:arcade")
    client.read()
    boards.delete("arcade")
    boards.define("arcade")
    boards.submit("arcade", "bob", 7)
    await hub.poll()
    client.read()

    assert (table.entries, table.total) == (world.top(), 1)


def parsed(frames: bytes) -> list[tuple[str, str, dict[str, object]]]:
    """Events as (id, type, data)."""
    events = []
    for event in frames.decode().split("\n\n")[:-1]:
        fields = dict(line.split(": ", 1) for line in event.split("\n"))
        events.append((fields["id"], fields["event"], msgspec.json.decode(fields["data"])))
    return events


@on_loop
async def test_every_event_has_an_id_and_names_its_topic(world: World) -> None:
    hub = world.hub()
    client = Client(hub)
    for topic in TOPICS:
        await client.watch(topic)
    events = parsed(encode_events(client.read(), hub.epoch, NO_OFFSET))

    assert {data["topic"] for _, _, data in events} == set(TOPICS)
    assert all(identity.startswith(f"{hub.epoch}-") for identity, _, _ in events)


@on_loop
async def test_whoever_is_cut_off_anywhere_ends_up_with_everything(world: World, rng: random.Random) -> None:
    """A stream of several topics is resumed from one id: that of the last event that arrived whole."""
    hub, boards = world.hub(), world.boards
    boards.set_friends("alice", ["bob", "carol"])
    watching = [Client(hub) for _ in TOPICS]
    for topic, client in zip(TOPICS, watching, strict=True):
        await client.watch(topic)  # so that each topic has a history of its own
    tables = {topic: Table() for topic in TOPICS}
    since: int | None = None
    for _ in range(60):
        client = Client(hub)
        client.stream.sent_upto = since or NO_OFFSET
        for topic in TOPICS:
            await client.watch(topic, since)
            if rng.random() < 0.5:
                change(world, rng)
                await hub.poll()
        for _ in range(rng.randrange(4)):
            change(world, rng)
            await hub.poll()
        events = parsed(client.stream.take_events())
        for _ in range(rng.randrange(3)):
            change(world, rng)
            await hub.poll()
        events += parsed(client.stream.take_events())
        arrived = events[: rng.randrange(len(events) + 1)]
        for identity, kind, data in arrived:
            tables[str(data["topic"])].apply(kind, data)
            since = parse_since(identity, hub.epoch)
        client.stream.leave()
        if rng.random() < 0.1:
            for _ in range(HISTORY_MESSAGES_MAX + 2):
                change(world, rng)
                await hub.poll()
    last = Client(hub)
    last.tables = tables
    for topic in TOPICS:
        await last.watch(topic, since)
    await hub.poll()
    last.read()

    assert tables["top:arcade"].entries == world.top()
    assert tables["friends:arcade:alice"].entries == world.friends("alice")
    assert tables["top:arcade@weekly@country:BR"].entries == world.top(window="weekly", scope="country:BR")
    bob = boards.rank("arcade", "bob")
    assert [entry["rank"] for entry in tables["player:arcade:bob"].entries.values()] == ([bob.rank] if bob else [])


def change(world: World, rng: random.Random) -> None:
    player = rng.choice(["alice", "bob", "carol", "dave", "erin"])
    if rng.random() < 0.2:
        world.boards.remove("arcade", player)
    elif rng.random() < 0.1:
        world.boards.reset("arcade")
    else:
        country = {"country": rng.choice(["BR", "NO"])}
        world.boards.submit("arcade", player, rng.randrange(1_000), attributes=country)


@on_loop
async def test_offsets_only_go_up_within_a_topic(world: World) -> None:
    hub, boards = world.hub(), world.boards
    client = Client(hub)
    await client.watch("top:arcade")
    for score in range(60, 70):
        boards.submit("arcade", "dave", score)
        await hub.poll()
        client.read()
    offsets = [message.offset for message in client.messages]

    assert all(before < after for before, after in pairwise(offsets))
    assert len(offsets) == 11


def test_only_the_last_event_of_a_batch_moves_the_id() -> None:
    batch = [Message(topic, CHANGE, offset, {"total": 1}) for topic, offset in (("a", 5), ("b", 7), ("c", 8))]

    assert [identity for identity, _, _ in parsed(encode_events(batch, "e", 3))] == ["e-3", "e-3", "e-8"]


def test_a_single_message_keeps_its_id() -> None:
    frames = encode_events([Message("top:arcade", SNAPSHOT, 7, {"total": 1})], "9f86d081", 3)

    assert frames == b'id: 9f86d081-7\nevent: snapshot\ndata: {"topic":"top:arcade","total":1}\n\n'
