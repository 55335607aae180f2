"""Reads of the past: which state is worked out from what, who shares it, and how much of it there may be."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from tests.unit.conftest import MONDAY_NOON, OpenBoards, wait_until

from rankd import Boards, ManualClock
from rankd.errors import Behind, BoardUnknown, Closed, InvalidValue, Overloaded, Refused
from rankd.ledger.port import Ledger
from rankd.ledger.sqlite.ledger import SqliteLedger
from rankd.node.open_embedded import embedded_of
from rankd.reads import past as past_reads
from rankd.reads.past import PastStates

HOUR_MS, DAY_MS = 3_600_000, 86_400_000
WAIT_S = 30


@pytest.fixture
def hourly(boards: Boards, clock: ManualClock) -> Boards:
    """Alice's best is 10 at noon, 11 an hour later and so on, for ten hours; it is ten hours later now."""
    boards.define("arcade", windows=["all_time", "daily"])
    for hour in range(10):
        boards.submit("arcade", "alice", 10 + hour)
        clock.advance(HOUR_MS)
    return boards


def score(boards: Boards, hour: int) -> int | None:
    standing = boards.rank("arcade", "alice", as_of=MONDAY_NOON + hour * HOUR_MS)
    return None if standing is None else standing.score


def states_of(boards: Boards) -> PastStates:
    return embedded_of(boards).past


def test_a_commit_belongs_to_the_instant_at_which_it_was_made(hourly: Boards) -> None:
    assert score(hourly, 3) == 13
    standing = hourly.rank("arcade", "alice", as_of=MONDAY_NOON + 3 * HOUR_MS - 1)
    assert standing is not None
    assert (standing.score, standing.as_of, standing.position) == (12, MONDAY_NOON + 3 * HOUR_MS - 1, "0-4")


def test_it_goes_by_the_time_of_the_commit_and_not_by_the_time_that_was_sent(
    boards: Boards, clock: ManualClock
) -> None:
    boards.define("arcade", late_by="1d")
    clock.advance(HOUR_MS)
    boards.submit("arcade", "alice", 5, at=MONDAY_NOON + 1)
    clock.advance(HOUR_MS)
    assert score(boards, 0) is None
    assert score(boards, 1) == 5


def test_every_read_has_it(hourly: Boards, clock: ManualClock) -> None:
    hourly.submit("arcade", "bob", 1_000)
    hourly.set_friends("alice", ["bob"])
    clock.advance(DAY_MS)
    then: dict[str, Any] = {"as_of": MONDAY_NOON + 2 * HOUR_MS}
    assert [entry.player for entry in hourly.top("arcade", **then).entries] == ["alice"]
    assert [entry.score for entry in hourly.range("arcade", 1, 5, **then).entries] == [12]
    around = hourly.around("arcade", "alice", **then)
    assert around is not None
    assert (around.total, around.above) == (1, [])
    assert hourly.ranks("arcade", ["bob", "alice"], **then).missing == ["bob"]
    assert [entry.player for entry in hourly.friends("arcade", ["bob", "alice"], **then).entries] == ["alice"]
    assert [entry.player for entry in hourly.friends_of("arcade", "alice", **then).entries] == ["alice"]
    assert [entry.player for entry in hourly.mutual_friends_of("arcade", "alice", **then).entries] == ["alice"]
    assert hourly.rank_of_score("arcade", 12, **then).rank == 2
    assert hourly.distribution("arcade", **then).total == 1
    assert hourly.definition("arcade", **then)["windows"] == ["all_time", "daily"]
    page = hourly.top("arcade", 1, window="daily", as_of=clock.now() - DAY_MS)
    assert page.next is not None
    assert hourly.top("arcade", 1, cursor=page.next, as_of=clock.now() - DAY_MS).entries[0].player == "alice"


def test_definitions_and_windows_are_those_of_then(boards: Boards, clock: ManualClock) -> None:
    boards.define("arcade", windows=["daily"], title="Before")
    boards.submit("arcade", "alice", 5)
    clock.advance(DAY_MS)
    boards.define("arcade", windows=["daily", "weekly"], title="After")
    clock.advance(DAY_MS)
    boards.delete("arcade")
    clock.advance(1)
    assert boards.definition("arcade", as_of=MONDAY_NOON)["title"] == "Before"
    assert boards.definition("arcade", as_of=MONDAY_NOON + DAY_MS)["windows"] == ["daily", "weekly"]
    assert boards.top("arcade", as_of=MONDAY_NOON).window == "daily:2026-05-04"
    assert boards.top("arcade", window="daily:previous", as_of=MONDAY_NOON + DAY_MS).total == 1
    with pytest.raises(BoardUnknown):
        boards.top("arcade", as_of=MONDAY_NOON - 1)


def test_a_midnight_that_was_due_is_there_though_it_was_appended_much_later(boards: Boards, clock: ManualClock) -> None:
    boards.define("arcade", windows=["weekly", "daily"])
    boards.submit_many("arcade", [("alice", 5), ("bob", 4)])
    clock.advance(DAY_MS)  # the process is idle: at noon the midnight is appended, before the score
    boards.submit("arcade", "bob", 6)
    clock.advance(DAY_MS)
    morning = MONDAY_NOON + DAY_MS - 4 * HOUR_MS
    before = boards.rank("arcade", "bob", as_of=morning)
    after = boards.rank("arcade", "bob", as_of=MONDAY_NOON + DAY_MS)
    late = boards.rank("arcade", "bob", as_of=MONDAY_NOON + 11 * HOUR_MS)
    assert before is not None
    assert after is not None
    assert late is not None
    assert (before.rank, before.rank_change) == (2, 0)
    assert (after.rank, after.rank_change) == (1, 1)
    assert (late.rank, late.rank_change) == (2, None)
    assert boards.past(morning).is_final(boards.past(morning).resolve("arcade", window="daily:2026-05-04"))


class ReadsSpied:
    """The positions that a ledger was read behind."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.after: list[int] = []
        read = SqliteLedger.read

        def spied(ledger: SqliteLedger, after: Sequence[int], *more: Any) -> Any:
            self.after.append(after[0])
            return read(ledger, after, *more)

        monkeypatch.setattr(SqliteLedger, "read", spied)


def test_it_begins_with_the_newest_checkpoint_that_is_not_behind_the_instant(
    boards: Boards, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    boards.define("arcade")
    for hour in range(6):
        boards.submit("arcade", "alice", 10 + hour)  # event 2, 3, …
        if hour in (1, 3):
            boards.snapshot()  # of event 3 and 5
        clock.advance(HOUR_MS)
    for hour, first in ((0, 0), (1, None), (2, 3), (3, None), (4, 5), (5, 5)):
        spied = ReadsSpied(monkeypatch)
        assert score(boards, hour) == 10 + hour
        assert spied.after[:1] == ([] if first is None else [first])


def test_a_damaged_checkpoint_is_skipped(boards: Boards, clock: ManualClock) -> None:
    boards.define("arcade")
    boards.submit("arcade", "alice", 10)
    boards.snapshot()
    clock.advance(HOUR_MS)
    boards.submit("arcade", "alice", 11)
    clock.advance(HOUR_MS)
    for file in states_of(boards)._checkpoints._folder.glob("*/engine.rankd"):
        file.write_bytes(b"damaged")
    assert score(boards, 1) == 11


def test_a_settled_state_is_worked_out_once_and_the_least_recently_used_goes(hourly: Boards) -> None:
    for hour in (1, 2, 1, 3, 1, 2):  # 3 takes the place of 2, and 2 that of 3
        assert score(hourly, hour) == 10 + hour
    assert states_of(hourly).computed == 4
    assert len(states_of(hourly)._states) == 2


def test_of_an_instant_just_past_what_was_committed_since_is_seen(boards: Boards, clock: ManualClock) -> None:
    boards.define("arcade")
    boards.submit("arcade", "alice", 10)
    assert score(boards, 0) == 10
    assert score(boards, 0) == 10
    assert states_of(boards).computed == 1
    boards.submit("arcade", "alice", 11)  # at the same instant
    assert score(boards, 0) == 11
    clock.advance(past_reads.SETTLED_MS)
    assert score(boards, 0) == 11
    assert states_of(boards).computed == 2


@contextmanager
def held(boards: Boards, monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Hold every computation until the event is set."""
    may_go, states = threading.Event(), states_of(boards)
    open_ledger = states._open_ledger

    @contextmanager
    def opened() -> Iterator[Ledger]:
        assert may_go.wait(WAIT_S)
        with open_ledger() as ledger:
            yield ledger

    monkeypatch.setattr(states, "_open_ledger", opened)
    try:
        yield may_go
    finally:
        may_go.set()


def test_readers_of_one_instant_share_a_computation(hourly: Boards, monkeypatch: pytest.MonkeyPatch) -> None:
    scores: list[int | None] = []
    with held(hourly, monkeypatch) as may_go:
        threads = [threading.Thread(target=lambda: scores.append(score(hourly, 4))) for _ in range(5)]
        for thread in threads:
            thread.start()
        wait_until(lambda: len(states_of(hourly)._states) == 1)
        assert hourly.top("arcade").entries[0].score == 19  # other reads go on meanwhile
        may_go.set()
        for thread in threads:
            thread.join(WAIT_S)
    assert scores == [14] * 5
    assert states_of(hourly).computed == 1


def test_who_waited_too_long_is_asked_to_come_again_and_finds_it(
    open_boards: OpenBoards, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    boards = open_boards(as_of_wait_ms=0)
    boards.define("arcade")
    boards.submit("arcade", "alice", 10)
    clock.advance(HOUR_MS)
    with held(boards, monkeypatch) as may_go:
        with pytest.raises(Behind, match="ask again"):
            score(boards, 0)
        may_go.set()
        wait_until(lambda: states_of(boards).computed == 1)
    wait_until(lambda: states_of(boards).begin(MONDAY_NOON).done())
    assert score(boards, 0) == 10


def test_while_as_many_as_may_be_are_worked_out_another_is_refused(
    hourly: Boards, monkeypatch: pytest.MonkeyPatch
) -> None:
    states = states_of(hourly)
    with held(hourly, monkeypatch) as may_go:
        begun = [states.begin(MONDAY_NOON + hour * HOUR_MS) for hour in (1, 2)]
        with pytest.raises(Overloaded, match="ask again"):
            states.begin(MONDAY_NOON)
        may_go.set()
        for state in begun:
            state.result(WAIT_S)
    assert score(hourly, 0) == 10


def test_a_computation_that_failed_is_tried_again(hourly: Boards, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(past_reads, "COMPUTE_S_MAX", -1.0)
        with pytest.raises(Behind, match="snapshots_kept"):
            score(hourly, 3)
    assert score(hourly, 3) == 13


def test_closing_ends_a_computation(hourly: Boards, monkeypatch: pytest.MonkeyPatch) -> None:
    with held(hourly, monkeypatch) as may_go:
        states = states_of(hourly)
        state = states.begin(MONDAY_NOON)
        closing = threading.Thread(target=hourly.close)
        closing.start()
        wait_until(states._is_closing.is_set)
        may_go.set()
        closing.join(WAIT_S)
        assert isinstance(state.exception(WAIT_S), Closed)
    with pytest.raises(Closed):
        hourly.past(MONDAY_NOON)


def test_what_cannot_be_asked_is_refused_with_the_remedy(hourly: Boards, clock: ManualClock) -> None:
    for instant, text in ((clock.now() + 1, "1 ms ahead"), (-1, "1970"), (True, "integer"), ("now", "integer")):
        with pytest.raises(InvalidValue, match=text):
            hourly.top("arcade", as_of=instant)  # type: ignore[arg-type]
    with pytest.raises(InvalidValue, match="at_least: must be left out"):
        hourly.top("arcade", as_of=MONDAY_NOON, at_least="0-1")
    with pytest.raises(InvalidValue, match="leave it out"):
        hourly.past(MONDAY_NOON).top("arcade", as_of=MONDAY_NOON)


def test_it_can_be_switched_off(open_boards: OpenBoards) -> None:
    with pytest.raises(Refused, match="as_of_max"):
        open_boards(as_of_max=0).past(MONDAY_NOON)
