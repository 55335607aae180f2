"""Requests as they should be: columns of every kind, all or nothing, answers about one's own event."""

from __future__ import annotations

import random
import threading
from array import array
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.servers.waiting import join_all

from rankd import Boards, ManualClock, RankdError, Submitted
from rankd.api.calls.bodies import Score
from rankd.errors import BoardClosed, BoardUnknown, InvalidValue
from rankd.intake.sender import LOCAL

if TYPE_CHECKING:
    from tests.unit.conftest import GroupCalls, OpenBoards

WIDE = array("q", [5, 0, 6, 0])


def kept(boards: Boards, board: str = "arcade") -> dict[str, int]:
    return {entry.player: entry.score for entry in boards.top(board, 1_000).entries}


@pytest.mark.parametrize(
    "scores",
    [
        *([5, 6], (5, 6), array("q", [5, 6]), array("l", [5, 6]), np.array([5, 6]), np.array([5, 0, 6, 0])[::2]),
        *(memoryview(array("q", [5, 6])), memoryview(WIDE)[::2], np.array([6, 5]).data[::-1]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_column_of_scores_may_be_any_kind_of_array(boards: Boards, scores: Any) -> None:
    boards.define("arcade")
    assert boards.submit_many("arcade", players=("alice", "bob"), scores=scores).count == 2
    assert kept(boards) == {"bob": 6, "alice": 5}


def test_rows_may_be_tuples_lists_mappings_and_come_from_a_generator(boards: Boards) -> None:
    boards.define("arcade", ties="value")
    rows: list[Any] = [("a", 1), ["b", 2, 7], {"player": "c", "score": 3, "tiebreak": None, "metadata": None}]
    assert boards.submit_many("arcade", (row for row in rows)).count == 3
    assert [(entry.player, entry.tiebreak) for entry in boards.top("arcade").entries] == [("c", 0), ("b", 7), ("a", 0)]


def test_no_rows_change_nothing(boards: Boards) -> None:
    boards.define("arcade")
    before = boards.position
    assert boards.submit_many("arcade", []).count == 0
    assert boards.submit_many("arcade", players=[], scores=[]).position == before


def test_a_request_has_at_most_so_many_events(open_boards: OpenBoards) -> None:
    boards = open_boards(request_events_max=3)
    boards.define("arcade")
    boards.submit_many("arcade", [(f"p{n}", n) for n in range(3)])
    with pytest.raises(InvalidValue, match="in parts"):
        boards.submit_many("arcade", [(f"q{n}", n) for n in range(4)])
    boards.define("words")
    with pytest.raises(InvalidValue, match="in parts"):
        boards.submit_events([{"board": name, "player": "q", "score": 1} for name in ("arcade", "words") * 2])
    assert len(kept(boards)) == 3


def test_the_callers_columns_may_change_afterwards(boards: Boards, grouped: GroupCalls) -> None:
    """They are checked in the caller's thread and written in another's."""
    boards.define("arcade")
    players, scores = ["alice", "bob"], array("q", [1, 2])

    def send() -> object:
        return boards.submit_many("arcade", players=players, scores=scores)

    def spoil() -> object:
        players[0], players[1] = "", "\n"
        players.append("carol")
        scores[0] = 2**62
        return boards.submit("arcade", "dan", 3)

    grouped(boards, [send, spoil])
    assert kept(boards) == {"dan": 3, "bob": 2, "alice": 1}


BAD_ROWS: list[tuple[str, Callable[[int], dict[str, object]]]] = [
    ("score", lambda _now: {"score": 2**53}),
    ("at", lambda now: {"at": now - 300_001}),
    ("at", lambda now: {"at": now + 5_001}),
    ("attributes.guild", lambda _now: {"attributes": {"guild": ".."}}),
    ("attributes.country", lambda _now: {"attributes": {"country": "third", "guild": "reds"}}),
]


@pytest.mark.parametrize(("field", "bad"), BAD_ROWS, ids=[name for name, _ in BAD_ROWS])
@pytest.mark.parametrize("index", [0, 3, 5])
def test_one_bad_row_refuses_all_and_is_named(
    open_boards: OpenBoards, clock: ManualClock, field: str, bad: Callable[[int], dict[str, object]], index: int
) -> None:
    boards = open_boards(scope_values_max=2)
    boards.define("arcade", scopes=["country"], feeds=[])
    boards.define("guilds", team={"attribute": "guild", "by": "sum"}, scopes=["country"])
    rows: list[dict[str, object]] = [
        {"player": f"p{n}", "score": n, "attributes": {"guild": "reds", "country": f"c{n % 2}"}} for n in range(6)
    ]
    rows[index] |= bad(clock.now())
    before = boards.position

    with pytest.raises(InvalidValue) as refused:
        boards.submit_many("guilds", rows, key="round-1")

    assert boards.position == before
    assert boards.top("guilds").total == 0
    assert field.partition(".")[0] in refused.value.field
    if not (field == "attributes.country" and index == 0):  # then it is a later row that brings the third value
        assert f"[{index}]" in refused.value.field
    rows[index] = {"player": "fine", "score": 1, "attributes": {"guild": "reds", "country": "c0"}}
    assert not boards.submit_many("guilds", rows, key="round-1").repeated


@pytest.mark.parametrize(
    "bad", [{"metadata": {"a": ["x" * 2_000]}}, {"attributes": {"country": [[]]}}, {"score": [[]]}, {"at": [[]]}]
)
def test_each_score_of_a_batch_is_checked_before_the_next_one_is_read(boards: Boards, bad: dict[str, Any]) -> None:
    boards.define("arcade")
    read = 0

    def events() -> Iterator[Score]:
        nonlocal read
        for index in range(5):
            read += 1
            fields: dict[str, Any] = {"board": "arcade", "player": "alice", "score": 1}
            yield Score(**(fields | (bad if index == 2 else {})))

    with pytest.raises(InvalidValue) as refused:
        boards.prepare_events(events(), LOCAL)
    assert refused.value.field.startswith("events[2].")
    assert read == 3


def test_a_refused_batch_leaves_no_trace_in_the_numbers_of_players(boards: Boards) -> None:
    boards.define("arcade")
    boards.define("guilds", team={"attribute": "guild", "by": "sum"})
    with pytest.raises(InvalidValue):
        boards.submit_many("guilds", [{"player": "xavier", "score": 1, "attributes": {"guild": ".."}}])
    boards.set_player("yolanda", name="Yo")
    boards.submit("arcade", "xavier", 5)
    boards.submit("arcade", "yolanda", 6)

    boards.verify()
    assert kept(boards) == {"yolanda": 6, "xavier": 5}


def test_an_error_of_one_request_does_not_touch_those_that_share_its_commit(
    boards: Boards, grouped: GroupCalls
) -> None:
    boards.define("arcade")
    boards.define("guilds", team={"attribute": "guild", "by": "sum"})
    first, refused, last = grouped(
        boards,
        [
            lambda: boards.submit("arcade", "alice", 1),
            lambda: boards.submit("guilds", "bob", 2, attributes={"guild": ".."}),
            lambda: boards.submit("arcade", "carol", 3),
        ],
    )

    assert isinstance(first, Submitted)
    assert isinstance(last, Submitted)
    assert isinstance(refused, InvalidValue)
    assert (first.position, last.position) == ("0-3", "0-4")


def test_a_refused_request_takes_no_room_from_those_that_share_its_commit(
    open_boards: OpenBoards, grouped: GroupCalls
) -> None:
    boards = open_boards(scope_values_max=2)
    boards.define("arcade", scopes=["country"])
    rows = [{"player": "alice", "score": 1, "attributes": {"country": f"c{number}"}} for number in range(3)]
    refused, counted = grouped(
        boards,
        [
            lambda: boards.submit_many("arcade", rows),
            lambda: boards.submit("arcade", "bob", 2, attributes={"country": "BR"}),
        ],
    )

    assert isinstance(refused, InvalidValue)
    assert isinstance(counted, Submitted)


def test_a_board_closed_or_deleted_while_a_request_waits_refuses_it(boards: Boards, grouped: GroupCalls) -> None:
    boards.define("arcade")
    boards.define("words")
    outcomes = grouped(
        boards,
        [
            lambda: boards.define("arcade", open=False),
            lambda: boards.delete("words"),
            lambda: boards.submit("arcade", "alice", 1),
            lambda: boards.submit("words", "alice", 1),
        ],
    )

    assert isinstance(outcomes[2], BoardClosed)
    assert isinstance(outcomes[3], BoardUnknown)


def test_bounds_that_changed_while_a_request_waits_are_the_new_ones(boards: Boards, grouped: GroupCalls) -> None:
    boards.define("arcade")
    _, single, many = grouped(
        boards,
        [
            lambda: boards.define("arcade", score_max=100),
            lambda: boards.submit("arcade", "alice", 101),
            lambda: boards.submit_many("arcade", [("alice", 100), ("bob", 101)]),
        ],
    )

    assert isinstance(single, InvalidValue)
    assert isinstance(many, InvalidValue)
    assert many.field == "rows[1].score"
    assert kept(boards) == {}


def test_each_answer_is_about_its_own_event(boards: Boards, grouped: GroupCalls) -> None:
    """Two scores of one player may share a commit; achievements are given by what each of them changed."""
    boards.define("arcade", keep="sum")
    answers = grouped(
        boards, [lambda: boards.submit("arcade", "alice", 5), lambda: boards.submit("arcade", "alice", 7)]
    )

    scores = [(answer.previous_score, answer.score) for answer in answers if isinstance(answer, Submitted)]
    assert scores == [(None, 5), (5, 12)]


def test_a_score_that_changed_nothing_says_so_though_its_commit_did(boards: Boards, grouped: GroupCalls) -> None:
    boards.define("arcade", keep="best")
    answers = grouped(
        boards, [lambda: boards.submit("arcade", "alice", 9), lambda: boards.submit("arcade", "alice", 3)]
    )

    assert [answer.changed for answer in answers if isinstance(answer, Submitted)] == [True, False]


def test_the_answers_of_many_threads_add_up(boards: Boards, rng: random.Random) -> None:
    boards.define("arcade", keep="sum")
    plans = [[rng.randint(1, 9) for _ in range(25)] for n in range(6)]
    answers: list[Submitted] = []

    def send(plan: list[int]) -> None:
        answers.extend(boards.submit("arcade", "alice", score) for score in plan)

    threads = [threading.Thread(target=send, args=(plan,)) for plan in plans]
    for thread in threads:
        thread.start()
    join_all(threads)

    assert kept(boards) == {"alice": sum(map(sum, plans))}
    assert len({answer.position for answer in answers}) == len(answers)
    by_position = sorted(answers, key=lambda answer: int(answer.position.partition("-")[2]))
    assert [answer.previous_score for answer in by_position[1:]] == [answer.score for answer in by_position[:-1]]
    boards.verify()


def test_a_score_on_a_board_nobody_defined_is_refused(boards: Boards) -> None:
    with pytest.raises(BoardUnknown, match="define it first"):
        boards.submit("arcade", "alice", 1)


@pytest.mark.parametrize(("ahead_ms", "is_taken"), [(5_000, True), (5_001, False), (-300_000, True), (-300_001, False)])
def test_an_instant_sent_is_near_the_present(boards: Boards, clock: ManualClock, ahead_ms: int, is_taken: bool) -> None:
    boards.define("arcade")
    at = clock.now() + ahead_ms
    if is_taken:
        boards.submit("arcade", "alice", 1, at=at)
        return
    with pytest.raises(InvalidValue, match="at: "):
        boards.submit("arcade", "alice", 1, at=at)
    if ahead_ms < 0:
        boards.submit("arcade", "alice", 1, at=at, imported=True)


def test_the_ledgers_time_never_goes_back(boards: Boards, clock: ManualClock) -> None:
    boards.define("arcade", ties="latest", tie_resolution="1ms", keep="latest")
    boards.submit("arcade", "alice", 1)
    then = clock.now()
    clock.set(then - 60_000)
    boards.submit("arcade", "bob", 2)
    assert [entry.reached_at for entry in boards.top("arcade").entries] == [then, then]


def test_str_subclasses_are_players_like_any_other(boards: Boards) -> None:
    class Name(str):
        __slots__ = ()

    boards.define("arcade")
    boards.submit("arcade", Name("alice"), 1)
    boards.submit_many("arcade", players=[Name("bob")], scores=[2])
    assert kept(boards) == {"bob": 2, "alice": 1}
    boards.verify()


def test_every_refusal_is_one_of_rankds_own(boards: Boards) -> None:
    boards.define("arcade")
    with pytest.raises(RankdError):
        boards.submit_many("arcade", players=["a"], scores=[2**70])
