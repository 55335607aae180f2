"""Many processes append at once: nothing is lost, doubled or seen out of order by whoever follows."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import pytest
from tests.contract.ledger_drafts import (
    ARCADE,
    AT,
    GUILDS,
    Reader,
    ReadEvent,
    control,
    draft,
    events_in,
    everything,
    flat,
    keyed,
    player_in,
    scores,
)
from tests.contract.postgres_ledgers import opened, uncommitted, waiting_for_locks
from tests.servers.waiting import WAIT_S, wait_until

from rankd.ledger.event import EventKind
from rankd.ledger.port import DefinitionsChanged, Draft, KeysTaken
from rankd.ledger.postgres import PostgresLedger

ROOT = Path(__file__).resolve().parents[2]
PROCESSES = 3
APPENDS = 80


@pytest.fixture
def ledger(ledger_url: str) -> Iterator[PostgresLedger]:
    with opened(ledger_url, pool_max=20) as opened_ledger:
        yield opened_ledger


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(12) as pool:
        yield pool


def check_controls(rows: list[list[ReadEvent]], ledger: PostgresLedger) -> None:
    """Control events stand in every partition in one order, and between them each has what was appended then."""
    controls = ledger.controls(0)
    assert [event.number for event in controls] == list(range(1, len(controls) + 1))
    for partition, of_partition in enumerate(rows):
        midnights = [(row.sequence, row.at) for row in of_partition if row.kind is EventKind.MIDNIGHT]
        assert midnights == [(event.sequences[partition], event.at) for event in controls]


def check_ordinals(rows: list[list[ReadEvent]], ledger: PostgresLedger) -> None:
    """Ordinals have no gaps, and within a partition they follow the sequences."""
    given = [row.ordinal for row in flat(rows) if row.ordinal]
    assert sorted(given) == list(range(1, ledger.heads().ordinal + 1))
    for of_partition in rows:
        mine = [row.ordinal for row in of_partition if row.ordinal]
        assert mine == sorted(mine)


def test_a_reader_beside_many_processes_misses_nothing(ledger: PostgresLedger, ledger_url: str) -> None:
    writers = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.contract.postgres_writer", ledger_url, str(number), str(APPENDS)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(1, PROCESSES + 1)
    ]
    reader = Reader(ledger, events_max=37)
    try:
        while any(writer.poll() is None for writer in writers):
            if not reader.read():  # which fails at a gap
                ledger.wait(0.05)
        outputs = [writer.communicate(timeout=WAIT_S) for writer in writers]
    finally:
        for writer in writers:
            writer.kill()
            writer.wait(WAIT_S)
    assert [error for _, error in outputs if error] == []
    while reader.read():
        pass

    acknowledged: list[dict[str, Any]] = [json.loads(line) for out, _ in outputs for line in out.splitlines()]
    expected = sorted(tuple(event) for append in acknowledged for event in append["events"])
    read = [
        (partition, row.sequence, row.player, row.score)
        for partition, of_partition in enumerate(reader.rows)
        for row in of_partition
        if row.kind is EventKind.SCORE
    ]
    assert expected == sorted(read)
    assert reader.rows == everything(ledger)
    assert [len(of_partition) for of_partition in reader.rows] == list(ledger.heads().sequences)
    check_controls(reader.rows, ledger)
    check_ordinals(reader.rows, ledger)
    for append in acknowledged:
        request = ledger.request("sender", append["key"])
        assert request is not None
        assert request.positions == {event[0]: event[1] for event in append["events"]}
        assert request.events == len(append["events"])


def test_a_transaction_that_took_its_number_first_and_commits_last_is_not_missed(
    ledger: PostgresLedger, ledger_url: str, threads: ThreadPoolExecutor
) -> None:
    slow, quick = player_in(3, 0), player_in(3, 1)
    reader = Reader(ledger)
    with uncommitted(ledger, draft(ledger, (slow, 1))):
        behind = threads.submit(ledger.append, draft(ledger, (quick, 2)))
        wait_until(lambda: waiting_for_locks(ledger_url) == 1)
        ledger.append(draft(ledger, (player_in(4), 3)))  # nobody in another partition waits
        reader.read()
        assert [len(rows) for rows in reader.rows] == [0, 0, 0, 0, 1, 0, 0, 0]

    assert behind.result(WAIT_S).place(0) == (3, 2)
    reader.read()
    assert [(row.sequence, row.player) for row in reader.rows[3]] == [(1, slow), (2, quick)]


def test_the_number_of_a_transaction_that_was_taken_back_is_given_again(
    ledger: PostgresLedger, ledger_url: str, threads: ThreadPoolExecutor
) -> None:
    with uncommitted(ledger, draft(ledger, (player_in(3), 1), key="k"), taken_back=True):
        behind = threads.submit(ledger.append, draft(ledger, (player_in(3), 2), key="k"))
        wait_until(lambda: waiting_for_locks(ledger_url) == 1)

    assert behind.result(WAIT_S).place(0) == (3, 1)
    assert events_in(ledger) == [(player_in(3), 2)]


def test_a_control_event_waits_for_whoever_is_before_it(
    ledger: PostgresLedger, ledger_url: str, threads: ThreadPoolExecutor
) -> None:
    with uncommitted(ledger, draft(ledger, (player_in(6), 1))):
        defined = threads.submit(ledger.append_control, [control()], 0)
        wait_until(lambda: waiting_for_locks(ledger_url) == 1)
        late = threads.submit(ledger.append, draft(ledger, (player_in(2), 2)))
        wait_until(lambda: waiting_for_locks(ledger_url) == 2)

    (written,) = defined.result(WAIT_S)
    assert written.sequences == (1, 1, 1, 1, 1, 1, 2, 1)
    with pytest.raises(DefinitionsChanged):
        late.result(WAIT_S)


def test_of_two_at_once_under_one_key_one_is_counted(
    ledger: PostgresLedger, ledger_url: str, threads: ThreadPoolExecutor
) -> None:
    with uncommitted(ledger, draft(ledger, (player_in(0), 1), key="k")):
        other = threads.submit(ledger.append, draft(ledger, (player_in(7), 2), key="k"))
        wait_until(lambda: waiting_for_locks(ledger_url) == 1)
    with pytest.raises(KeysTaken) as raised:
        other.result(WAIT_S)
    assert list(raised.value.keys) == [("sender", "k")]
    assert events_in(ledger) == [(player_in(0), 1)]


@pytest.mark.parametrize("is_apart", [False, True], ids=["same partitions", "partitions apart"])
def test_keys_and_partitions_in_any_order_never_wait_in_a_circle(
    ledger: PostgresLedger, threads: ThreadPoolExecutor, is_apart: bool
) -> None:
    """Each thread takes the same keys, and partitions, in an order of its own; one of them wins each round."""
    rounds, width, keys_each = 15, 8, 8
    start = threading.Barrier(width)

    def race(thread: int) -> int:
        won = 0
        players = [player_in(thread if is_apart else (thread + step) % width) for step in range(keys_each)]
        for number in range(rounds):
            event_run = scores(ledger, *((player, number) for player in players))
            keys = [f"{number}-{(thread + step) % keys_each}" for step in range(keys_each)]
            requests = [keyed(key, index, 1) for index, key in enumerate(keys)]
            start.wait(WAIT_S)
            try:
                ledger.append(Draft([event_run], AT, 0, requests=requests))
                won += 1
            except KeysTaken:
                continue
            except BaseException:
                start.abort()  # else the others wait for this one, and nobody says why
                raise
        return won

    results = [threads.submit(race, thread) for thread in range(width)]
    wait(results, WAIT_S)
    problems = [problem for result in results if (problem := result.exception(0)) is not None]
    assert not [problem for problem in problems if not isinstance(problem, threading.BrokenBarrierError)]
    assert sum(result.result(0) for result in results) == rounds


def test_every_thread_gets_the_same_number_for_a_new_context(ledger: PostgresLedger, ledger_url: str) -> None:
    width = 6
    start = threading.Barrier(width)

    def number(_: int) -> int:
        with opened(ledger_url, pool_max=1) as own:
            start.wait(WAIT_S)
            return scores(own, ("alice", 1)).context

    with ThreadPoolExecutor(width) as pool:
        numbers = set(pool.map(number, range(width)))
    # Which number is the database's affair: those who came too late have drawn some that nobody will have.
    assert len(numbers) == 1
    given = numbers.pop()
    assert ledger.number_context(ledger.context(given)) == given


def test_contexts_have_one_number_for_every_process(ledger: PostgresLedger, ledger_url: str) -> None:
    with opened(ledger_url) as other:
        numbers = [ledger.number_context(ARCADE), other.number_context(ARCADE), other.number_context(GUILDS)]
        assert numbers[0] == numbers[1] != numbers[2]
        assert ledger.context(numbers[2]) == GUILDS
        assert ledger.number_context(GUILDS) == numbers[2]


def test_reading_goes_on_behind_any_sequence_and_takes_of_each_partition(ledger: PostgresLedger) -> None:
    players = [player_in(partition, number) for number in range(3) for partition in range(8)]
    for number in range(5):
        ledger.append(draft(ledger, *((player, number) for player in players)))
    after = [3, 0, 15, 15, 15, 15, 15, 14]

    taken, without = ledger.read(after, 10), ledger.read(after, 10, skipping={0, 7})

    assert [(part.partition, part.event_run.first, len(part.event_run)) for part in taken] == [
        (0, 4, 5),
        (1, 1, 4),
        (7, 15, 1),
    ]
    assert [(part.partition, part.event_run.first, len(part.event_run)) for part in without] == [(1, 1, 10)]


def test_a_partition_may_be_behind_the_time_of_others_until_a_commit_reaches_both(ledger: PostgresLedger) -> None:
    first_player, second_player = player_in(0), player_in(1)
    times = [
        ledger.append(draft(ledger, *((player, 1) for player in players), at=at)).at
        for players, at in (
            ([first_player], AT + 1_000),
            ([second_player], AT),
            ([first_player, second_player], AT),
            ([second_player], AT),
        )
    ]
    assert times == [AT + 1_000, AT, AT + 1_000, AT + 1_000]
    assert ledger.heads().at == AT + 1_000


def test_who_waits_learns_of_an_append_of_another_process(
    ledger: PostgresLedger, ledger_url: str, threads: ThreadPoolExecutor
) -> None:
    ledger.read([0] * 8, 10)
    ledger.wait(0.0)
    waiting: Future[None] = threads.submit(ledger.wait, WAIT_S)
    with opened(ledger_url) as other:
        assert not waiting.done()
        other.append(draft(other, ("alice", 1)))
        waiting.result(WAIT_S)
    ledger.wait(WAIT_S)  # returns at once until it is read
    assert sum(len(part.event_run) for part in ledger.read([0] * 8, 10)) == 1
