"""However often and from wherever a request is sent again, it counts once; another one under its key is refused."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

import rankd
from rankd.errors import KeyReused

from .extent import replayable, short_and_long

THREADS = 16
EVENTS = 1_200
EVENTS_LONG = 30_000
SENT_MAX = 5
PLAYERS = 50
BATCH_ROWS = 10
WAIT_S_MAX = 600


def storm(calls: list[Callable[[], None]], rng: random.Random) -> None:
    """Make all calls from many threads in random order."""
    rng.shuffle(calls)
    with ThreadPoolExecutor(THREADS) as pool:
        for done in [pool.submit(call) for call in calls]:
            done.result(timeout=WAIT_S_MAX)


def scores(boards: rankd.Boards) -> dict[str, int]:
    return {entry.player: entry.score for entry in boards.top("counts", limit=1000).entries}


@short_and_long
def test_events_sent_many_times_count_once(tmp_path: Path, everything: bool) -> None:
    with replayable() as rng:
        expected: Counter[str] = Counter()
        positions: dict[str, list[str]] = {}
        firsts: Counter[str] = Counter()
        calls: list[Callable[[], None]] = []
        with rankd.open(tmp_path / "data") as boards:
            boards.define("counts", keep="sum")
            for number in range(EVENTS_LONG if everything else EVENTS):
                key = f"event-{number}"
                players = [f"player-{rng.randrange(PLAYERS)}" for _ in range(BATCH_ROWS if number % 10 == 0 else 1)]
                expected.update(players)
                positions[key] = []

                def send(key: str = key, players: list[str] = players) -> None:
                    sent: rankd.Submitted | rankd.Batched
                    if len(players) == 1:
                        sent = boards.submit("counts", players[0], 1, key=key)
                    else:
                        sent = boards.submit_many("counts", [(player, 1) for player in players], key=key)
                    positions[key].append(sent.position)
                    firsts[key] += not sent.repeated

                calls += [send] * rng.randint(1, SENT_MAX)
            storm(calls, rng)

            assert set(firsts.values()) == {1}
            assert all(len(set(key_positions)) == 1 for key_positions in positions.values())
            assert scores(boards) == expected
            boards.verify()
        with rankd.open(tmp_path / "data") as boards:
            assert scores(boards) == expected


def test_of_two_requests_under_one_key_the_first_counts_and_the_other_is_refused(tmp_path: Path) -> None:
    with replayable() as rng, rankd.open(tmp_path / "data") as boards:
        boards.define("counts", keep="sum")
        accepted: dict[str, set[int]] = {f"event-{number}": set() for number in range(EVENTS // 10)}
        refused: dict[str, set[int]] = {key: set() for key in accepted}

        def send(key: str, score: int) -> None:
            try:
                boards.submit("counts", key, score, key=key)
            except KeyReused:
                refused[key].add(score)
            else:
                accepted[key].add(score)

        storm([partial(send, key, score) for key in accepted for score in (1, 1, 10, 10)], rng)

        for key, counted in accepted.items():
            assert len(counted) == 1
            assert refused[key] == {1, 10} - counted
            standing = boards.rank("counts", key)
            assert standing is not None
            assert {standing.score} == counted
        boards.verify()


def test_a_key_still_names_its_request_after_a_restart(tmp_path: Path) -> None:
    with rankd.open(tmp_path / "data") as boards:
        boards.define("counts", keep="sum")
        first = boards.submit("counts", "alice", 976, key="match-8731")
    with rankd.open(tmp_path / "data") as boards:
        again = boards.submit("counts", "alice", 976, key="match-8731")
        with pytest.raises(KeyReused):
            boards.submit("counts", "alice", 977, key="match-8731")

    assert (again.repeated, again.position, again.score) == (True, first.position, 976)
