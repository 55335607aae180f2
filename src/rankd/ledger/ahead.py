"""Reading ahead: the next events are fetched while the last ones are ranked."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")


def ahead(source: Iterator[Item]) -> Iterator[Item]:
    """Go through an iterator, one item ahead in a thread of its own.

    >>> list(ahead(iter("abc")))
    ['a', 'b', 'c']
    """
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="rankd-ahead") as thread:
        coming = thread.submit(next, source, None)
        while (item := coming.result()) is not None:
            coming = thread.submit(next, source, None)
            yield item
