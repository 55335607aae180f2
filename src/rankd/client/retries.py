"""When to send a call again, and how long to wait before that: bounded in number and in time."""

from __future__ import annotations

from email.utils import parsedate_to_datetime
from time import time

import msgspec

BACKOFF_DOUBLINGS_MAX = 32  # beyond that it is at its maximum anyway


class Retries(msgspec.Struct, frozen=True, kw_only=True):
    """The retry policy of a client."""

    retries_max: int = 4
    total_s: float = 30.0  # no attempt begins later than this after the first one
    backoff_s: float = 0.1  # before the first retry; doubled before each further one
    backoff_s_max: float = 5.0

    def pause_s(self, tried: int, elapsed_s: float, retry_after_s: float | None, jitter: float) -> float | None:
        """Return how long to wait after `tried` attempts; None to give up.

        `retry_after_s` is the server's: the client waits at least that long, or gives up where it exceeds the total
        time. `jitter`, from 0 to 1, spreads out clients that failed together.

        >>> Retries().pause_s(tried=3, elapsed_s=1.5, retry_after_s=None, jitter=1.0)
        0.4
        >>> Retries().pause_s(tried=1, elapsed_s=0.0, retry_after_s=2.0, jitter=0.5)
        2.05
        >>> Retries().pause_s(tried=5, elapsed_s=1.5, retry_after_s=None, jitter=0.5)
        """
        if tried > self.retries_max:
            return None
        backoff_s = min(self.backoff_s * 2 ** min(tried - 1, BACKOFF_DOUBLINGS_MAX), self.backoff_s_max)
        pause_s = backoff_s * (1 + jitter) / 2 if retry_after_s is None else retry_after_s + backoff_s * jitter
        return pause_s if elapsed_s + pause_s < self.total_s else None


def read_retry_after(text: str | None) -> float | None:
    """Return the seconds of a Retry-After, a number or a date; None for anything else.

    >>> read_retry_after("3"), read_retry_after("Mon, 04 May 2026 12:00:00 GMT") is not None, read_retry_after("soon")
    (3.0, True, None)
    """
    if text is None:
        return None
    if text.isascii() and text.isdigit() and len(text) <= 9:
        return float(text)
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - time())
    except (ValueError, OverflowError):
        return None
