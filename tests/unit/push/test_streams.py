"""Places of connections, their topics, their rest, and when they must end."""

from __future__ import annotations

import asyncio

import pytest

from rankd.api.live.streams import (
    EXPIRED,
    STOPPING,
    TOO_SLOW,
    TOPICS_PER_STREAM_MAX,
    Ending,
    Stream,
    Streams,
)
from rankd.errors import InvalidValue, Overloaded
from rankd.push.topics import parse_topic

from .conftest import Client, World, on_loop
from .connection import NOW_S, player

FIRST, SECOND = "192.0.2.1", "192.0.2.2"


def streams(streams_max: int = 10, per_address_max: int = 10) -> Streams:
    return Streams(streams_max, per_address_max, lambda: NOW_S)


def stream(world: World, address: str = FIRST, interval_s: float = 0.0) -> Stream:
    return Stream(world.hub(), address, None, interval_s)


@on_loop
async def test_there_are_so_many_connections_and_no_more(world: World) -> None:
    places = streams(streams_max=2)
    held = [stream(world), stream(world)]
    for connection in held:
        places.add(connection)
    with pytest.raises(Overloaded):
        places.add(stream(world, SECOND))
    places.remove(held[0])
    places.add(stream(world, SECOND))

    assert len(places) == 2


@on_loop
async def test_one_address_cannot_take_all_places(world: World) -> None:
    places = streams(per_address_max=2)
    held = [stream(world), stream(world)]
    for connection in held:
        places.add(connection)
    with pytest.raises(Overloaded):
        places.add(stream(world))
    places.add(stream(world, SECOND))
    places.remove(held[0])
    places.add(stream(world))


@on_loop
async def test_addresses_of_one_ipv6_network_are_one(world: World) -> None:
    """A customer has all of a /64."""
    places = streams(per_address_max=2)
    held = [stream(world, address) for address in ("2001:db8::1", "2001:db8::ffff:1")]
    for connection in held:
        places.add(connection)
    with pytest.raises(Overloaded):
        places.add(stream(world, "2001:db8:0:0:8000::9"))
    places.add(stream(world, "2001:db8:0:1::1"))
    places.remove(held[0])
    places.add(stream(world, "2001:db8::2"))


@on_loop
async def test_a_place_is_given_back_once(world: World) -> None:
    places = streams(per_address_max=1)
    connection = stream(world)
    places.add(connection)
    places.remove(connection)
    places.remove(connection)
    places.remove(stream(world))
    places.add(stream(world))
    with pytest.raises(Overloaded):
        places.add(stream(world))


@on_loop
async def test_no_stream_opens_once_all_are_asked_to_end(world: World) -> None:
    places = streams()
    connection = stream(world)
    places.add(connection)
    places.end_all(STOPPING)

    assert connection.ending is STOPPING
    with pytest.raises(Overloaded):
        places.add(stream(world))


@on_loop
async def test_a_connection_watches_ten_topics_and_no_more(world: World) -> None:
    client = Client(world.hub())
    for number in range(TOPICS_PER_STREAM_MAX):
        await client.watch(f"player:arcade:p{number}")
    await client.watch("player:arcade:p0")  # again, which is nothing
    with pytest.raises(InvalidValue):
        await client.watch("top:arcade")
    client.stream.unwatch("player:arcade:p3")
    await client.watch("top:arcade")

    assert client.hub.topics == TOPICS_PER_STREAM_MAX + 1  # one of them kept


@on_loop
async def test_what_was_asked_for_and_left_again_is_not_sent(world: World) -> None:
    client = Client(world.hub())
    for _ in range(1_000):
        await client.watch("top:arcade", since=-1)
        client.stream.unwatch("top:arcade")
    await client.watch("player:arcade:bob")

    assert [message.topic for message in client.read()] == ["player:arcade:bob"]


@on_loop
async def test_messages_of_several_topics_come_in_the_order_they_came_about(world: World) -> None:
    client = Client(world.hub())
    for topic in ("top:arcade", "player:arcade:bob", "top:arcade@weekly"):
        await client.watch(topic)
    client.read()
    client.stream.unwatch("top:arcade")
    await client.watch("top:arcade")
    world.boards.submit("arcade", "bob", 70)
    await client.hub.poll()
    offsets = [message.offset for message in client.read()]

    assert len(offsets) == 4
    assert offsets == sorted(offsets)


@on_loop
async def test_whoever_leaves_watches_nothing(world: World) -> None:
    client = Client(world.hub())
    await client.watch("top:arcade")
    await client.watch("player:arcade:bob")
    watched = await client.hub.watch(parse_topic("top:arcade"), client.stream)
    client.stream.leave()

    assert not watched.watchers
    before = dict(world.computed)
    world.boards.submit("arcade", "dave", 70)
    await client.hub.poll()
    assert world.computed == before


REST_S = 0.5  # long enough that a busy machine is not taken for it


@on_loop
async def test_a_connection_that_asks_for_it_rests_between_two_messages(world: World) -> None:
    loop = asyncio.get_running_loop()
    resting, eager = stream(world, interval_s=REST_S), stream(world)
    for connection, rest_s in ((resting, REST_S), (eager, 0.0)):
        connection.wake()
        await connection.wait()
        began = loop.time()
        connection.wake()
        await connection.wait()
        took = loop.time() - began
        assert (took >= rest_s * 0.9) if rest_s else (took < REST_S)


@on_loop
async def test_a_rest_ends_when_the_connection_does(world: World) -> None:
    connection = stream(world, interval_s=3_600.0)
    connection.wake()
    await connection.wait()
    connection.wake()
    waiting = asyncio.create_task(connection.wait())
    await asyncio.to_thread(lambda: None)
    connection.end(Ending(1000, ""))
    await waiting
    connection.leave()


@on_loop
async def test_a_topic_begins_at_once_although_the_connection_rests(world: World) -> None:
    connection = stream(world, interval_s=3_600.0)
    for topic in ("top:arcade", "player:arcade:bob"):
        await connection.watch(parse_topic(topic), None)
        await connection.wait()
        assert [message.topic for message in connection.take()] == [topic]
    connection.leave()


@on_loop
async def test_a_heartbeat_wakes_whoever_is_idle(world: World) -> None:
    connection = stream(world)
    streams().check(connection, now=100.0, is_beat=True)

    assert connection.is_beating
    await connection.wait()


@on_loop
async def test_a_connection_ends_with_its_credential(world: World) -> None:
    hub, places = world.hub(), streams()
    held = {
        expires: Stream(hub, FIRST, player("bob", expires_at_s=expires), 0.0)
        for expires in (int(NOW_S) - 1, int(NOW_S), int(NOW_S) + 1, None)
    }
    for connection in held.values():
        places.check(connection, now=0.0, is_beat=False)

    assert [connection.ending for connection in held.values()] == [EXPIRED, EXPIRED, None, None]


@on_loop
async def test_a_client_that_takes_nothing_for_too_long_is_sent_away_once(world: World) -> None:
    places = Streams(10, 10, lambda: NOW_S, stalled_s=30.0)
    connection = stream(world)
    connection.task = asyncio.create_task(asyncio.Event().wait())
    connection.sending_since = 100.0
    endings = []
    for now in (130.0, 130.1, 131.1):
        places.check(connection, now=now, is_beat=False)
        endings.append(connection.ending)

    assert endings == [None, TOO_SLOW, TOO_SLOW]
    with pytest.raises(asyncio.CancelledError):
        await connection.task


@on_loop
async def test_connections_are_looked_at_again_and_again(world: World) -> None:
    held = [stream(world) for _ in range(200)]
    places = Streams(200, 200, lambda: NOW_S, heartbeat_s=0.01)
    for connection in held:
        places.add(connection)
    running = asyncio.create_task(places.run())
    for connection in held:
        await connection.wait()
        assert connection.is_beating
    running.cancel()
