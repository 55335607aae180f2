"""What was read lately, of things that others may change meanwhile.

moment → read from the database → keep: not what was forgotten after that moment
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from threading import Lock
from typing import Generic, TypeVar

V = TypeVar("V")
FORGOTTEN_MAX = 10_000
FRIENDS_PER_PROFILE = 4  # memory for ids of friends, against that for profiles


class Memory(Generic[V]):
    """A bounded dictionary; whoever read something before it changed cannot bring it back. For any thread.

    The oldest leave first. `weigh` tells how much of `weight_max` a value takes.
    """

    def __init__(self, weight_max: int, weigh: Callable[[V], int] = lambda _value: 1) -> None:
        """Begin empty."""
        self._weight_max = weight_max
        self._weigh = weigh
        self._lock = Lock()
        self._held: dict[str, V] = {}
        self._weight = 0
        self._moment = 0
        self._forgotten: dict[str, int] = {}  # the last moment each was forgotten at, since `_blank`
        self._changing: Counter[str] = Counter()
        self._blank = 0  # whoever read before this moment keeps nothing

    def __len__(self) -> int:
        """Return how many are held."""
        return len(self._held)

    def get(self, key: str, absent: V) -> V:
        """Return what is held, or `absent`."""
        return self._held.get(key, absent)

    @property
    def moment(self) -> int:
        """What to take before reading, for `keep`."""
        return self._moment

    def keep(self, moment: int, values: Mapping[str, V]) -> None:
        """Hold what was read after `moment`, as far as there is room."""
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
        """Hold them no longer: they have changed."""
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
        """Hold something not before the block has ended: it changes meanwhile."""
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
        """Hold nothing: anything may have changed."""
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
    """Lists of ids that were worked out from a registry, until it changes. For any thread."""

    def __init__(self, ids_max: int) -> None:
        """`ids_max` are held together; a list more empties the memory."""
        self._ids_max = ids_max
        self._lock = Lock()
        self._changes = -1  # of the registry, when these were worked out
        self._held: dict[str, tuple[str, ...]] = {}
        self._ids = 0

    def get(self, key: str, changes: int, find: Callable[[], Iterable[str]]) -> list[str]:
        """Return a list, worked out by `find` where it is not held; `changes` is how often the registry changed."""
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
