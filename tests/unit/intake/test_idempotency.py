"""A request with a key counts once, however often and however it comes again."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import apsw
import msgspec
import pytest

from rankd import Batched, Boards, ManualClock, RankdError, Submitted
from rankd.errors import KeyReused
from rankd.intake import repeats
from rankd.node.open_embedded import embedded_of

if TYPE_CHECKING:
    from tests.unit.conftest import GroupCalls, OpenBoards

MINUTE_MS = 60_000
DAY_MS = 86_400_000


@pytest.fixture
def summing(boards: Boards) -> Boards:
    """A board on which counting twice shows."""
    boards.define("arcade", keep="sum")
    return boards


def total(boards: Boards, player: str = "alice") -> int | None:
    standing = boards.rank("arcade", player)
    return None if standing is None else standing.score


def repeated(answer: Submitted | Batched) -> Submitted | Batched:
    return msgspec.structs.replace(answer, repeated=True)


def test_a_repeat_gets_the_answer_of_the_first_time(summing: Boards) -> None:
    summing.submit("arcade", "bob", 100)
    first = summing.submit("arcade", "alice", 5, key="match-1")
    summing.submit("arcade", "alice", 500)

    assert summing.submit("arcade", "alice", 5, key="match-1") == repeated(first)
    assert total(summing) == 505
    assert not first.repeated


def test_a_repeated_batch_counts_once(summing: Boards) -> None:
    first = summing.submit_many("arcade", [("alice", 1), ("bob", 2)], key="round-1")

    assert summing.submit_many("arcade", [("alice", 1), ("bob", 2)], key="round-1") == repeated(first)
    assert summing.submit_many("arcade", players=["alice", "bob"], scores=[1, 2], key="round-1") == repeated(first)
    assert total(summing) == 1


def test_a_repeat_is_known_after_a_restart(open_boards: OpenBoards) -> None:
    boards = open_boards()
    boards.define("arcade", keep="sum")
    first = boards.submit("arcade", "alice", 5, key="match-1")
    boards.close()

    again = open_boards()
    assert again.submit("arcade", "alice", 5, key="match-1") == repeated(first)
    assert total(again) == 5


@pytest.mark.parametrize("later_ms", [0, 10 * MINUTE_MS])
def test_a_repeat_before_the_answer_was_written_gets_position_and_present_rank(
    open_boards: OpenBoards, clock: ManualClock, tmp_path: Path, later_ms: int
) -> None:
    """As after a crash between the commit and the one that would have written the answer."""
    boards = open_boards()
    boards.define("arcade", keep="sum", scopes=["country"])
    boards.submit("arcade", "bob", 9)
    at = clock.now() - 1
    first = boards.submit("arcade", "alice", 5, at=at, attributes={"country": "BR"}, key="match-1")
    shutil.copytree(tmp_path / "data", tmp_path / "crashed")
    clock.advance(later_ms)

    crashed = open_boards("crashed")
    crashed.submit("arcade", "alice", 1)
    again = crashed.submit("arcade", "alice", 5, at=at, attributes={"country": "BR"}, key="match-1")
    assert (again.position, again.score, again.rank, again.repeated) == (first.position, 6, 2, True)
    assert total(crashed) == 6


def test_a_repeated_batch_whose_answer_was_not_written_gets_its_position(
    open_boards: OpenBoards, tmp_path: Path
) -> None:
    boards = open_boards()
    boards.define("arcade", keep="sum")
    many = boards.submit_many("arcade", [("bob", 9), ("alice", 1)], key="round-1")
    shutil.copytree(tmp_path / "data", tmp_path / "crashed")

    crashed = open_boards("crashed")
    assert crashed.submit_many("arcade", [("bob", 9), ("alice", 1)], key="round-1") == repeated(many)
    assert total(crashed) == 1


def test_a_repeat_after_the_board_was_deleted_and_defined_anew_counts_nothing(boards: Boards) -> None:
    boards.define("arcade", keep="sum")
    boards.submit("arcade", "alice", 5, key="match-1")
    boards.delete("arcade")
    boards.define("arcade", keep="sum")

    assert boards.submit("arcade", "alice", 5, key="match-1").repeated
    assert total(boards) is None


@pytest.mark.parametrize("change", [{"open": False}, {"score_max": 4}, {"score_min": 6}], ids=["closed", "max", "min"])
def test_a_repeat_is_recognised_though_the_board_takes_no_such_score_now(
    summing: Boards, change: dict[str, object]
) -> None:
    """The first time counted, and its answer was lost on the way: the client must learn that."""
    first = summing.submit("arcade", "alice", 5, key="match-1")
    many = summing.submit_many("arcade", [("bob", 5)], key="round-1")
    summing.define("arcade", {"keep": "sum", **change})

    assert summing.submit("arcade", "alice", 5, key="match-1") == repeated(first)
    assert summing.submit_many("arcade", [("bob", 5)], key="round-1") == repeated(many)
    assert total(summing) == 5


def test_another_body_under_the_same_key_is_refused(summing: Boards) -> None:
    summing.submit("arcade", "alice", 5, key="match-1")

    different: list[Callable[[], object]] = [
        lambda: summing.submit("arcade", "alice", 6, key="match-1"),
        lambda: summing.submit("arcade", "bob", 5, key="match-1"),
        lambda: summing.submit("arcade", "alice", 5, tiebreak=1, key="match-1"),
        lambda: summing.submit("arcade", "alice", 5, metadata={"a": 1}, key="match-1"),
        lambda: summing.submit("arcade", "alice", 5, attributes={"country": "BR"}, key="match-1"),
        lambda: summing.submit_many("arcade", [("alice", 5), ("alice", 5)], key="match-1"),
    ]
    for send in different:
        with pytest.raises(KeyReused, match="match-1"):
            send()
    assert total(summing) == 5


def test_another_board_under_the_same_key_is_refused(summing: Boards) -> None:
    summing.define("words", keep="sum")
    summing.submit("arcade", "alice", 5, key="match-1")

    with pytest.raises(KeyReused):
        summing.submit("words", "alice", 5, key="match-1")


def test_one_score_alone_and_as_a_batch_do_not_get_each_others_answers(summing: Boards) -> None:
    """Either it is the same request, or another one under the same key: both are answered in rankd's words."""
    summing.submit("arcade", "alice", 5, key="single")
    summing.submit_many("arcade", [("bob", 5)], key="many")
    calls: list[tuple[Callable[[], object], type]] = [
        (lambda: summing.submit_many("arcade", [("alice", 5)], key="single"), Batched),
        (lambda: summing.submit("arcade", "bob", 5, key="many"), Submitted),
    ]
    for call, kind in calls:
        with suppress(KeyReused):
            assert isinstance(call(), kind)
    assert (total(summing), total(summing, "bob")) == (5, 5)


def test_one_score_alone_and_as_a_batch_in_one_commit(summing: Boards, grouped: GroupCalls) -> None:
    first, second, other = grouped(
        summing,
        [
            lambda: summing.submit("arcade", "alice", 5, key="match-1"),
            lambda: summing.submit_many("arcade", [("alice", 5)], key="match-1"),
            lambda: summing.submit("arcade", "bob", 7),
        ],
    )

    assert isinstance(first, Submitted)
    assert isinstance(second, Batched | KeyReused)
    assert isinstance(other, Submitted)
    assert total(summing) == 5


def test_each_sender_has_keys_of_its_own(summing: Boards) -> None:
    summing.submit("arcade", "alice", 5, key="match-1", sender="server-1")

    assert not summing.submit("arcade", "alice", 6, key="match-1", sender="server-2").repeated
    assert summing.submit("arcade", "alice", 5, key="match-1", sender="server-1").repeated
    assert total(summing) == 11


def test_a_repeat_that_arrives_while_the_first_is_under_way_waits_for_it(summing: Boards, grouped: GroupCalls) -> None:
    first, second, third = grouped(
        summing, [lambda: summing.submit("arcade", "alice", 5, key="match-1") for _ in range(3)]
    )

    assert isinstance(first, Submitted)
    assert second == third == repeated(first)
    assert total(summing) == 5


def test_a_different_request_between_two_equal_ones_is_refused_alone(summing: Boards, grouped: GroupCalls) -> None:
    first, other, again = grouped(
        summing,
        [
            lambda: summing.submit("arcade", "alice", 5, key="match-1"),
            lambda: summing.submit("arcade", "alice", 7, key="match-1"),
            lambda: summing.submit("arcade", "alice", 5, key="match-1"),
        ],
    )

    assert isinstance(first, Submitted)
    assert isinstance(other, KeyReused)
    assert again == repeated(first)
    assert total(summing) == 5


def test_a_refused_request_leaves_its_key_free(summing: Boards, grouped: GroupCalls, clock: ManualClock) -> None:
    too_old = clock.now() - DAY_MS
    refused, counted = grouped(
        summing,
        [
            lambda: summing.submit("arcade", "alice", 5, at=too_old, key="match-1"),
            lambda: summing.submit("arcade", "alice", 6, key="match-1"),
        ],
    )

    assert isinstance(refused, RankdError)
    assert isinstance(counted, Submitted)
    assert not counted.repeated
    assert total(summing) == 6


def test_a_key_is_forgotten_after_its_time_to_the_millisecond(open_boards: OpenBoards, clock: ManualClock) -> None:
    boards = open_boards(idempotency_ttl_ms=1_000)
    boards.define("arcade", keep="sum")
    boards.submit("arcade", "alice", 5, key="match-1")
    clock.advance(999)
    assert boards.submit("arcade", "alice", 5, key="match-1").repeated
    clock.advance(1)

    assert not boards.submit("arcade", "alice", 5, key="match-1").repeated
    assert total(boards) == 10


def test_a_key_used_anew_is_answered_about_its_new_request(open_boards: OpenBoards, clock: ManualClock) -> None:
    boards = open_boards(idempotency_ttl_ms=1_000)
    boards.define("arcade", keep="sum")
    boards.submit("arcade", "alice", 5, key="match-1")
    clock.advance(1_000)
    second = boards.submit("arcade", "alice", 7, key="match-1")

    assert boards.submit("arcade", "alice", 7, key="match-1") == repeated(second)
    embedded_of(boards).writer.flush_answers()
    assert boards.submit("arcade", "alice", 7, key="match-1") == repeated(second)


def test_more_answers_than_memory_holds_are_worked_out_again(
    summing: Boards, monkeypatch: pytest.MonkeyPatch, grouped: GroupCalls
) -> None:
    monkeypatch.setattr(repeats, "ANSWERS_WAITING_MAX", 1)
    answers = grouped(
        summing, [lambda n=n: summing.submit("arcade", f"p{n}", n, key=f"k{n}") for n in range(1, 5)]  # type: ignore[misc]
    )  # fmt: skip

    for number, answer in enumerate(answers, start=1):
        assert isinstance(answer, Submitted)
        again = summing.submit("arcade", f"p{number}", number, key=f"k{number}")
        assert (again.position, again.score, again.repeated) == (answer.position, number, True)


@pytest.mark.parametrize("key", ["", "x" * 256, "é" * 128, "a\nb", "\ud800", 7, b"match-1"])
def test_keys_that_nobody_should_send_are_refused(summing: Boards, key: str) -> None:
    with pytest.raises(RankdError, match="key: "):
        summing.submit("arcade", "alice", 5, key=key)
    assert total(summing) is None


@pytest.mark.parametrize("key", ["x" * 255, "é" * 127, " ", "%_"])
def test_keys_at_the_edge_are_taken(summing: Boards, key: str) -> None:
    summing.submit("arcade", "alice", 5, key=key)
    assert summing.submit("arcade", "alice", 5, key=key).repeated


def stored(folder: Path, query: str) -> list[Any]:
    with closing(apsw.Connection(str(folder / "ledger.db"), flags=apsw.SQLITE_OPEN_READONLY)) as reader:
        return list(reader.execute(query).fetchall())


def test_answers_are_written_together_with_a_later_commit(summing: Boards, tmp_path: Path) -> None:
    answered = "SELECT count(*) FROM requests WHERE answer IS NOT NULL"
    answers = [summing.submit("arcade", "alice", 1, key=f"k{number}") for number in range(repeats.ANSWERS_AT_ONCE)]
    assert stored(tmp_path / "data", answered) == [(0,)]
    summing.submit("arcade", "alice", 1)
    assert stored(tmp_path / "data", answered) == [(repeats.ANSWERS_AT_ONCE,)]

    summing.submit("arcade", "alice", 1, key="last")
    embedded_of(summing).writer.flush_answers()
    assert stored(tmp_path / "data", answered) == [(repeats.ANSWERS_AT_ONCE + 1,)]
    for number, answer in enumerate(answers):
        assert summing.submit("arcade", "alice", 1, key=f"k{number}") == repeated(answer)


def test_a_key_that_is_taken_leaves_nothing_of_its_request(summing: Boards, tmp_path: Path) -> None:
    """The insert itself finds the key, in the transaction that would have written the rest."""
    summing.submit("arcade", "alice", 5, key="match-1", metadata={"a": 1})
    before = summing.position
    with pytest.raises(KeyReused):
        summing.submit("arcade", "newcomer", 5, key="match-1", metadata={"b": 2}, sender="local")
    with pytest.raises(KeyReused):
        summing.submit_many("arcade", [("another", 1), ("third", 2)], key="match-1")
    assert summing.position == before
    assert stored(tmp_path / "data", "SELECT id FROM players") == [("alice",)]

    summing.submit("arcade", "newcomer", 7, key="match-2")
    assert stored(tmp_path / "data", "SELECT number, id FROM players ORDER BY number") == [
        (1, "alice"),
        (2, "newcomer"),
    ]
    summing.verify()
