"""A progress bar for long work, on a terminal only."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

_SHOWN_AFTER_S = 1.0
_EVERY_S = 0.1
_WIDTH = 30


def progress_bar(what: str = "replaying", unit: str = "events") -> Callable[[int, int], None]:
    """Return a function of (done, total) that draws a bar once the work has taken a second."""
    began = time.monotonic()
    drawn = 0.0

    def draw(done: int, total: int) -> None:
        nonlocal drawn
        now = time.monotonic()
        is_over = done >= total
        if now - began < _SHOWN_AFTER_S or not sys.stderr.isatty() or (now - drawn < _EVERY_S and not is_over):
            return
        drawn = now
        filled = _WIDTH * done // max(total, 1)
        rate = done / (now - began)
        sys.stderr.write(
            f"\r{what} [{'#' * filled}{'.' * (_WIDTH - filled)}] {done:,} of {total:,} {unit}, {rate:,.0f}/s"
        )
        if is_over:
            sys.stderr.write("\n")
        sys.stderr.flush()

    return draw
