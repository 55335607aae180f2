"""Answers over HTTP compared with the library's on the same folder: figures of wrong answers are worth nothing."""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import httpx
import msgspec

import rankd
from benchmarks.embedded_subject import WINDOWS, columns_of, rest
from benchmarks.http_wrk import BOARD, COUNTRIES, SCOPED_BOARD
from benchmarks.workload import Workload

SAMPLE_PLAYERS = 200
ANSWER_WAIT_S = 30.0
SETTLE_S = 0.5
SETTLE_WAIT_S = 60.0
READS = ("rank", "around", "top")
PLACED = (BOARD, SCOPED_BOARD)  # where places are compared after the last write


def load(folder: Path, players: int, batch_rows: int, *, with_scopes: bool = False) -> None:
    """Put everybody on the board, and on a further one with scopes, by the library."""
    with rankd.open(folder) as boards:
        boards.define(BOARD, keep="latest", windows=list(WINDOWS))
        if with_scopes:
            boards.define(SCOPED_BOARD, keep="latest", windows=list(WINDOWS), scopes=["country"])
        for events in Workload(players).joining(batch_rows):
            joined, scores = columns_of(events)
            boards.submit_many(BOARD, players=joined, scores=scores)
            if with_scopes:
                countries = [f"c-{number % COUNTRIES}" for number in events.numbers.tolist()]
                boards.submit_many(SCOPED_BOARD, players=joined, scores=scores, attributes={"country": countries})
        rest(boards)


def sample(players: int) -> list[str]:
    return sorted(set(Workload(players, stream=1).ids(SAMPLE_PLAYERS)))


def library_reads(boards: rankd.Boards, players: Sequence[str]) -> dict[str, int]:
    """Sum up what the library answers to each read."""
    answers: dict[str, list[object]] = {
        "rank": [boards.rank(BOARD, player) for player in players],
        "around": [boards.around(BOARD, player) for player in players],
        "top": [boards.top(BOARD)],
    }
    return {read: digest(map(msgspec.to_builtins, results)) for read, results in answers.items()}


def http_reads(client: httpx.Client, players: Sequence[str]) -> dict[str, int]:
    """Sum up what the server answers to each read."""
    board = f"/v1/boards/{BOARD}"
    paths = {
        "rank": [f"{board}/players/{player}" for player in players],
        "around": [f"{board}/players/{player}/around" for player in players],
        "top": [f"{board}/top"],
    }
    return {read: digest(_answer(client.get(path)) for path in asked) for read, asked in paths.items()}


def http_places(client: httpx.Client, players: Sequence[str]) -> tuple[list[str], int]:
    """Sum up where players stand in every window; also say which windows those are by now.

    A client that stops leaves requests behind which the server still commits, so it is asked until nothing moves.
    """
    deadline = time.monotonic() + SETTLE_WAIT_S
    while time.monotonic() < deadline:
        before = position(client)
        time.sleep(SETTLE_S)
        answers = [_ranks(client, board, window, players) for board in PLACED for window in WINDOWS]
        if position(client) == before:
            return [str(answer["window"]) for answer in answers[: len(WINDOWS)]], digest(answers)
    raise RuntimeError(f"the server still commits {SETTLE_WAIT_S:.0f} s after the last client went away")


def _ranks(client: httpx.Client, board: str, window: str, players: Sequence[str]) -> dict[str, Any]:
    asked = {"players": list(players)}
    return _answer(client.post(f"/v1/boards/{board}/ranks", params={"window": window}, json=asked))


def position(client: httpx.Client) -> int:
    """Return how many events the ledger holds."""
    page = _answer(client.get(f"/v1/boards/{BOARD}/top", params={"limit": 1}))
    return int(str(page["position"]).rpartition("-")[2])


def library_places(boards: rankd.Boards, instances: Iterable[str], players: Sequence[str]) -> int:
    windows = list(instances)
    return digest(
        msgspec.to_builtins(boards.ranks(board, players, window=window)) for board in PLACED for window in windows
    )


def digest(answers: Iterable[Any]) -> int:
    """Sum up answers, without what moves on while nothing changes.

    >>> digest([{"rank": 1, "as_of": 5}]) == digest([{"rank": 1, "as_of": 6}]) != digest([{"rank": 2}])
    True
    """
    return sum(zlib.crc32(msgspec.json.encode(_lasting(answer), order="sorted")) for answer in answers)


_PASSING = frozenset({"as_of", "position", "stale", "next"})


def _lasting(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _lasting(item) for name, item in value.items() if name not in _PASSING and item is not None}
    return [_lasting(item) for item in value] if isinstance(value, list | tuple) else value


def _answer(response: httpx.Response) -> dict[str, Any]:
    if response.status_code != 200:
        raise RuntimeError(f"the server answers {response.status_code}: {response.text[:300]}")
    body: dict[str, Any] = response.json()
    return body
