"""Put a run's players on its board before the run, so that every read finds its player."""

from __future__ import annotations

import random
from collections.abc import Callable

import msgspec

from rankd.bench.load import Load, ServerAddress, check_load
from rankd.client import Client

BATCH_EVENTS = 5_000
TIMEOUT_S = 30.0


class _Limits(msgspec.Struct):
    score_min: int
    score_max: int


def join(load: Load, progress: Callable[[int, int], None] | None = None) -> Load:
    """Submit a score for every player of a run, and return the run with scores within the board's bounds.

    Where the first, the last and the middle player have a standing, the players were submitted before.
    """
    check_load(load)
    with Client(_url(load.address), load.token, timeout_s=TIMEOUT_S) as boards:
        fitted = _fit_scores(load, boards.definition(load.board))
        if all(boards.rank(load.board, _player(load, number)) for number in {0, load.players // 2, load.players - 1}):
            return fitted
        rng = random.Random(load.seed)  # noqa: S311 - a load, not a secret
        for first in range(0, load.players, BATCH_EVENTS):
            last = min(first + BATCH_EVENTS, load.players)
            boards.submit_many(
                load.board,
                players=[_player(load, number) for number in range(first, last)],
                scores=[rng.randint(fitted.score_min, fitted.score_max) for _ in range(first, last)],
            )
            if progress is not None:
                progress(last, load.players)
    return fitted


def _fit_scores(load: Load, definition: dict[str, object]) -> Load:
    """Limit the scores to the board's bounds."""
    limits = msgspec.convert(definition, _Limits)
    score_min = min(max(load.score_min, limits.score_min), limits.score_max)
    score_max = max(min(load.score_max, limits.score_max), score_min)
    return msgspec.structs.replace(load, score_min=score_min, score_max=score_max)


def _player(load: Load, number: int) -> str:
    return f"{load.prefix}{number:08d}"


def _url(address: ServerAddress) -> str:
    return f"{'https' if address.is_tls else 'http'}://{address.name}{address.path}"
