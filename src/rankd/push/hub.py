"""The hub: looks at watched topics at an interval, and wakes those who watch what has changed.

    commits → fingerprints of watched instances, once an interval → Watched.look → watchers, in slices

Nothing is computed for topics nobody watches. What a topic's watchers were told is kept for a while after the last of
them has left, so that somebody who comes back is told what was missed.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable
from itertools import islice
from typing import Protocol

from rankd.boards import Boards
from rankd.errors import Overloaded, RankdError
from rankd.push.topics import Kind, Topic
from rankd.push.watched import Look, Watched, Watcher

TOPICS_MAX = 50_000  # watched or kept
IDLE_S = 60.0  # how long an unwatched topic is kept
SLICE_TOPICS = 32  # looked at before others may run
SLICE_WATCHERS = 64  # woken before others may run
_log = logging.getLogger("rankd")

InThread = Callable[[Callable[[], Look | None]], Awaitable[Look | None]]


class Ends(Protocol):
    """What is said to the watchers of a topic that is no more."""

    def __call__(self, problem: RankdError) -> object:
        """Return what stands in the last message."""
        ...


class Hub:
    """Everything that is watched; used on the event loop."""

    def __init__(self, boards: Boards, interval_ms: int, in_thread: InThread, ends: Ends) -> None:
        """`in_thread` runs what would hold the event loop up."""
        self._boards = boards
        self._interval_s = interval_ms / 1_000
        self._in_thread = in_thread
        self._ends = ends
        self._topics: dict[str, Watched] = {}
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
        """Let somebody watch a topic; raises what the matching read would."""
        watched = self._topics.get(topic.text)
        if watched is None:
            if len(self._topics) >= TOPICS_MAX:
                self._forget_idle(all_idle=True)
            if len(self._topics) >= TOPICS_MAX:
                raise Overloaded("more is being watched than the server takes; try again later")
            watched = Watched(topic, self._boards, self._next_offset, self.offset)
        is_changed = await self._refresh(watched)
        self._topics[watched.name] = watched
        watched.watchers.add(watcher)
        watched.idle_since = None
        if is_changed:
            await self._wake(watched)
        return watched

    def unwatch(self, watched: Watched, watcher: Watcher) -> None:
        """Let somebody watch a topic no more."""
        watched.watchers.discard(watcher)
        if not watched.watchers:
            watched.idle_since = asyncio.get_running_loop().time()

    async def run(self) -> None:
        """Look at what is watched, again and again."""
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            try:
                await self._look()
            except Exception:
                _log.exception("live topics could not be looked at")
            await asyncio.sleep(max(0.0, began + self._interval_s - loop.time()))

    async def _look(self) -> None:
        self._forget_idle()
        names = iter(list(self._topics))
        while some := list(islice(names, SLICE_TOPICS)):
            for name in some:
                watched = self._topics.get(name)
                if watched is not None and watched.watchers:
                    await self._look_at(watched)
            await asyncio.sleep(0)

    async def _look_at(self, watched: Watched) -> None:
        try:
            is_changed = await self._refresh(watched)
        except RankdError as problem:
            watched.end(self._ends(problem))
            self._topics.pop(watched.name, None)
            is_changed = True
        if is_changed:
            await self._wake(watched)

    async def _refresh(self, watched: Watched) -> bool:
        if watched.topic.kind is Kind.FRIENDS:  # up to a thousand of them, and their list is on disk
            return watched.take(await self._in_thread(watched.look))
        return watched.take(watched.look())

    async def _wake(self, watched: Watched) -> None:
        self.messages += 1
        watchers = iter(list(watched.watchers))
        while some := list(islice(watchers, SLICE_WATCHERS)):
            for watcher in some:
                watcher.wake()
            await asyncio.sleep(0)

    def _forget_idle(self, *, all_idle: bool = False) -> None:
        now = asyncio.get_running_loop().time()
        for name, watched in list(self._topics.items()):
            if watched.idle_since is not None and (all_idle or now - watched.idle_since > IDLE_S):
                del self._topics[name]
