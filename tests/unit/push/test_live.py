"""A connection from its beginning to its end, whichever side ends it, and the place it gives back."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rankd.api.http.frames import MESSAGE_BYTES_MAX
from rankd.api.live.connections import INTERVAL_MS_MAX
from rankd.api.live.streams import EXPIRED, STOPPING, TOO_SLOW
from rankd.errors import Forbidden, InvalidValue, Overloaded, RankdError, Unauthenticated
from rankd.push.topics import parse_topic
from rankd.registry.credentials import Scope

from .conftest import World, on_loop, until
from .connection import NOW_S, Open, asked, live_over, player, service

TOP = {"topic": "top:arcade"}


@on_loop
async def test_a_stream_begins_with_its_snapshot_and_ends_when_the_client_goes(world: World) -> None:
    hub = world.hub()
    live = live_over(hub)
    client = Open(live, asked(TOP), sse=True)
    await until(lambda: b"event: snapshot" in client.connection.body)
    start = client.connection.sent[0]
    assert (start["status"], dict(start["headers"])[b"cache-control"]) == (200, b"no-store")
    world.boards.submit("arcade", "dave", 70)
    await hub.poll()
    await until(lambda: b"event: change" in client.connection.body)
    client.connection.goes("http.disconnect")
    await client.over()

    assert b"event: end" not in client.connection.body
    assert client.connection.body.startswith(b"id: ")


@pytest.mark.parametrize("ending", [STOPPING, EXPIRED])
@on_loop
async def test_a_stream_that_must_end_says_why(world: World, ending: Any) -> None:
    live = live_over(world.hub())
    client = Open(live, asked(TOP), sse=True)
    await until(lambda: b"snapshot" in client.connection.body)
    live.streams.end_all(ending)
    await client.over()

    assert client.connection.body.endswith(
        b'event: end\ndata: {"code":%d,"reason":"%s"}\n\n' % (ending.code, ending.reason.encode())
    )
    assert client.connection.sent[-1].get("more_body", False) is False


@pytest.mark.parametrize("ending", [STOPPING, EXPIRED])
@on_loop
async def test_a_socket_that_must_end_is_closed_with_a_code(world: World, ending: Any) -> None:
    live = live_over(world.hub())
    client = Open(live, asked())
    client.connection.asks("subscribe", "top:arcade")
    await client.connection.frame("snapshot")
    live.streams.end_all(ending)
    await client.over()

    assert client.connection.close_code == ending.code


@pytest.mark.parametrize(
    ("query", "error"),
    [
        ({}, InvalidValue),
        ({"topic": "top:nowhere"}, RankdError),
        ({"topic": "\n".join(["top:arcade"] * 11)}, InvalidValue),
        ({"topic": "top:arcade\nfriends:arcade:bob"}, Unauthenticated),
        ({**TOP, "interval_ms": "1"}, InvalidValue),
        ({**TOP, "interval_ms": "-1"}, InvalidValue),
        ({**TOP, "interval_ms": f"{INTERVAL_MS_MAX + 1}"}, InvalidValue),
        ({**TOP, "interval_ms": "9" * 5_000}, InvalidValue),
        ({**TOP, "interval_ms": "1e3"}, InvalidValue),
    ],
)
@on_loop
async def test_a_stream_that_is_refused_leaves_nothing(
    world: World, query: dict[str, str], error: type[RankdError]
) -> None:
    hub = world.hub()
    live = live_over(hub, streams_max=1)
    for _ in range(3):
        with pytest.raises(error):
            await live.open_sse(asked(query))

    assert len(live.streams) == 0
    watched = await hub.watch(parse_topic("top:arcade"), stream_of_nobody())
    assert len(watched.watchers) == 1


def stream_of_nobody() -> Any:
    class Nobody:
        def wake(self) -> None:
            pass

    return Nobody()


@on_loop
async def test_a_stream_beyond_the_last_place_is_refused(world: World) -> None:
    live = live_over(world.hub(), streams_max=1)
    await live.open_sse(asked(TOP))
    with pytest.raises(Overloaded):
        await live.open_sse(asked(TOP))


@pytest.mark.parametrize(
    ("query", "public_read", "code"), [({}, True, 1013), ({"interval_ms": "7"}, True, 1008), ({}, False, 1008)]
)
@on_loop
async def test_a_socket_that_is_refused_gets_a_code_and_takes_no_place(
    world: World, query: dict[str, str], public_read: bool, code: int
) -> None:
    live = live_over(world.hub(), streams_max=0 if code == 1013 else 5, public_read=public_read)
    client = Open(live, asked(query))
    await client.over()

    assert client.connection.close_code == code
    assert len(client.connection.sent[-1]["reason"].encode()) <= 123


@on_loop
async def test_frames_subscribe_and_unsubscribe(world: World) -> None:
    hub = world.hub()
    client = Open(live_over(hub), asked())
    client.connection.asks("subscribe", "top:arcade")
    client.connection.asks("subscribe", "player:arcade:bob")
    await client.connection.frame("snapshot", 2)
    client.connection.asks("unsubscribe", "top:arcade")
    client.connection.asks("unsubscribe", "top:arcade")
    client.connection.asks("unsubscribe", "top:never")
    client.connection.asks("subscribe", "top:nowhere")
    await client.connection.frame("error")
    world.boards.submit("arcade", "bob", 70)
    await hub.poll()
    change = await client.connection.frame("change")
    assert (change["topic"], change["data"]["passed"]) == ("player:arcade:bob", ["alice"])
    client.connection.goes()
    await client.over()


@on_loop
async def test_a_topic_is_resumed_from_an_id(world: World) -> None:
    hub = world.hub()
    live = live_over(hub)
    first = Open(live, asked())
    first.connection.asks("subscribe", "top:arcade")
    seen = (await first.connection.frame("snapshot"))["id"]
    first.connection.goes()
    await first.over()
    world.boards.submit("arcade", "dave", 70)
    again = Open(live, asked())
    again.connection.asks("subscribe", "top:arcade", since=seen)
    change = await again.connection.frame("change")
    again.connection.goes()
    await again.over()

    assert [entry["player"] for entry in change["data"]["set"]] == ["dave", "alice", "bob", "carol"]
    assert [frame["type"] for frame in again.connection.frames] == ["change"]


@on_loop
async def test_a_stream_is_resumed_by_its_last_event_id(world: World) -> None:
    hub = world.hub()
    live = live_over(hub)
    first = Open(live, asked(TOP), sse=True)
    await until(lambda: b"snapshot" in first.connection.body)
    seen = first.connection.body.split(b"\n")[0].removeprefix(b"id: ")
    first.connection.goes("http.disconnect")
    await first.over()
    world.boards.submit("arcade", "dave", 70)
    for identity, types in ((seen, [b"change"]), (b"00000000-1", [b"reset", b"snapshot"]), (b"?", [b"reset"])):
        again = Open(live, asked(TOP, last_event_id=identity), sse=True)
        await until(lambda again=again, types=types: types[-1] in again.connection.body)  # type: ignore[misc]
        lines = [line for line in again.connection.body.split(b"\n") if line.startswith(b"event: ")]
        assert lines[: len(types)] == [b"event: " + kind for kind in types]
        again.connection.goes("http.disconnect")
        await again.over()


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("", "frame"),
        ("{", "frame"),
        ("[]", "frame"),
        ('{"op":"subscribe"}', "frame"),
        ('{"op":"subscribe","topic":5}', "frame"),
        ('{"op":"subscribe","topic":"top:arcade","colour":"red"}', "frame"),
        ('{"op":"shout","topic":"top:arcade"}', "op"),
        ('{"op":"subscribe","topic":"nothing"}', "topic"),
        ("[" * (MESSAGE_BYTES_MAX - 1), "frame"),
        ('{"op":"subscribe","topic":"\\ud800"}', "frame"),
    ],
)
@on_loop
async def test_a_frame_that_means_nothing_is_answered_and_the_connection_goes_on(
    world: World, text: str, field: str
) -> None:
    client = Open(live_over(world.hub()), asked())
    client.connection.says(text)
    error = await client.connection.frame("error")
    client.connection.asks("subscribe", "top:arcade")
    await client.connection.frame("snapshot")
    client.connection.goes()
    await client.over()

    assert (error["problem"]["status"], error["problem"]["code"]) == (422, "invalid_value")
    assert error["problem"]["detail"].startswith(f"{field}:")


@pytest.mark.parametrize(("frame", "code"), [(b"bytes", 1003), ("x" * (MESSAGE_BYTES_MAX + 1), 1009)])
@on_loop
async def test_a_frame_that_is_too_large_or_no_text_ends_it(world: World, frame: str | bytes, code: int) -> None:
    client = Open(live_over(world.hub()), asked())
    client.connection.says(frame)
    await client.over()

    assert client.connection.close_code == code


@pytest.mark.parametrize("sse", [True, False])
@on_loop
async def test_a_connection_that_cannot_be_heard_any_more_gives_its_place_back(world: World, sse: bool) -> None:
    client = Open(live_over(world.hub()), asked(TOP if sse else {}), sse=sse)
    client.connection.breaks()
    await client.over()

    assert client.connection.close_code == (None if sse else 1011)


@pytest.mark.parametrize("sse", [True, False])
@on_loop
async def test_a_client_that_stops_reading_is_sent_away(world: World, sse: bool) -> None:
    hub = world.hub()
    live = live_over(hub, stalled_s=0.02)
    client = Open(live, asked(TOP if sse else {}), sse=sse)
    client.connection.asks("subscribe", "top:arcade")
    await until(lambda: "snapshot" in str(client.connection.sent))
    client.connection.reads.clear()
    world.boards.submit("arcade", "dave", 70)
    await hub.poll()
    running = asyncio.create_task(live.streams.run())
    await until(lambda: client.stream is not None and client.stream.ending is TOO_SLOW)
    client.connection.reads.set()  # too late for the read, not for its answer
    await client.over()
    running.cancel()

    assert client.connection.close_code == (None if sse else 4008)


@on_loop
async def test_a_client_that_never_reads_again_does_not_keep_its_place(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rankd.api.live.connections.TOO_SLOW_NOTICE_S", 0.01)
    live = live_over(world.hub(), stalled_s=0.02)
    client = Open(live, asked())
    client.connection.reads.clear()
    client.connection.asks("subscribe", "top:arcade")
    running = asyncio.create_task(live.streams.run())
    await client.over()
    running.cancel()

    assert client.connection.sent == []


@on_loop
async def test_a_client_that_does_not_read_its_end_does_not_keep_its_place(world: World) -> None:
    live = live_over(world.hub(), stalled_s=0.02)
    client = Open(live, asked(TOP), sse=True)
    await until(lambda: b"snapshot" in client.connection.body)
    client.connection.reads.clear()
    live.streams.end_all(STOPPING)
    running = asyncio.create_task(live.streams.run())
    await client.over()
    running.cancel()


@pytest.mark.parametrize("sse", [True, False])
@on_loop
async def test_an_idle_connection_hears_a_heartbeat(world: World, sse: bool) -> None:
    live = live_over(world.hub(), heartbeat_s=0.01)
    client = Open(live, asked(TOP if sse else {}), sse=sse)
    running = asyncio.create_task(live.streams.run())
    if sse:
        await until(lambda: client.connection.body.count(b": still here\n\n") >= 2)
    else:
        await client.connection.frame("heartbeat", 2)
    client.connection.goes("http.disconnect" if sse else "websocket.disconnect")
    await client.over()
    running.cancel()


# Who may watch what

NOBODY = None
WATCHED: list[tuple[str, bool, Any, type[RankdError] | None]] = [
    ("top:arcade", True, NOBODY, None),
    ("player:arcade:bob", True, NOBODY, None),
    ("friends:arcade:bob", True, NOBODY, Unauthenticated),
    ("friends:arcade:bob", True, player("bob"), None),
    ("friends:arcade:bob", True, player("alice"), Forbidden),
    ("friends:arcade:bob", True, player("alice", Scope.READ), Forbidden),
    ("friends:arcade:bob", True, service(), None),
    ("top:arcade", False, NOBODY, Unauthenticated),
    ("top:arcade", False, player("bob"), Forbidden),
    ("top:arcade", False, player("bob", Scope.READ), None),
    ("top:arcade", False, service(), None),
    ("player:arcade:bob", False, NOBODY, Unauthenticated),
    ("player:arcade:bob", False, player("bob"), None),
    ("player:arcade:bob", False, player("alice"), Forbidden),
    ("player:arcade:bob", False, player("alice", Scope.READ), None),
    ("friends:arcade:bob", False, player("bob"), None),
    ("friends:arcade:bob", False, player("alice", Scope.READ), Forbidden),
    ("friends:arcade:bob", False, NOBODY, Unauthenticated),
]


@pytest.mark.parametrize(("topic", "public_read", "identity", "error"), WATCHED)
@on_loop
async def test_nobody_watches_what_they_may_not_read(
    world: World, topic: str, public_read: bool, identity: Any, error: type[RankdError] | None
) -> None:
    live = live_over(world.hub(), public_read=public_read)
    if error is None:
        assert live.topic_for(identity, topic).text == topic
        return
    with pytest.raises(error):
        live.topic_for(identity, topic)
    with pytest.raises(error):
        await live.open_sse(asked({"topic": f"{topic}"}, identity))
    if identity is not None or public_read:
        client = Open(live, asked({}, identity))
        client.connection.asks("subscribe", topic)
        refused = await client.connection.frame("error")
        assert refused["problem"]["code"] == error.code
        client.connection.goes()
        await client.over()


@on_loop
async def test_the_end_of_a_credential_ends_its_connection(world: World) -> None:
    live = live_over(world.hub(), heartbeat_s=0.01)
    client = Open(live, asked({}, player("bob", expires_at_s=int(NOW_S))))
    running = asyncio.create_task(live.streams.run())
    await client.over()
    running.cancel()

    assert client.connection.close_code == 4001
