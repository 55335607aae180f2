"""Read-ahead: fetches the next events while the last ones are applied."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")


def read_ahead(source: Iterator[Item]) -> Iterator[Item]:
    """Iterate over `source`, one item ahead in a thread.

    >>> list(read_ahead(iter("abc")))
    ['a', 'b', 'c']
    """
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="rankd-ahead") as thread:
        coming = thread.submit(next, source, None)
        while (item := coming.result()) is not None:
            coming = thread.submit(next, source, None)
            yield item
