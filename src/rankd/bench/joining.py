"""Puts a run's players on its board before it begins, so that every read finds somebody."""

from __future__ import annotations

import random
from collections.abc import Callable

import msgspec

from rankd.bench.load import Address, Load, check_load
from rankd.client import Client

BATCH_EVENTS = 5_000
TIMEOUT_S = 30.0


class _Limits(msgspec.Struct):
    score_min: int
    score_max: int


def join(load: Load, progress: Callable[[int, int], None] | None = None) -> Load:
    """Have every player of a run on its board, and return the run with scores that the board takes.

    Where the first, the last and the middle one stand there already, nobody is sent.
    """
    check_load(load)
    with Client(_url(load.address), load.token, timeout_s=TIMEOUT_S) as boards:
        fitted = _fitted(load, boards.definition(load.board))
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


def _fitted(load: Load, definition: dict[str, object]) -> Load:
    """Keep scores within what the board takes."""
    limits = msgspec.convert(definition, _Limits)
    score_min = min(max(load.score_min, limits.score_min), limits.score_max)
    score_max = max(min(load.score_max, limits.score_max), score_min)
    return msgspec.structs.replace(load, score_min=score_min, score_max=score_max)


def _player(load: Load, number: int) -> str:
    return f"{load.prefix}{number:08d}"


def _url(address: Address) -> str:
    return f"{'https' if address.is_tls else 'http'}://{address.name}{address.path}"
