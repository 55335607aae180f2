"""Where ranks are in another process, all topics are asked about at once, and only those that changed are read."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar, cast

import pytest

from rankd.domain.instance import InstanceKey
from rankd.push.hub import Hub
from rankd.push.topics import parse_topic

from .conftest import Client, Ear, World, on_loop

PLAYERS = 40
Result = TypeVar("Result")


class Threads:
    """Runs at once what would run in a thread, and counts."""

    def __init__(self) -> None:
        self.works = 0

    async def __call__(self, work: Callable[[], Result], /) -> Result:
        self.works += 1
        return work()


class Far:
    """What of the ranks is asked for, and whether they answer."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        self.world = world
        self.threads = Threads()
        self.questions = 0
        self.away: set[str] = set()  # boards
        rank_source = world.boards._rank_source
        digests = rank_source.digests

        def counted(instances: Collection[InstanceKey]) -> Mapping[InstanceKey, tuple[int, str]]:
            self.questions += 1
            return {key: digest for key, digest in digests(instances).items() if key.board not in self.away}

        monkeypatch.setattr(rank_source, "digests", counted)
        world.boards.remote = cast(Any, world.boards._writer)

    def hub(self) -> Hub:
        return self.world.hub(self.threads)


@pytest.fixture
def far(world: World, monkeypatch: pytest.MonkeyPatch) -> Far:
    world.boards.define("other")
    world.boards.submit("other", "alice", 1)
    return Far(world, monkeypatch)


@on_loop
async def test_one_question_asks_about_all_topics_and_nothing_else_is_asked_while_nothing_changes(far: Far) -> None:
    hub = far.hub()
    topics = ["top:arcade", "top:other", *(f"player:arcade:p{number}" for number in range(PLAYERS))]
    for topic in topics:
        await hub.watch(parse_topic(topic), Ear())
    await hub.poll()
    await hub.poll()
    far.threads.works = far.questions = 0
    far.world.computed.clear()
    await hub.poll()

    assert (far.threads.works, far.questions, far.world.computed.total()) == (1, 1, 0)


@on_loop
async def test_what_changed_is_read_and_sent(far: Far) -> None:
    hub = far.hub()
    client = Client(hub)
    table, other = await client.watch("top:arcade"), await client.watch("top:other")
    client.read()
    far.world.boards.submit("arcade", "zoe", 10**6)
    await hub.poll()

    assert [message.topic for message in client.read()] == ["top:arcade"]
    assert (table.entries, len(other.entries)) == (far.world.top(), 1)


@on_loop
async def test_a_board_that_cannot_be_asked_about_keeps_nobody_else_waiting(far: Far) -> None:
    hub = far.hub()
    client = Client(hub)
    await client.watch("top:arcade")
    other = await client.watch("top:other")
    client.read()
    far.away = {"arcade"}
    far.world.boards.submit("arcade", "zoe", 10**6)
    far.world.boards.submit("other", "zoe", 5)
    await hub.poll()
    assert [message.topic for message in client.read()] == ["top:other"]
    assert len(other.entries) == 2

    far.away = set()
    await hub.poll()
    assert [message.topic for message in client.read()] == ["top:arcade"]


@on_loop
async def test_the_end_of_a_board_is_sent(far: Far) -> None:
    hub = far.hub()
    client = Client(hub)
    other = await client.watch("top:other")
    client.read()
    far.world.boards.delete("other")
    await hub.poll()
    client.read()
    assert other.entries == {}
    assert other.types[-1] == "reset"


@on_loop
async def test_what_a_later_watcher_saw_is_sent_to_earlier_ones(far: Far) -> None:
    hub = far.hub()
    first, second = Client(hub), Client(hub)
    table = await first.watch("top:arcade")
    first.read()
    far.world.boards.submit("arcade", "zoe", 10**6)
    await second.watch("top:arcade")
    await hub.poll()
    first.read()
    assert table.entries == far.world.top()
