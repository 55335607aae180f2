"""The few limits of the attacked server that are not its defaults: times, so that tests see them pass."""

from __future__ import annotations

HEADER_READ_MS = 1_500
BODY_READ_MS = 400
BODY_READ_WHOLE_S = 6 * BODY_READ_MS / 1_000
CONFIG = f"""
[limits]
header_read_ms = {HEADER_READ_MS}
body_read_ms = {BODY_READ_MS}
"""
