"""One live connection: which topics it watches, what it has been sent, and when it must end.

A connection keeps no queue. It remembers the offset it has been sent of each topic; when it can send, it takes what is
newer, and a snapshot where it is too far behind. So a client that reads slowly costs no more than one that reads fast.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from rankd.api.identity import Identity
from rankd.errors import InvalidValue, Overloaded, RankdError
from rankd.push.hub import Hub
from rankd.push.messages import Message
from rankd.push.topics import Topic
from rankd.push.watched import Watched

TOPICS_PER_STREAM_MAX = 10
HEARTBEAT_S = 15.0
STALLED_S = 30.0  # a client that takes nothing for so long is sent away
SLICE_STREAMS = 128
LOOK_EVERY_S = 1.0


class Ending(NamedTuple):
    """Why a connection ends: a WebSocket close code, and what it means."""

    code: int
    reason: str


STOPPING = Ending(1012, "the server stops; come again")
EXPIRED = Ending(4001, "the credential has expired")
TOO_SLOW = Ending(4008, "nothing was read for too long")


class Stream:
    """A connection that watches topics; used on the event loop."""

    def __init__(self, hub: Hub, address: str, identity: Identity | None, interval_s: float) -> None:
        """Nothing is watched yet; `interval_s` is how long it rests between two messages."""
        self.address = address
        self.identity = identity
        self.interval_s = interval_s
        self.ending: Ending | None = None
        self.is_beating = False
        self.sending_since: float | None = None
        self.task: asyncio.Task[object] | None = None
        self._hub = hub
        self._sent: dict[str, tuple[Watched, int]] = {}
        self._first: list[Message] = []
        self._wake = asyncio.Event()

    def wake(self) -> None:
        """There is something to send, or it must end."""
        self._wake.set()

    def end(self, ending: Ending) -> None:
        """Let it end, once what is being sent has been taken."""
        if self.ending is None:
            self.ending = ending
            self.wake()

    async def watch(self, topic: Topic, since: int | None) -> None:
        """Watch a topic, from the beginning or from where it was left."""
        if topic.text in self._sent:
            return
        if len(self._sent) >= TOPICS_PER_STREAM_MAX:
            raise InvalidValue("topic", f"must be at most {TOPICS_PER_STREAM_MAX} a connection; open another one")
        watched = await self._hub.watch(topic, self)
        offset = self._hub.offset
        if since is None:
            self._first.append(watched.snapshot(offset))
        else:
            self._first.extend(watched.after(since, offset))
        self._sent[watched.name] = (watched, offset)
        self.wake()

    def unwatch(self, name: str) -> None:
        """Watch a topic no more."""
        found = self._sent.pop(name, None)
        if found is not None:
            self._hub.unwatch(found[0], self)

    def leave(self) -> None:
        """Watch nothing any more, however the connection ended."""
        for name in list(self._sent):
            self.unwatch(name)

    async def wait(self) -> None:
        """Wait until there is something to do."""
        await self._wake.wait()
        self._wake.clear()

    def take(self) -> list[Message]:
        """Return what is to be sent now, in the order it came about."""
        messages, self._first = self._first, []
        newer: list[Message] = []
        for name, (watched, offset) in self._sent.items():
            if watched.newest > offset:
                newer += watched.after(offset, self._hub.offset)
                self._sent[name] = (watched, watched.newest)
        newer.sort(key=lambda message: message.offset)
        return messages + newer


class Streams:
    """All live connections: how many there may be, and which have to end."""

    def __init__(self, streams_max: int, per_address_max: int, now_s: Callable[[], float]) -> None:
        """`now_s` is the time credentials expire by, in s since 1970."""
        self._streams_max = streams_max
        self._per_address_max = per_address_max
        self._now_s = now_s
        self._open: set[Stream] = set()
        self._by_address: dict[str, int] = {}
        self.sent_away = 0  # for being too slow

    def __len__(self) -> int:
        """Return how many are open."""
        return len(self._open)

    def add(self, stream: Stream) -> None:
        """Take a connection, or refuse it where there are as many as may be."""
        if len(self._open) >= self._streams_max:
            raise Overloaded(f"the server has {self._streams_max} live connections, the most it takes; try again later")
        if self._by_address.get(stream.address, 0) >= self._per_address_max:
            raise Overloaded(
                f"there are {self._per_address_max} live connections from this address, the most there may be; "
                "close one, or watch several topics on it"
            )
        self._open.add(stream)
        self._by_address[stream.address] = self._by_address.get(stream.address, 0) + 1

    def remove(self, stream: Stream) -> None:
        """Give a connection's place back."""
        if stream in self._open:
            self._open.remove(stream)
            left = self._by_address[stream.address] - 1
            if left:
                self._by_address[stream.address] = left
            else:
                del self._by_address[stream.address]

    def end_all(self, ending: Ending) -> None:
        """Let every connection end."""
        for stream in self._open:
            stream.end(ending)

    async def run(self) -> None:
        """Keep connections alive, and send away those that are too slow or whose credential has expired."""
        loop = asyncio.get_running_loop()
        next_beat = loop.time() + HEARTBEAT_S
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            is_beat = loop.time() >= next_beat
            if is_beat:
                next_beat = loop.time() + HEARTBEAT_S
            for count, stream in enumerate(list(self._open), start=1):
                self._look_at(stream, loop.time(), is_beat=is_beat)
                if count % SLICE_STREAMS == 0:
                    await asyncio.sleep(0)

    def _look_at(self, stream: Stream, now: float, *, is_beat: bool) -> None:
        identity = stream.identity
        if identity is not None and identity.expires_at is not None and identity.expires_at <= self._now_s():
            stream.end(EXPIRED)
        if stream.sending_since is not None and now - stream.sending_since > STALLED_S:
            self.sent_away += 1
            stream.end(TOO_SLOW)
            if stream.task is not None:  # it waits for a client that does not read
                stream.task.cancel()
        elif is_beat:
            stream.is_beating = True
            stream.wake()


def parse_since(text: str | None, epoch: str) -> int | None:
    """Return the offset that somebody has seen, from an id such as `9f86d081-42`; -1 for one of another process."""
    if text is None:
        return None
    other, separator, offset = text.rpartition("-")
    if not separator or not offset.isascii() or not offset.isdigit() or len(offset) > 18 or other != epoch:
        return -1
    return int(offset)


def problem_data(problem: RankdError) -> dict[str, object]:
    """Return what the last message of a topic says that is no more."""
    return {"code": problem.code, "detail": str(problem)}
