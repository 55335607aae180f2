"""How long scores took to reach clients: from the answer to a score until a message whose position holds it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

MessageTimes = tuple[Sequence[int], Sequence[float]]  # the positions of a client's messages, and when each came


class Delays(msgspec.Struct, frozen=True):
    """In ms: of all scores at all clients, and the 99th percentile of the client that fares worst."""

    p50: float
    p95: float
    p99: float
    max: float
    worst_client_p99: float


def delays(acknowledged: Sequence[tuple[int, float]], clients: Sequence[MessageTimes]) -> Delays:
    """`acknowledged` are positions of scores, and when each was answered.

    >>> delays([(5, 1.0), (6, 1.2)], [([4, 5, 7], [0.9, 1.5, 1.6])]).max
    500.0
    """
    ordered = sorted(acknowledged)
    positions = np.array([position for position, _ in ordered])
    answered = np.array([at for _, at in ordered])
    sums: list[np.ndarray] = []
    worst = 0.0
    for seen, times in clients:
        # The first message that holds each score.
        first = np.searchsorted(np.asarray(seen), positions, side="left")
        arrived = first < len(seen)
        delays_s = (np.asarray(times)[first[arrived]] - answered[arrived]).clip(0.0)
        worst = max(worst, float(np.percentile(delays_s, 99))) if len(delays_s) else worst
        sums.append(delays_s)
    every = np.concatenate(sums)
    p50, p95, p99 = (float(value) * 1_000 for value in np.percentile(every, (50, 95, 99)))
    return Delays(round(p50, 3), round(p95, 3), round(p99, 3), round(float(every.max()) * 1_000, 3), worst * 1_000)
