"""One live connection: the topics it watches, the offsets it was sent, and when it must end.

A connection has no queue. It stores the last offset sent of each topic; when it can send, it takes the newer messages,
or a snapshot where it is too far behind. So a slow client costs no more than a fast one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from rankd.api.auth.identity import Identity
from rankd.api.http.addresses import limited_as
from rankd.api.http.problems import detail_of
from rankd.errors import InvalidValue, Overloaded, RankdError
from rankd.push.hub import Hub
from rankd.push.messages import NO_OFFSET, Message, encode_events
from rankd.push.topics import Topic
from rankd.push.watched import WatchedTopic

TOPICS_PER_STREAM_MAX = 10
HEARTBEAT_S = 15.0
STALLED_S = 30.0  # a client that reads nothing for so long is disconnected
SLICE_STREAMS = 128
CHECK_EVERY_S = 1.0


class Ending(NamedTuple):
    """Why a connection ends: a WebSocket close code, and its reason."""

    code: int
    reason: str


STOPPING = Ending(1012, "the server is stopping; reconnect")
EXPIRED = Ending(4001, "the credential has expired")
REVOKED = Ending(4003, "the credential has been revoked")
TOO_SLOW = Ending(4008, "nothing was read for too long")


class Stream:
    """A connection that watches topics; used on the event loop."""

    __slots__ = (
        "_first",
        "_hub",
        "_is_woken",
        "_rest",
        "_rests_until",
        "_sent",
        "address",
        "ending",
        "identity",
        "interval_s",
        "is_beating",
        "sending_since",
        "sent_upto",
        "task",
    )

    def __init__(self, hub: Hub, address: str, identity: Identity | None, interval_s: float) -> None:
        """`interval_s` is the least time between two messages."""
        self.address = address
        self.identity = identity
        self.interval_s = interval_s
        self.ending: Ending | None = None
        self.is_beating = False
        self.sent_upto = NO_OFFSET  # of server-sent events
        self.sending_since: float | None = None
        self.task: asyncio.Task[object] | None = None
        self._hub = hub
        self._sent: dict[str, tuple[WatchedTopic, int]] = {}
        self._first: dict[str, list[Message]] = {}  # the first messages of a topic, until they are sent
        self._is_woken = asyncio.Event()
        self._rests_until = 0.0
        self._rest: asyncio.TimerHandle | None = None

    def wake(self) -> None:
        """Notify it that there is something to send, or that it must end."""
        self._is_woken.set()

    def end(self, ending: Ending) -> None:
        """End it after the pending send."""
        if self.ending is None:
            self.ending = ending
            self.wake()

    async def watch(self, topic: Topic, since: int | None) -> None:
        """Watch a topic, from the beginning or after an offset."""
        if topic.text in self._sent:
            return
        if len(self._sent) >= TOPICS_PER_STREAM_MAX:
            raise InvalidValue("topic", f"must be at most {TOPICS_PER_STREAM_MAX} a connection; open another one")
        watched = await self._hub.watch(topic, self)
        offset = self._hub.offset
        self._first[watched.name] = watched.snapshot(offset) if since is None else watched.after(since, offset)
        self._sent[watched.name] = (watched, offset)
        self.wake()

    def unwatch(self, name: str) -> None:
        """Stop watching a topic."""
        self._first.pop(name, None)
        sent = self._sent.pop(name, None)
        if sent is not None:
            self._hub.unwatch(sent[0], self)

    def leave(self) -> None:
        """Stop watching all topics."""
        for name in list(self._sent):
            self.unwatch(name)
        if self._rest is not None:
            self._rest.cancel()

    async def wait(self) -> None:
        """Wait until there is something to send; changes wait for the interval, first messages and an ending do not."""
        while True:
            await self._is_woken.wait()
            self._is_woken.clear()
            if self.ending is not None or self._first or self.interval_s == 0.0:
                return
            loop = asyncio.get_running_loop()
            if loop.time() >= self._rests_until:
                self._rests_until = loop.time() + self.interval_s
                return
            if self._rest is None:
                self._rest = loop.call_at(self._rests_until, self._rested)

    def _rested(self) -> None:
        self._rest = None
        self.wake()

    def take(self) -> list[Message]:
        """Return the messages to send, in the order of their offsets."""
        firsts, self._first = self._first, {}
        messages = [message for first in firsts.values() for message in first]
        for name, (watched, offset) in self._sent.items():
            if watched.newest > offset:
                messages += watched.newest_after(offset, self._hub.offset)
                self._sent[name] = (watched, watched.newest)
        messages.sort(key=lambda message: message.offset)
        return messages

    def take_events(self) -> bytes:
        """Return the same as server-sent events; empty without messages."""
        messages = self.take()
        if not messages:
            return b""
        frames = encode_events(messages, self._hub.epoch, self.sent_upto)
        self.sent_upto = messages[-1].offset
        return frames


class Streams:
    """All live connections: admits them, and ends those that must end."""

    def __init__(
        self,
        streams_max: int,
        per_address_max: int,
        now_s: Callable[[], float],
        *,
        is_revoked: Callable[[Identity], bool] = lambda _identity: False,
        heartbeat_s: float | None = None,
        stalled_s: float | None = None,
    ) -> None:
        """`now_s` is the time in s since 1970, for credentials that expire; the last two: None for the default."""
        self._streams_max = streams_max
        self._per_address_max = per_address_max
        self._now_s = now_s
        self._is_revoked = is_revoked
        self._heartbeat_s = HEARTBEAT_S if heartbeat_s is None else heartbeat_s
        self._stalled_s = STALLED_S if stalled_s is None else stalled_s
        self._open: set[Stream] = set()
        self._by_address: dict[str | bytes, int] = {}  # an IPv6 address counts by its /64
        self._is_over = False

    def __len__(self) -> int:
        return len(self._open)

    def add(self, stream: Stream) -> None:
        """Admit a connection, or raise Overloaded."""
        if self._is_over:
            raise Overloaded("the server is stopping; reconnect in a moment")
        if len(self._open) >= self._streams_max:
            raise Overloaded(f"the server has {self._streams_max} live connections, its maximum; try again later")
        address = limited_as(stream.address)
        if self._by_address.get(address, 0) >= self._per_address_max:
            raise Overloaded(
                f"there are {self._per_address_max} live connections from this address, the maximum; "
                "close one, or watch several topics on it"
            )
        self._open.add(stream)
        self._by_address[address] = self._by_address.get(address, 0) + 1

    def remove(self, stream: Stream) -> None:
        """Remove a connection."""
        if stream in self._open:
            self._open.remove(stream)
            address = limited_as(stream.address)
            left = self._by_address[address] - 1
            if left:
                self._by_address[address] = left
            else:
                del self._by_address[address]

    def end_all(self, ending: Ending) -> None:
        """End every connection, and admit no more."""
        self._is_over = True
        for stream in self._open:
            stream.end(ending)

    async def run(self) -> None:
        """Send heartbeats, and end connections that are too slow or whose credential is not valid any more."""
        loop = asyncio.get_running_loop()
        check_every_s = min(CHECK_EVERY_S, self._heartbeat_s, self._stalled_s)
        next_beat = loop.time() + self._heartbeat_s
        while True:
            await asyncio.sleep(check_every_s)
            is_beat = loop.time() >= next_beat
            if is_beat:
                next_beat = loop.time() + self._heartbeat_s
            for count, stream in enumerate(list(self._open), start=1):
                self.check(stream, loop.time(), is_beat=is_beat)
                if count % SLICE_STREAMS == 0:
                    await asyncio.sleep(0)

    def check(self, stream: Stream, now: float, *, is_beat: bool) -> None:
        """End a connection that must end, else send a due heartbeat; `now` is the event loop's time."""
        identity = stream.identity
        if identity is not None and identity.expires_at is not None and identity.expires_at <= self._now_s():
            stream.end(EXPIRED)
        if identity is not None and self._is_revoked(identity):
            stream.end(REVOKED)
        if stream.sending_since is not None and now - stream.sending_since > self._stalled_s:
            stream.ending = TOO_SLOW
            if stream.task is not None:  # it waits for a client that does not read
                stream.task.cancel()
        elif is_beat:
            stream.is_beating = True
            stream.wake()


def parse_since(text: str | None, epoch: str) -> int | None:
    """Return the offset of an event id such as `9f86d081-42`; -1 for an id of another process."""
    if text is None:
        return None
    other, separator, offset = text.rpartition("-")
    if not separator or not offset.isascii() or not offset.isdigit() or len(offset) > 18 or other != epoch:
        return -1
    return int(offset)


def problem_data(problem: RankdError) -> dict[str, object]:
    """Return the data of the last message of a topic that ended."""
    return {"code": problem.code, "detail": detail_of(problem)}
