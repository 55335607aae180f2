"""The hub polls the watched topics at an interval and wakes the watchers of those that changed.

    commits → fingerprints of watched instances, once an interval → WatchedTopic.read → watchers, in slices

The hub computes nothing for topics without watchers. It keeps a topic's messages for a while after its last watcher has
left, so that a client that reconnects receives the messages it missed.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator
from itertools import islice
from typing import Protocol, TypeVar

from rankd.boards import Boards
from rankd.errors import NotFound, Overloaded, RankdError, RanksUnavailable, Refused, Unavailable
from rankd.push.history import HistoryBudget
from rankd.push.topics import Topic, TopicKind
from rankd.push.watched import TopicFingerprint, WatchedTopic, Watcher
from rankd.reads.instance_ref import InstanceRef

TOPICS_MAX = 50_000  # watched or kept
IDLE_TOPICS_MAX = 2_000  # kept
IDLE_S = 60.0  # how long an unwatched topic is kept
FINGERPRINTS_PER_CALL = 5_000  # where another process has the ranks
REFRESHES_CONCURRENT_MAX = 8  # of changed topics there, so that other reads get their share
SLICE_TOPICS = 32  # polled before other tasks of the event loop may run
SLICE_WATCHERS = 64  # woken before other tasks may run
_log = logging.getLogger("rankd")
Result = TypeVar("Result")


class ThreadRunner(Protocol):
    """Runs blocking work outside of the event loop."""

    def __call__(self, work: Callable[[], Result], /) -> Awaitable[Result]:
        """Return the result of `work`."""


class TopicEnd(Protocol):
    """Makes the last message to the watchers of a topic that cannot be read any more."""

    def __call__(self, problem: RankdError) -> object:
        """Return the data of the message."""


class Hub:
    """All watched topics; used on the event loop."""

    def __init__(
        self, boards: Boards, interval_ms: int, in_thread: ThreadRunner, here_or_in_thread: ThreadRunner, ends: TopicEnd
    ) -> None:
        """`in_thread` runs work that blocks, `here_or_in_thread` work that only may block."""
        self._boards = boards
        self._interval_s = interval_ms / 1_000
        self._in_thread = in_thread
        self._here_or_in_thread = here_or_in_thread
        self._ends = ends
        self._topics: dict[Topic, WatchedTopic] = {}
        # Topics without watchers, in the order in which the last one left.
        self._idle: OrderedDict[Topic, WatchedTopic] = OrderedDict()
        self._budget = HistoryBudget()
        self.epoch = secrets.token_hex(4)
        self.offset = 0
        self.messages = 0

    @property
    def topics(self) -> int:
        """How many topics are watched or kept after their last watcher left."""
        return len(self._topics)

    def _next_offset(self) -> int:
        self.offset += 1
        return self.offset

    async def watch(self, topic: Topic, watcher: Watcher) -> WatchedTopic:
        """Add a watcher and refresh the topic; raises what the matching read would."""
        watched = self._topics.get(topic) or self._begin(topic)
        is_alone = not watched.watchers
        # Before the first await: a second watcher that arrives meanwhile must find the same object.
        watched.watchers.add(watcher)
        self._idle.pop(watched.topic, None)
        try:
            await self._refresh(watched)
        except BaseException:
            self.unwatch(watched, watcher)
            raise
        if is_alone:  # other watchers would get messages more often than the interval allows
            watched.publish()
        return watched

    def _begin(self, topic: Topic) -> WatchedTopic:
        if len(self._topics) >= TOPICS_MAX:
            self._forget_idle(0)
        if len(self._topics) >= TOPICS_MAX:
            raise Overloaded("the server watches as many topics as it takes; try again later")
        watched = WatchedTopic(topic, self._boards, self._next_offset, self._budget)
        self._topics[watched.topic] = watched
        return watched

    def unwatch(self, watched: WatchedTopic, watcher: Watcher) -> None:
        """Remove a watcher."""
        watched.watchers.discard(watcher)
        if watched.watchers or self._topics.get(watched.topic) is not watched:
            return
        watched.idle_since = asyncio.get_running_loop().time()
        self._idle[watched.topic] = watched
        self._idle.move_to_end(watched.topic)
        if watched.is_blank:
            self._forget(watched)
        self._forget_idle(IDLE_TOPICS_MAX)

    async def run(self) -> None:
        """Poll until the task is cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            try:
                await self.poll()
            except Exception:
                _log.exception("polling live topics failed")
            await asyncio.sleep(max(0.0, began + self._interval_s - loop.time()))

    async def poll(self) -> None:
        """Refresh each watched topic once, and wake the watchers of those that changed."""
        while self._idle and self._oldest_idle_s() > IDLE_S:
            self._forget(next(iter(self._idle.values())))
        if self._boards.remote is not None:
            await self._poll_remote()
        else:
            await self._poll_local()

    async def _poll_local(self) -> None:
        fault: Exception | None = None
        for topics in self._slices(SLICE_TOPICS):
            for watched in topics:
                try:
                    await self._poll_topic(watched)
                except Exception as problem:  # the other topics are polled all the same
                    fault = problem
            await asyncio.sleep(0)
        if fault is not None:
            raise fault

    async def _poll_remote(self) -> None:
        """Fetch the fingerprints of many topics in one call, then read those that changed."""
        faults: list[BaseException] = []
        for topics in self._slices(FINGERPRINTS_PER_CALL):
            fingerprints = await self._in_thread(lambda topics=topics: self._fingerprints(topics))  # type: ignore[misc]
            changed = []
            for watched in topics:
                current = fingerprints[watched.topic]
                if isinstance(current, TopicFingerprint) and watched.is_unchanged(current, until_settled=True):
                    if watched.publish():  # a watcher that came since the last poll has refreshed it
                        await self._wake(watched)
                elif not isinstance(current, Unavailable):  # those wait for the next poll
                    changed.append((watched, current if isinstance(current, TopicFingerprint) else None))
            for start in range(0, len(changed), REFRESHES_CONCURRENT_MAX):
                some = changed[start : start + REFRESHES_CONCURRENT_MAX]
                polls = [self._poll_topic(watched, current) for watched, current in some]
                results = await asyncio.gather(*polls, return_exceptions=True)
                faults += [result for result in results if result is not None]
        if faults:
            raise faults[-1]

    def _fingerprints(self, topics: list[WatchedTopic]) -> dict[Topic, TopicFingerprint | RankdError]:
        """Return each topic's fingerprint, or the error of resolving it. Runs in a thread."""
        fingerprints: dict[Topic, TopicFingerprint | RankdError] = {}
        refs: dict[Topic, InstanceRef] = {}
        for watched in topics:
            try:
                refs[watched.topic] = watched.resolve()
            except RankdError as problem:
                fingerprints[watched.topic] = problem
        unavailable = RanksUnavailable("the ranks cannot be read at present; try again in a moment")
        for topic, fingerprint in zip(refs, self._boards.fingerprints_in(list(refs.values())), strict=True):
            fingerprints[topic] = unavailable if fingerprint is None else TopicFingerprint(refs[topic], fingerprint)
        return fingerprints

    def _slices(self, count: int) -> Iterator[list[WatchedTopic]]:
        """Iterate over the watched topics, `count` at a time; those forgotten meanwhile are left out."""
        topics = iter(list(self._topics))
        while some := list(islice(topics, count)):
            slice_ = [self._topics.get(topic) for topic in some]
            yield [watched for watched in slice_ if watched is not None and watched.watchers]

    async def _poll_topic(self, watched: WatchedTopic, fingerprint: TopicFingerprint | None = None) -> None:
        try:
            await self._refresh(watched, until_settled=True, fingerprint=fingerprint)
            is_changed = watched.publish()
        except Unavailable:  # until the next poll
            return
        except (NotFound, Refused) as problem:
            is_changed = watched.end(self._ends(problem))
        if is_changed:
            await self._wake(watched)

    async def _refresh(
        self, watched: WatchedTopic, *, until_settled: bool = False, fingerprint: TopicFingerprint | None = None
    ) -> None:
        # A player may have a thousand friends, and the registry has them on disk; ranks may be in another process.
        topic = watched.topic
        is_long = topic.kind is TopicKind.FRIENDS or topic.only_mutual or self._boards.remote is not None
        run = self._in_thread if is_long else self._here_or_in_thread
        watched.update(await run(lambda: watched.read(until_settled=until_settled, fingerprint=fingerprint)))

    async def _wake(self, watched: WatchedTopic) -> None:
        self.messages += 1
        watchers = iter(list(watched.watchers))
        while some := list(islice(watchers, SLICE_WATCHERS)):
            for watcher in some:
                watcher.wake()
            await asyncio.sleep(0)

    def _oldest_idle_s(self) -> float:
        return asyncio.get_running_loop().time() - next(iter(self._idle.values())).idle_since

    def _forget_idle(self, kept_max: int) -> None:
        while len(self._idle) > kept_max:
            self._forget(next(iter(self._idle.values())))

    def _forget(self, watched: WatchedTopic) -> None:
        del self._idle[watched.topic]
        del self._topics[watched.topic]
        watched.forget()
