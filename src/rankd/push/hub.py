"""The hub: looks at watched topics at an interval, and wakes those who watch what has changed.

    commits → fingerprints of watched instances, once an interval → Watched.look → watchers, in slices

Nothing is computed for topics nobody watches. What a topic's watchers were told is kept for a while after the last of
them has left, so that somebody who comes back is told what was missed.
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
from rankd.push.history import Room
from rankd.push.topics import Kind, Topic
from rankd.push.watched import Glance, Watched, Watcher
from rankd.reads.meaning import Meant

TOPICS_MAX = 50_000  # watched or kept
IDLE_TOPICS_MAX = 2_000  # kept
IDLE_S = 60.0  # how long an unwatched topic is kept
SLICE_GLANCES = 5_000  # asked about at once, where ranks are in another process
LOOKS_AT_ONCE = 8  # of those that changed there; others read too
SLICE_TOPICS = 32  # looked at before others may run
SLICE_WATCHERS = 64  # woken before others may run
_log = logging.getLogger("rankd")
Result = TypeVar("Result")


class InThread(Protocol):
    """Runs what would hold the event loop up."""

    def __call__(self, work: Callable[[], Result], /) -> Awaitable[Result]:
        """Return what it returns."""
        ...


class Ends(Protocol):
    """What is said to the watchers of a topic that is no more."""

    def __call__(self, problem: RankdError) -> object:
        """Return what stands in the last message."""
        ...


class Hub:
    """Everything that is watched; used on the event loop."""

    def __init__(
        self, boards: Boards, interval_ms: int, in_thread: InThread, here_or_in_thread: InThread, ends: Ends
    ) -> None:
        """`in_thread` runs what would hold the event loop up, `here_or_in_thread` what may turn out to."""
        self._boards = boards
        self._interval_s = interval_ms / 1_000
        self._in_thread = in_thread
        self._here_or_in_thread = here_or_in_thread
        self._ends = ends
        self._topics: dict[Topic, Watched] = {}
        self._idle: OrderedDict[Topic, Watched] = OrderedDict()  # those of them that nobody watches, by when that began
        self._room = Room()
        self.epoch = secrets.token_hex(4)
        self.offset = 0
        self.messages = 0

    @property
    def topics(self) -> int:
        """How many topics are watched or kept."""
        return len(self._topics)

    def _next_offset(self) -> int:
        self.offset += 1
        return self.offset

    async def watch(self, topic: Topic, watcher: Watcher) -> Watched:
        """Let somebody watch a topic, and see it as it is now; raises what the matching read would."""
        watched = self._topics.get(topic) or self._begin(topic)
        is_alone = not watched.watchers
        # Before anything is waited for: whoever comes meanwhile must find the same.
        watched.watchers.add(watcher)
        self._idle.pop(watched.topic, None)
        try:
            await self._refresh(watched)
        except BaseException:
            self.unwatch(watched, watcher)
            raise
        if is_alone:  # what was missed is told at once; others would be told more often than the interval allows
            watched.publish()
        return watched

    def _begin(self, topic: Topic) -> Watched:
        if len(self._topics) >= TOPICS_MAX:
            self._forget_idle(0)
        if len(self._topics) >= TOPICS_MAX:
            raise Overloaded("more is being watched than the server takes; try again later")
        watched = Watched(topic, self._boards, self._next_offset, self._room)
        self._topics[watched.topic] = watched
        return watched

    def unwatch(self, watched: Watched, watcher: Watcher) -> None:
        """Let somebody watch a topic no more."""
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
        """Look at what is watched, again and again."""
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            try:
                await self.look()
            except Exception:
                _log.exception("live topics could not be looked at")
            await asyncio.sleep(max(0.0, began + self._interval_s - loop.time()))

    async def look(self) -> None:
        """Look at everything that is watched, once, and wake whoever has to be told."""
        while self._idle and self._oldest_idle_s() > IDLE_S:
            self._forget(next(iter(self._idle.values())))
        if self._boards.remote is not None:
            await self._look_far()
        else:
            await self._look_here()

    async def _look_here(self) -> None:
        fault: Exception | None = None
        for some in self._slices(SLICE_TOPICS):
            for watched in some:
                try:
                    await self._look_at(watched)
                except Exception as problem:  # the others are looked at all the same
                    fault = problem
            await asyncio.sleep(0)
        if fault is not None:
            raise fault

    async def _look_far(self) -> None:
        """Look at everything whose ranks are in another process: one question for all, then at what has changed."""
        faults: list[BaseException] = []
        for some in self._slices(SLICE_GLANCES):
            seen = await self._in_thread(lambda some=some: self._glance(some))  # type: ignore[misc]
            changed = []
            for watched in some:
                glance = seen[watched.topic]
                if isinstance(glance, Glance) and watched.is_as_before(glance, until_settled=True):
                    if watched.publish():  # what somebody saw who came since the last look
                        await self._wake(watched)
                elif not isinstance(glance, Unavailable):  # of those, the next look will tell
                    changed.append((watched, glance if isinstance(glance, Glance) else None))
            for start in range(0, len(changed), LOOKS_AT_ONCE):
                looks = [self._look_at(watched, glance) for watched, glance in changed[start : start + LOOKS_AT_ONCE]]
                results = await asyncio.gather(*looks, return_exceptions=True)
                faults += [result for result in results if result is not None]
        if faults:
            raise faults[-1]

    def _glance(self, some: list[Watched]) -> dict[Topic, Glance | RankdError]:
        """Return what topics are about, with fingerprints; the error where that cannot be told. In a thread."""
        found: dict[Topic, Glance | RankdError] = {}
        meant: dict[Topic, Meant] = {}
        for watched in some:
            try:
                meant[watched.topic] = watched.meant()
            except RankdError as problem:
                found[watched.topic] = problem
        away = RanksUnavailable("it cannot be told at present whether anything changed")
        for topic, fingerprint in zip(meant, self._boards.fingerprints_in(list(meant.values())), strict=True):
            found[topic] = away if fingerprint is None else Glance(meant[topic], fingerprint)
        return found

    def _slices(self, count: int) -> Iterator[list[Watched]]:
        """Go through what is watched, so many topics at a time; whatever is forgotten meanwhile is left out."""
        topics = iter(list(self._topics))
        while some := list(islice(topics, count)):
            found = [self._topics.get(topic) for topic in some]
            yield [watched for watched in found if watched is not None and watched.watchers]

    async def _look_at(self, watched: Watched, seen: Glance | None = None) -> None:
        try:
            await self._refresh(watched, until_settled=True, seen=seen)
            is_news = watched.publish()
        except Unavailable:  # the next look will tell
            return
        except (NotFound, Refused) as problem:
            is_news = watched.end(self._ends(problem))
        if is_news:
            await self._wake(watched)

    async def _refresh(self, watched: Watched, *, until_settled: bool = False, seen: Glance | None = None) -> None:
        # Friends are up to a thousand, and their lists are on disk; and ranks may be in another process.
        topic = watched.topic
        is_long = topic.kind is Kind.FRIENDS or topic.only_mutual or self._boards.remote is not None
        run = self._in_thread if is_long else self._here_or_in_thread
        watched.take(await run(lambda: watched.look(until_settled=until_settled, seen=seen)))

    async def _wake(self, watched: Watched) -> None:
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

    def _forget(self, watched: Watched) -> None:
        del self._idle[watched.topic]
        del self._topics[watched.topic]
        watched.forget()
