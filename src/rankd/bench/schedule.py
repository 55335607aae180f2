"""When requests are due and of which kind they are: decided before the run, independent of the answers."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import accumulate

from rankd.bench.load import Load, RequestKind, Spacing

_KINDS_AT_ONCE = 1_024


def instants(load: Load, rng: random.Random) -> Iterator[float]:
    """Yield the seconds after the start at which requests are due, in order."""
    if load.spacing is Spacing.EVEN:
        count = round(load.rate * load.duration_s)
        yield from (number / load.rate for number in range(count))
        return
    due_s = rng.expovariate(load.rate)
    while due_s < load.duration_s:
        yield due_s
        due_s += rng.expovariate(load.rate)


def kinds(load: Load, rng: random.Random) -> Iterator[RequestKind]:
    """Yield the kinds of all requests, without an end."""
    weights = load.weights()
    names, bounds = list(weights), list(accumulate(weights.values()))
    while True:
        yield from rng.choices(names, cum_weights=bounds, k=_KINDS_AT_ONCE)
