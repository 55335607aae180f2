"""A score that is alone in its commit: its answer comes from applying it, and is what reads before and after say."""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest
from tests.unit.conftest import GroupCalls, OpenBoards

from rankd import Boards, ManualClock
from rankd.errors import BoardClosed, InvalidValue, LedgerUnavailable, RankdError
from rankd.intake.scores import ScoreTask
from rankd.ledger.port import Appended, Draft
from rankd.node.open_embedded import embedded_of

HOUR_MS = 3_600_000
TABLES = {
    "events": "SELECT * FROM events ORDER BY sequence",
    "players": "SELECT * FROM players ORDER BY number",
    "contexts": "SELECT * FROM contexts ORDER BY number",
    "metadata": "SELECT * FROM metadata ORDER BY sequence",
    "requests": "SELECT * FROM requests ORDER BY sender, key",
}
WINDOWS = ["all_time", "monthly", "weekly", "daily", "hourly"]
BOARDS: dict[str, dict[str, Any]] = {
    "plain": {"windows": WINDOWS, "keep": "latest"},
    "ordered": {"windows": ["daily", "all_time"], "order": "asc", "ties": "value", "ranking": "competition"},
    "summed": {"keep": "sum", "ties": "player", "score_min": -100, "score_max": 100, "ranking": "dense"},
    "first": {"keep": "first", "ties": "latest", "time_zone": "Asia/Kathmandu", "windows": ["weekly", "hourly"]},
    "scoped": {"windows": ["all_time", "daily"], "scopes": ["country"]},
    "nowhere": {"windows": ["weekly", "all_time"], "scopes": ["country", "guild"], "global": False},
    "guilds": {"team": {"attribute": "guild", "by": "sum"}},
    "fading": {"decay": {"factor": 0.9, "every": "1d"}, "score_min": 1, "ties": "player"},
    "rolled": {"windows": ["weekly", "daily"], "keep": {"daily": "best", "weekly": "sum_of_daily"}},
    "narrow": {"score_min": 0, "score_max": 50, "windows": ["daily"]},
    "feeding": {"feeds": ["narrow"], "windows": ["hourly", "all_time"]},
    "everywhere": {"feeds": ["scoped", "nowhere", "narrow"], "scopes": ["guild"], "keep": "latest"},
    "cup": {
        "windows": ["all_time"],
        "periods": [{"name": "may", "start": "2026-05-04T13:00:00Z", "end": "2026-05-06T00:00:00Z"}],
    },
}


def applied_as_columns(boards: Boards) -> Boards:
    """Let every score be applied as a column of one, between two reads."""
    embedded_of(boards).applier.apply_single = lambda *_: None  # type: ignore[method-assign]
    return boards


def outcome(call: Callable[[], object]) -> object:
    try:
        return call()
    except RankdError as problem:
        return type(problem), str(problem)


def rows(folder: Path) -> dict[str, list[Any]]:
    with closing(apsw.Connection(str(folder / "ledger.db"), flags=apsw.SQLITE_OPEN_READONLY)) as reader:
        return {table: reader.execute(query).fetchall() for table, query in TABLES.items()}


def random_call(rng: random.Random, number: int, among: Sequence[str]) -> Callable[[Boards], object]:
    board, player, score = rng.choice(among), f"p{rng.randrange(25)}", rng.randrange(-20, 120)
    given: dict[str, Any] = {}
    if rng.random() < 0.2:
        given["sender"] = rng.choice(["local", "key-1"])
    if rng.random() < 0.2:
        given["tiebreak"] = rng.randrange(5)
    if rng.random() < (0.7 if board in ("scoped", "everywhere") else 0.1):
        given["attributes"] = {"country": rng.choice("ABC"), "guild": rng.choice("XY")}
    if rng.random() < 0.05:
        given["metadata"] = {"replay": number}
    if rng.random() < 0.05:
        given["key"] = f"k{rng.randrange(5)}"
    match rng.random():
        case chance if chance < 0.02:
            return lambda boards: boards.remove(board, player)
        case chance if chance < 0.03:
            return lambda boards: boards.reset(board)
        case chance if chance < 0.05:
            return lambda boards: boards.define(board, **BOARDS[board], open=number % 3 > 0)
        case chance if chance < 0.07:
            return lambda boards: boards.set_player(player, country="BR", attributes={"guild": "X"})
        case chance if chance < 0.09:
            return lambda boards: boards.submit_many(board, [(player, score), ("somebody", 1)])
        case _:
            return lambda boards: boards.submit(board, player, score, **given)


@pytest.mark.parametrize(
    "among", [[*BOARDS, "plain", "plain"], ["plain"], ["cup"], ["feeding"], ["scoped"], ["everywhere"]]
)
def test_answers_and_ledger_are_those_of_scores_applied_as_columns(
    open_boards: OpenBoards, clock: ManualClock, rng: random.Random, tmp_path: Path, among: list[str]
) -> None:
    alone, columns = open_boards("alone"), applied_as_columns(open_boards("columns"))
    for name, options in BOARDS.items():
        assert alone.define(name, **options) == columns.define(name, **options)
    for number in range(600 if len(among) > 1 else 300):
        call = random_call(rng, number, among)
        assert outcome(lambda call=call: call(alone)) == outcome(lambda call=call: call(columns))  # type: ignore[misc]
        if rng.random() < 0.2:
            clock.advance(rng.choice([1, 999, 60_000, HOUR_MS // 4, HOUR_MS, 13 * HOUR_MS]))
    for boards in (alone, columns):
        boards.settle()
        boards.verify()
        boards.close()

    assert rows(tmp_path / "alone") == rows(tmp_path / "columns")
    assert rows(tmp_path / "alone")["events"]


def test_one_score_with_scopes_is_applied_by_one_call_and_counted(
    boards: Boards, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rankd.projection.placement._PLANS_MAX", 2)
    monkeypatch.setattr("rankd.projection.counting.SINGLE_TABLES_MAX", 2)
    boards.define("arcade", windows=WINDOWS, scopes=["country"])
    for country in ("BR", "DE", "US", "BR"):
        boards.submit("arcade", f"first-{country}", 10, attributes={"country": country})
    answers = [
        boards.submit("arcade", player, score, attributes={"country": country})
        for player, score, country in [("ann", 30, "BR"), ("bob", 20, "DE"), ("cy", 25, "US"), ("ann", 40, "BR")]
    ]

    assert [(answer.previous_rank, answer.rank) for answer in answers] == [(None, 1), (None, 2), (None, 2), (1, 1)]
    assert [entry.player for entry in boards.top("arcade", 2, scope="country:US", window="daily").entries] == [
        "cy",
        "first-US",
    ]
    store = embedded_of(boards).rank_store
    assert boards.figures().entries == sum(store.total(key) for key in store.instances()) == 6 * 5 * 2
    boards.verify()


def test_values_of_scopes_are_as_many_as_they_may_be_when_scores_come_one_by_one(open_boards: OpenBoards) -> None:
    boards = open_boards(scope_values_max=2)
    boards.define("arcade", scopes=["country"])
    for country in ("BR", "DE", "BR"):
        boards.submit("arcade", "ann", 1, attributes={"country": country})

    with pytest.raises(InvalidValue, match="has 2 values"):
        boards.submit("arcade", "ann", 1, attributes={"country": "US"})


@pytest.mark.parametrize("scopes", [[], ["country"]])
def test_the_first_score_with_metadata_keeps_it(boards: Boards, scopes: list[str]) -> None:
    boards.define("arcade", scopes=scopes)
    boards.submit("arcade", "ann", 5, attributes={"country": "BR"}, metadata={"replay": 1})

    assert [entry.metadata for entry in boards.top("arcade", 1).entries] == [{"replay": 1}]


def test_a_value_that_a_fed_board_cannot_take_does_not_count_there(open_boards: OpenBoards) -> None:
    boards = open_boards(scope_values_max=1)
    boards.define("xp", scopes=["country"])
    boards.define("frame", feeds=["xp"])
    for player, country in (("ann", "BR"), ("bob", "DE")):
        boards.submit("frame", player, 5, attributes={"country": country})

    assert boards.top("xp", 5).total == 2
    assert boards.top("xp", 5, scope="country:DE").total == 0
    boards.verify()


def test_an_answer_is_about_the_first_window_at_its_time(boards: Boards, clock: ManualClock) -> None:
    clock.set(1_777_899_599_999)  # 2026-05-04T12:59:59.999Z
    boards.define("arcade", windows=["hourly", "all_time"], time_zone="Asia/Kathmandu")
    clock.advance(45 * 60_000)
    before = boards.submit("arcade", "ann", 5)
    clock.advance(1)
    after = boards.submit("arcade", "bob", 4)

    assert (before.window, before.rank) == ("hourly:2026-05-04T1315Z", 1)
    assert (after.window, after.rank) == ("hourly:2026-05-04T1315Z", 2)
    clock.advance(30 * 60_000)
    assert boards.submit("arcade", "bob", 4).window == "hourly:2026-05-04T1415Z"


def test_every_answer_of_a_team_board_is_about_the_team(boards: Boards) -> None:
    boards.define("guilds", team={"attribute": "guild", "by": "sum"})
    answers = [
        boards.submit("guilds", player, 5, attributes={"guild": guild})
        for player, guild in (("ann", "X"), ("bob", "Y"), ("cy", "Y"))
    ]

    assert [(answer.score, answer.rank) for answer in answers] == [(5, 1), (5, 2), (10, 1)]


def test_every_answer_of_a_board_without_a_global_scope_is_about_its_own_scope(boards: Boards) -> None:
    boards.define("local", {"scopes": ["country"], "global": False})
    answers = [
        boards.submit("local", player, score, attributes={"country": country})
        for player, score, country in (("ann", 5, "BR"), ("bob", 4, "DE"), ("cy", 3, "DE"))
    ]

    assert [answer.rank for answer in answers] == [1, 1, 2]


def test_a_board_that_changes_while_a_score_comes_checks_it_again(open_boards: OpenBoards) -> None:
    boards = open_boards()
    boards.define("arcade", score_max=100)
    seen = boards.board("arcade")
    boards.define("arcade", score_max=50)

    with pytest.raises(InvalidValue, match="to 50"):
        embedded_of(boards).writer.submit(ScoreTask(seen.id, ["ann"], array("q", [70]), board=seen, answers=True))
    boards.define("arcade", score_max=50, open=False)
    with pytest.raises(BoardClosed):
        embedded_of(boards).writer.submit(ScoreTask(seen.id, ["ann"], array("q", [7]), board=seen, answers=True))


def test_those_who_come_while_somebody_commits_share_the_next_commit(boards: Boards, grouped: GroupCalls) -> None:
    boards.define("arcade")
    before = embedded_of(boards).writer.commits

    answers = grouped(boards, [lambda name=name: boards.submit("arcade", name, 1) for name in "abcd"])  # type: ignore[misc]

    assert [answer.player for answer in answers] == list("abcd")  # type: ignore[attr-defined]
    assert embedded_of(boards).writer.commits == before + 1


def test_a_score_that_was_not_written_leaves_nothing_and_the_next_one_counts(
    boards: Boards, monkeypatch: pytest.MonkeyPatch
) -> None:
    boards.define("arcade")
    boards.submit("arcade", "ann", 1)
    database = embedded_of(boards)._database

    def full(*_: object) -> None:
        raise LedgerUnavailable("the disk is full")

    with monkeypatch.context() as failing:
        failing.setattr(database, "write_one", full)
        with pytest.raises(LedgerUnavailable):
            boards.submit("arcade", "ann", 2)

    assert boards.rank("arcade", "ann").score == 1  # type: ignore[union-attr]
    answer = boards.submit("arcade", "ann", 3)
    assert (answer.previous_score, answer.score, answer.position) == (1, 3, boards.position)


def test_an_interrupt_between_the_ledger_and_the_ranks_loses_nothing(
    boards: Boards, monkeypatch: pytest.MonkeyPatch
) -> None:
    boards.define("arcade")
    boards.submit("arcade", "ann", 1)
    ledger = embedded_of(boards).writer._ledger

    append = ledger.append

    def interrupted(draft: Draft) -> Appended:
        append(draft)
        raise KeyboardInterrupt

    with monkeypatch.context() as pressing:
        pressing.setattr(ledger, "append", interrupted)
        with pytest.raises(KeyboardInterrupt):
            boards.submit("arcade", "ann", 5)

    assert boards.submit("arcade", "bob", 3).rank == 2
    assert boards.rank("arcade", "ann").score == 5  # type: ignore[union-attr]
    boards.verify()
