"""A hub over real boards, whose computations are counted, and clients that believe what they are sent."""

from __future__ import annotations

import asyncio
import functools
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

import msgspec
import pytest

from rankd import Boards
from rankd.api.live.streams import Stream, problem_data
from rankd.push import views, watched
from rankd.push.hub import Hub, ThreadRunner
from rankd.push.messages import Message, Type
from rankd.push.topics import Topic, parse_topic
from rankd.push.views import View
from rankd.reads.instance_ref import InstanceRef

WAIT_S = 60.0
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def on_loop(test: Callable[Arguments, Coroutine[Any, Any, None]]) -> Callable[Arguments, None]:
    """Run a test on an event loop of its own, and fail where it does not end."""

    @functools.wraps(test)
    def run(*args: Arguments.args, **kwargs: Arguments.kwargs) -> None:
        asyncio.run(asyncio.wait_for(test(*args, **kwargs), WAIT_S))

    return run


async def until(holds: Callable[[], bool]) -> None:
    """Let others run until a condition holds."""
    deadline = asyncio.get_running_loop().time() + WAIT_S
    while not holds():
        assert asyncio.get_running_loop().time() < deadline, "the condition did not come true in time"
        await asyncio.to_thread(lambda: None)


async def at_once(work: Callable[[], Result]) -> Result:
    return work()


class Gate:
    """Lets work in threads begin, and end when the test says so."""

    def __init__(self) -> None:
        self.begun: list[asyncio.Event] = []

    async def __call__(self, work: Callable[[], Result]) -> Result:
        result = work()
        open_now = asyncio.Event()
        self.begun.append(open_now)
        await open_now.wait()
        return result


class Ear:
    """A watcher that counts how often it was woken."""

    def __init__(self) -> None:
        self.woken = 0

    def wake(self) -> None:
        self.woken += 1


class Table:
    """What a client knows: it applies messages, and asks nobody."""

    def __init__(self) -> None:
        self.entries: dict[str, dict[str, Any]] = {}
        self.total: int | None = None
        self.types: list[str] = []

    def take(self, message: Message) -> None:
        data = msgspec.json.decode(message.text("e"))["data"]
        self.types.append(message.type)
        self.apply(message.type, data)

    def apply(self, kind: str, data: dict[str, Any]) -> None:
        if kind == Type.RESET:
            self.entries, self.total = {}, None
        elif kind == Type.SNAPSHOT:
            entries = data.get("entries", [data] if data.get("rank") is not None else [])
            self.entries = {entry["player"]: shown(entry) for entry in entries}
            self.total = data["total"]
        else:
            assert self.total is not None, "a change came before any snapshot"
            for player in data["gone"]:
                self.entries.pop(player, None)
            self.entries.update({entry["player"]: shown(entry) for entry in data["set"]})
            self.total = data["total"]


def shown(entry: dict[str, Any]) -> dict[str, Any]:
    """An entry without what only a standing has."""
    names = ("rank", "player", "score", "reached_at", "tiebreak", "name", "avatar_url", "country", "metadata")
    return {name: entry[name] for name in (*names, "global_rank") if entry.get(name) is not None}


class Client:
    """A connection by itself: a stream of the hub, and what its client has made of it."""

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self.stream = Stream(hub, "127.0.0.1", None, 0.0)
        self.tables: dict[str, Table] = {}
        self.messages: list[Message] = []

    async def watch(self, topic: str, since: int | None = None) -> Table:
        await self.stream.watch(parse_topic(topic), since)
        return self.tables.setdefault(topic, Table())

    def read(self) -> list[Message]:
        taken = self.stream.take()
        for message in taken:
            self.tables[message.topic].take(message)
        self.messages += taken
        return taken


class World:
    """Boards, a hub that looks when the test says so, and how often it worked something out."""

    def __init__(self, boards: Boards, computed: Counter[str]) -> None:
        self.boards = boards
        self.computed = computed

    def hub(
        self,
        in_thread: ThreadRunner = at_once,
        interval_ms: int = 500,
    ) -> Hub:
        return Hub(self.boards, interval_ms, in_thread, at_once, problem_data)

    def top(self, **where: Any) -> dict[str, dict[str, Any]]:
        """What the matching read says, as a client's table has it."""
        page: dict[str, Any] = msgspec.to_builtins(self.boards.top("arcade", 10, **where))
        return {entry["player"]: shown(entry) for entry in page["entries"]}

    def friends(self, player: str) -> dict[str, dict[str, Any]]:
        page: dict[str, Any] = msgspec.to_builtins(self.boards.friends_of("arcade", player))
        return {entry["player"]: shown(entry) for entry in page["entries"]}


@pytest.fixture
def world(boards: Boards, monkeypatch: pytest.MonkeyPatch) -> World:
    """A board with a few players; every computation of a topic is counted under its name."""
    computed: Counter[str] = Counter()
    view_of = views.view_of

    def counted(of: Boards, topic: Topic, ref: InstanceRef) -> View:
        computed[topic.text] += 1
        return view_of(of, topic, ref)

    monkeypatch.setattr(watched, "view_of", counted)
    boards.define("arcade", windows=["all_time", "weekly"], scopes=["country"])
    boards.submit_many("arcade", [("alice", 50), ("bob", 40), ("carol", 30)])
    return World(boards, computed)
