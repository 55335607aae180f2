"""How often somebody may open a WebSocket connection, and subscribe to topics on it."""

from __future__ import annotations

from rankd.api.auth.identity import Identity
from rankd.errors import RateExceeded

from .conftest import World, on_loop
from .connection import Open, asked, live_over, player


class Counted:
    """Grants so many reads."""

    def __init__(self, granted: int) -> None:
        self.left = granted
        self.readers: list[tuple[str | None, str]] = []

    def __call__(self, identity: Identity | None, address: str) -> None:
        self.readers.append((None if identity is None else identity.account, address))
        if not self.left:
            raise RateExceeded("too many requests by one player: 2 a second are allowed", 2, 1)
        self.left -= 1


@on_loop
async def test_a_connection_and_each_topic_subscribed_on_it_are_reads(world: World) -> None:
    counted = Counted(3)
    client = Open(live_over(world.hub(), count_read=counted), asked({}, player("bob")))
    for topic in ("top:arcade", "no topic", "player:arcade:bob"):
        client.connection.asks("subscribe", topic)
    await client.connection.frame("snapshot")
    client.connection.asks("unsubscribe", "top:arcade")
    refused = await client.connection.frame("error", 2)

    assert (refused["topic"], refused["problem"]["status"]) == ("player:arcade:bob", 429)
    assert refused["problem"]["code"] == "rate_exceeded"
    assert counted.readers == [("player:bob", "192.0.2.1")] * 4
    client.connection.goes()
    await client.over()


@on_loop
async def test_a_connection_that_comes_too_soon_learns_when_to_come(world: World) -> None:
    client = Open(live_over(world.hub(), count_read=Counted(0)), asked())
    await client.over()

    assert client.connection.close_code == 1013
