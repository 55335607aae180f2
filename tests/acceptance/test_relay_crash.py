"""`rankd relay` is killed or paused wherever it is: a consumer that skips what it has seen misses nothing."""

from __future__ import annotations

import random
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from tests.servers.kafka import KafkaBroker
from tests.servers.load_bound import LoadBound
from tests.servers.waiting import wait_until

import rankd
from rankd.boards import Boards
from rankd.node.open_node import open_node
from rankd.node.shared_stores import SharedStores

from .relaying import Outbox, RelayProcesses, once

KILLS, KILLS_LONG = 5, 100
PLAYERS = 30
EVENTS, EVERY_S, EVERY_LONG_S = 40, 0.02, 0.1  # of the load: so many, so often
ROUNDS_MAX, LOAD_S_MAX = 6_000, 1_500.0
BACKLOG = 30_000  # of a folder, which nobody else can write meanwhile
ALIVE_S = (0.0, 1.2)  # between the start of relaying and the kill
WAIT_S = 120.0


class NumberedScores:
    """Scores that each have their player's next number, so that a gap or another order shows."""

    def __init__(self, boards: Boards) -> None:
        self._boards = boards
        self._sent = 0

    def submit(self, count: int) -> None:
        numbers = range(self._sent, self._sent + count)
        players, scores = [f"p{n % PLAYERS}" for n in numbers], [n // PLAYERS for n in numbers]
        self._boards.submit_many("tally", players=players, scores=scores)
        self._sent += count

    @contextmanager
    def coming(self, every_s: float = EVERY_S) -> Iterator[None]:
        """Submit scores all the time for the block."""
        end, bound = threading.Event(), LoadBound(ROUNDS_MAX, LOAD_S_MAX)

        def load() -> None:
            while not end.wait(every_s) and bound.take():
                self.submit(EVENTS)

        thread = threading.Thread(target=load)
        thread.start()
        try:
            yield
        finally:
            end.set()
            thread.join(WAIT_S)

    def all_arrived(self, outbox: Outbox) -> bool:
        """Check what has arrived, and return whether it is everything."""
        arrived: dict[str, list[int]] = {}
        events = once(outbox.events())
        for event in events:
            if event.value["kind"] == "score":
                arrived.setdefault(event.value["player"], []).append(event.value["score"])
        for scores in arrived.values():
            assert scores == list(range(len(scores)))  # no gap, and no other order
        return sum(map(len, arrived.values())) == self._sent


def check_folder(kafka: KafkaBroker, folder: Path, kills: int) -> None:
    outbox, data, chosen, pause = Outbox(kafka), folder / "data", random.Random(20260504), threading.Event()
    with rankd.open(data) as boards:
        boards.define("tally", keep="latest")
        scores = NumberedScores(boards)
        scores.submit(BACKLOG)
    processes = RelayProcesses(outbox, folder, f"sqlite:{data}")
    for _ in range(kills):
        with processes.running() as process:
            pause.wait(chosen.uniform(*ALIVE_S))
            process.kill()
    with processes.running() as process:
        wait_until(lambda: scores.all_arrived(outbox), WAIT_S)
        process.terminate()
        assert process.wait(WAIT_S) == 0
    before = len(outbox.events())
    with processes.running() as process:  # it has stored where it ended
        process.terminate()
        assert process.wait(WAIT_S) == 0
    assert len(outbox.events()) == before


def test_a_killed_relay_of_a_folder_leaves_no_gap(tmp_path: Path, kafka: KafkaBroker) -> None:
    check_folder(kafka, tmp_path, KILLS)


@pytest.mark.long
@pytest.mark.timeout(3_000)
def test_a_relay_of_a_folder_that_is_killed_a_hundred_times_leaves_no_gap(tmp_path: Path, kafka: KafkaBroker) -> None:
    check_folder(kafka, tmp_path, KILLS_LONG)


def check_shared(kafka: KafkaBroker, folder: Path, url: str, kills: int) -> None:
    SharedStores(url).migrate()
    outbox, chosen, pause = Outbox(kafka), random.Random(20260504), threading.Event()
    processes = RelayProcesses(outbox, folder, url)
    with open_node(SharedStores(url), folder / "node") as boards, ExitStack() as running:
        boards.define("tally", keep="latest")
        scores = NumberedScores(boards)
        both = [running.enter_context(processes.running()) for _ in range(2)]
        with scores.coming(EVERY_S if kills == KILLS else EVERY_LONG_S):
            for _ in range(kills):
                pause.wait(chosen.uniform(*ALIVE_S))
                killed = chosen.randrange(2)
                both[killed].kill()
                both[killed] = running.enter_context(processes.running())
        wait_until(lambda: scores.all_arrived(outbox), WAIT_S)


def test_of_two_relays_on_postgresql_one_is_killed_again_and_again(
    tmp_path: Path, kafka: KafkaBroker, postgres_url: str
) -> None:
    check_shared(kafka, tmp_path, postgres_url, KILLS)


@pytest.mark.long
@pytest.mark.timeout(3_000)
def test_of_two_relays_on_postgresql_one_is_killed_a_hundred_times(
    tmp_path: Path, kafka: KafkaBroker, postgres_url: str
) -> None:
    check_shared(kafka, tmp_path, postgres_url, KILLS_LONG)


def test_a_relay_that_was_paused_and_wakes_up_beside_its_successor_does_no_harm(
    tmp_path: Path, kafka: KafkaBroker, postgres_url: str
) -> None:
    SharedStores(postgres_url).migrate()
    outbox = Outbox(kafka)
    processes = RelayProcesses(outbox, tmp_path, postgres_url)
    with open_node(SharedStores(postgres_url), tmp_path / "node") as boards, processes.running() as first:
        boards.define("tally", keep="latest")
        scores = NumberedScores(boards)
        with scores.coming(), processes.running():
            wait_until(lambda: len(outbox.events()) > EVENTS)
            first.send_signal(signal.SIGSTOP)
            paused_at = len(outbox.events())
            wait_until(lambda: len(outbox.events()) > paused_at + EVENTS)  # the other one has taken over
            first.send_signal(signal.SIGCONT)
            resumed_at = len(outbox.events())
            wait_until(lambda: len(outbox.events()) > resumed_at + 5 * EVENTS)
        wait_until(lambda: scores.all_arrived(outbox), WAIT_S)
