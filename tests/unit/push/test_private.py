"""Where reads are not public, a player's topics name that player and mutual friends, and nobody else."""

from __future__ import annotations

from typing import Any

import pytest

from rankd.api.auth.identity import Identity
from rankd.api.live.connections import Live
from rankd.registry.credentials import Scope

from .conftest import World, on_loop
from .connection import Open, asked, live_over, player, service

ALICE, READER, SERVICE = player("alice"), player("alice", Scope.READ), service()
KINDS = pytest.mark.parametrize("sse", [True, False], ids=["sse", "ws"])


@pytest.fixture
def befriended(world: World) -> World:
    """Alice has stored bob, who has stored her, and carol, who has not."""
    world.boards.set_friends("alice", ["bob", "carol"])
    world.boards.set_friends("bob", ["alice"])
    return world


class Watching:
    """Somebody who watches one topic on a private server."""

    def __init__(self, live: Live, topic: str, identity: Identity, *, sse: bool) -> None:
        self._sse = sse
        self.open = Open(live, asked({"topic": topic} if sse else {}, identity), sse=sse)
        if not sse:
            self.open.connection.asks("subscribe", topic)

    async def data(self, kind: str, count: int = 1) -> dict[str, Any]:
        """Wait for so many messages of a type; return what the last one holds."""
        if not self._sse:
            frame: dict[str, Any] = (await self.open.connection.frame(kind, count))["data"]
            return frame
        return await self.open.connection.event(kind, count)

    async def leave(self) -> None:
        self.open.connection.goes("http.disconnect" if self._sse else "websocket.disconnect")
        await self.open.served


def players(entries: list[dict[str, Any]]) -> list[str]:
    return [entry["player"] for entry in entries]


@KINDS
@on_loop
async def test_a_topic_of_friends_shows_mutual_ones_to_a_player_and_all_to_who_may_read(
    befriended: World, sse: bool
) -> None:
    hub = befriended.hub()
    live = live_over(hub, public_read=False)
    everybody = [Watching(live, "friends:arcade:alice", who, sse=sse) for who in (ALICE, READER, SERVICE)]
    shown = [players((await watching.data("snapshot"))["entries"]) for watching in everybody]

    assert shown == [["alice", "bob"], ["alice", "bob", "carol"], ["alice", "bob", "carol"]]
    befriended.boards.submit("arcade", "carol", 99)
    befriended.boards.submit("arcade", "bob", 98)
    await hub.poll()
    changes = [players((await watching.data("change"))["set"]) for watching in everybody]
    assert changes == [["bob", "alice"], ["carol", "bob", "alice"], ["carol", "bob", "alice"]]
    for watching in everybody:
        await watching.leave()


@KINDS
@on_loop
async def test_friends_come_and_go_as_they_become_mutual_and_cease_to_be(befriended: World, sse: bool) -> None:
    hub = befriended.hub()
    watching = Watching(live_over(hub, public_read=False), "friends:arcade:alice", ALICE, sse=sse)
    assert players((await watching.data("snapshot"))["entries"]) == ["alice", "bob"]

    befriended.boards.set_friends("carol", ["alice"])
    await hub.poll()
    assert players((await watching.data("change"))["set"]) == ["carol"]
    befriended.boards.set_friends("bob", ["carol"])
    await hub.poll()
    assert (await watching.data("change", 2))["gone"] == ["bob"]
    await watching.leave()


@KINDS
@on_loop
async def test_a_passed_message_names_mutual_friends_only(befriended: World, sse: bool) -> None:
    hub = befriended.hub()
    live = live_over(hub, public_read=False)
    befriended.boards.submit_many("arcade", [("stranger", 60), ("bob", 61), ("carol", 62)])
    everybody = [Watching(live, "player:arcade:alice", who, sse=sse) for who in (ALICE, READER, SERVICE)]
    for watching in everybody:
        assert (await watching.data("snapshot"))["rank"] == 4

    befriended.boards.submit("arcade", "alice", 70)
    await hub.poll()
    changes = [await watching.data("change") for watching in everybody]
    assert [change["passed"] for change in changes] == [["bob"], *[["bob", "carol", "stranger"]] * 2]

    befriended.boards.submit_many("arcade", [("stranger", 80), ("carol", 81)])
    await hub.poll()
    changes = [await watching.data("change", 2) for watching in everybody]
    assert changes[0]["set"][0]["rank"] == 3
    assert "overtaken_by" not in changes[0]
    assert [change["overtaken_by"] for change in changes[1:]] == [["carol", "stranger"]] * 2
    for watching in everybody:
        await watching.leave()


@on_loop
async def test_where_reads_are_public_everybody_watches_the_same(befriended: World) -> None:
    hub = befriended.hub()
    live = live_over(hub)
    everybody = [Watching(live, "friends:arcade:alice", who, sse=False) for who in (ALICE, READER, SERVICE)]
    for watching in everybody:
        assert players((await watching.data("snapshot"))["entries"]) == ["alice", "bob", "carol"]

    assert hub.topics == 1
    for watching in everybody:
        await watching.leave()


@on_loop
async def test_a_player_on_a_private_server_leaves_the_topic_that_was_subscribed(befriended: World) -> None:
    hub = befriended.hub()
    watching = Watching(live_over(hub, public_read=False), "friends:arcade:alice", ALICE, sse=False)
    await watching.data("snapshot")
    watching.open.connection.asks("unsubscribe", "friends:arcade:alice")
    watching.open.connection.asks("subscribe", "friends:arcade:alice")
    await watching.data("snapshot", 2)

    befriended.boards.submit("arcade", "bob", 99)
    await hub.poll()
    await watching.data("change")
    await watching.leave()
