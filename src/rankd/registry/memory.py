"""Caches of rows that other processes may change.

moment → read from the database → keep, except keys invalidated after that moment
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from threading import Lock
from typing import Generic, TypeVar

V = TypeVar("V")
FORGOTTEN_MAX = 10_000
FRIENDS_PER_PROFILE = 4  # cached ids of friends per cached profile


class Memory(Generic[V]):
    """A bounded cache that never keeps a value read before its invalidation. From any thread.

    The oldest entries leave first. `weigh` returns the share of `weight_max` that a value takes.
    """

    def __init__(self, weight_max: int, weigh: Callable[[V], int] = lambda _value: 1) -> None:
        """Begin empty."""
        self._weight_max = weight_max
        self._weigh = weigh
        self._lock = Lock()
        self._held: dict[str, V] = {}
        self._weight = 0
        self._moment = 0
        self._forgotten: dict[str, int] = {}  # moment of the last invalidation by key, since `_blank`
        self._changing: Counter[str] = Counter()
        self._blank = 0  # values read before this moment are not kept

    def __len__(self) -> int:
        """Return the number of entries."""
        return len(self._held)

    def get(self, key: str, absent: V) -> V:
        """Return the cached value, or `absent`."""
        return self._held.get(key, absent)

    @property
    def moment(self) -> int:
        """The current moment: take it before reading, for `keep`."""
        return self._moment

    def keep(self, moment: int, values: Mapping[str, V]) -> None:
        """Cache values read after `moment`, as far as there is room."""
        with self._lock:
            if moment < self._blank:
                return
            for key, value in values.items():
                weight = self._weigh(value)
                if self._forgotten.get(key, 0) > moment or key in self._changing or weight > self._weight_max:
                    continue
                self._drop(key)
                while self._weight + weight > self._weight_max:
                    self._drop(next(iter(self._held)))
                self._held[key] = value
                self._weight += weight

    def forget(self, keys: Iterable[str]) -> None:
        """Invalidate keys."""
        with self._lock:
            self._moment += 1
            for key in keys:
                self._drop(key)
                self._forgotten[key] = self._moment
            if len(self._forgotten) > FORGOTTEN_MAX:
                self._forgotten.clear()
                self._blank = self._moment

    @contextmanager
    def changing(self, key: str) -> Iterator[None]:
        """Do not cache a key during the block, which changes it."""
        self._count(key, 1)
        try:
            yield
        finally:
            self._count(key, -1)

    def _count(self, key: str, more: int) -> None:
        with self._lock:
            self._changing[key] += more
            if not self._changing[key]:
                del self._changing[key]
        self.forget([key])

    def forget_all(self) -> None:
        """Invalidate everything."""
        with self._lock:
            self._moment += 1
            self._blank = self._moment
            self._forgotten.clear()
            self._held.clear()
            self._weight = 0

    def _drop(self, key: str) -> None:
        if key in self._held:
            self._weight -= self._weigh(self._held.pop(key))


class DerivedLists:
    """A cache of id lists derived from a registry, until it changes. From any thread."""

    def __init__(self, ids_max: int) -> None:
        """Cache at most `ids_max` ids; one list more empties the cache."""
        self._ids_max = ids_max
        self._lock = Lock()
        self._changes = -1  # of the registry, when these lists were derived
        self._held: dict[str, tuple[str, ...]] = {}
        self._ids = 0

    def get(self, key: str, changes: int, find: Callable[[], Iterable[str]]) -> list[str]:
        """Return a list, derived by `find` if not cached; `changes` is the registry's change count."""
        with self._lock:
            if changes != self._changes:
                self._empty(changes)
            held = self._held.get(key)
        if held is None:
            held = tuple(find())
            with self._lock:
                if self._ids + 1 + len(held) > self._ids_max:
                    self._empty(self._changes)
                if changes == self._changes and key not in self._held and 1 + len(held) <= self._ids_max:
                    self._held[key] = held
                    self._ids += 1 + len(held)
        return list(held)

    def _empty(self, changes: int) -> None:
        self._changes = changes
        self._held.clear()
        self._ids = 0
