"""One event, several boards; taking out what was counted; and the proof that ranks are what the ledger says."""

from __future__ import annotations

import threading
from array import array
from typing import TYPE_CHECKING, Any

import pytest
from tests.servers.load_bound import LoadBound
from tests.servers.waiting import join_all

from rankd import Boards, ManualClock
from rankd.domain.instance import InstanceKey
from rankd.errors import InvalidValue, VerificationFailed
from rankd.node.open_embedded import embedded_of
from rankd.projection.port import Op, UpdateBatch

if TYPE_CHECKING:
    from tests.unit.conftest import OpenBoards

DAY_MS = 86_400_000


def kept(boards: Boards, board: str, **about: Any) -> dict[str, int]:
    return {entry.player: entry.score for entry in boards.top(board, 1_000, **about).entries}


# Feeds


def test_a_fed_board_counts_under_its_own_rules(boards: Boards) -> None:
    boards.define("xp", keep="sum", order="asc", windows=["daily", "all_time"], time_zone="Asia/Tokyo")
    boards.define("frame", feeds=["xp"])
    boards.define("words", feeds=["xp"], keep="latest")
    boards.submit("frame", "alice", 5)
    boards.submit("frame", "alice", 3)
    boards.submit("words", "alice", 10)

    assert (kept(boards, "frame"), kept(boards, "words"), kept(boards, "xp")) == (
        {"alice": 5},
        {"alice": 10},
        {"alice": 18},
    )
    assert boards.top("xp").window == "daily:2026-05-04"
    boards.verify()


def test_bounds_refuse_an_event_only_on_the_board_it_was_sent_to(boards: Boards) -> None:
    boards.define("xp", score_max=10)
    boards.define("frame", feeds=["xp"], score_max=100)
    boards.submit("frame", "alice", 50)
    boards.submit_many("frame", [("bob", 5), ("carol", 11)])

    assert kept(boards, "frame") == {"alice": 50, "carol": 11, "bob": 5}
    assert kept(boards, "xp") == {"bob": 5}
    with pytest.raises(InvalidValue):
        boards.submit("xp", "alice", 50)
    boards.verify()


def test_a_closed_fed_board_is_passed_over_until_it_opens(boards: Boards) -> None:
    boards.define("xp", keep="sum")
    boards.define("frame", feeds=["xp"], keep="sum")
    boards.submit("frame", "alice", 1)
    boards.define("xp", keep="sum", open=False)
    boards.submit("frame", "alice", 10)
    boards.define("xp", keep="sum", open=True)
    boards.submit("frame", "alice", 100)

    assert (kept(boards, "frame"), kept(boards, "xp")) == ({"alice": 111}, {"alice": 101})
    boards.verify()


def test_a_fed_team_board_takes_those_who_have_a_team(boards: Boards) -> None:
    boards.define("guilds", team={"attribute": "guild", "by": "sum"})
    boards.define("arcade", feeds=["guilds"])
    boards.submit("arcade", "alice", 5, attributes={"guild": "reds"})
    boards.submit("arcade", "bob", 7)
    assert (kept(boards, "arcade"), kept(boards, "guilds")) == ({"bob": 7, "alice": 5}, {"reds": 5})


@pytest.mark.parametrize("attributes", [{"guild": ".."}, {"country": "third"}], ids=["team", "scope"])
def test_what_a_fed_board_cannot_take_does_not_fail_the_event(
    open_boards: OpenBoards, attributes: dict[str, str]
) -> None:
    boards = open_boards(scope_values_max=2)
    boards.define("fed", scopes=["country"])
    boards.define("guilds", team={"attribute": "guild", "by": "sum"})
    boards.define("arcade", feeds=["fed", "guilds"])
    for number in range(2):
        boards.submit("arcade", "alice", 1, attributes={"country": f"c{number}"})
    boards.submit("arcade", "bob", 5, attributes=attributes)

    assert kept(boards, "arcade")["bob"] == 5
    boards.verify()


def test_a_feed_that_is_added_starts_empty(boards: Boards) -> None:
    boards.define("xp")
    boards.define("arcade")
    boards.submit("arcade", "alice", 5)
    boards.define("arcade", feeds=["xp"])
    assert kept(boards, "xp") == {}
    boards.submit("arcade", "alice", 3)
    assert (kept(boards, "arcade"), kept(boards, "xp")) == ({"alice": 5}, {"alice": 3})


def test_a_fading_fed_board_takes_what_it_can(boards: Boards, clock: ManualClock) -> None:
    boards.define("hot", decay={"factor": 0.5, "every": "1d"}, score_min=1, ties="player")
    boards.define("arcade", feeds=["hot"])
    boards.submit_many("arcade", [("alice", 100), ("bob", -5)])
    clock.advance(DAY_MS)
    assert (kept(boards, "arcade"), kept(boards, "hot")) == ({"alice": 100, "bob": -5}, {"alice": 50})
    boards.verify()


# Removal and reset


def test_a_removed_player_is_gone_from_open_and_closed_windows_but_not_from_fed_boards(
    boards: Boards, clock: ManualClock
) -> None:
    boards.define("xp")
    boards.define("arcade", windows=["all_time", "daily"], scopes=["country"], feeds=["xp"])
    boards.submit("arcade", "alice", 5, attributes={"country": "BR"})
    boards.submit("arcade", "bob", 3, attributes={"country": "BR"})
    clock.advance(2 * DAY_MS)
    assert boards.remove("arcade", "alice").changed

    assert kept(boards, "arcade") == kept(boards, "arcade", scope="country:BR") == {"bob": 3}
    assert kept(boards, "arcade", window="daily:2026-05-04") == {"bob": 3}
    assert kept(boards, "xp") == {"alice": 5, "bob": 3}
    assert not boards.remove("arcade", "alice").changed
    assert not boards.remove("arcade", "nobody").changed
    boards.verify()


def test_a_score_after_a_removal_starts_anew(boards: Boards) -> None:
    boards.define("arcade", keep="first")
    boards.submit("arcade", "alice", 5, metadata={"car": "red"})
    boards.remove("arcade", "alice")
    answer = boards.submit("arcade", "alice", 3)

    assert (answer.score, answer.previous_score, answer.changed) == (3, None, True)
    standing = boards.rank("arcade", "alice")
    assert standing is not None
    assert standing.metadata is None


def test_a_reset_empties_the_current_instances_of_one_window(boards: Boards, clock: ManualClock) -> None:
    boards.define("arcade", windows=["all_time", "daily"], scopes=["country"])
    boards.submit("arcade", "alice", 5, attributes={"country": "BR"})
    clock.advance(DAY_MS)
    boards.submit("arcade", "alice", 7, attributes={"country": "BR"})
    assert boards.reset("arcade", "daily").changed

    assert kept(boards, "arcade", window="daily") == kept(boards, "arcade", window="daily", scope="country:BR") == {}
    assert kept(boards, "arcade", window="daily:previous") == {"alice": 5}
    assert kept(boards, "arcade") == {"alice": 7}
    assert not boards.reset("arcade", "daily").changed
    boards.verify()


def test_a_reset_of_a_period_empties_it_only_while_it_lasts(boards: Boards, clock: ManualClock) -> None:
    now = clock.now()
    boards.define("arcade", periods=[{"name": "cup", "start": now - 10, "end": now + 1_000}], late_by="1d")
    boards.submit("arcade", "alice", 5)
    clock.advance(1_000)
    assert not boards.reset("arcade", "period:cup").changed
    assert kept(boards, "arcade", window="period:cup") == {"alice": 5}


def test_metadata_goes_with_the_score_it_came_with(boards: Boards) -> None:
    boards.define("arcade", windows=["all_time", "daily"])
    boards.submit("arcade", "alice", 5, metadata={"car": "red"})
    boards.submit("arcade", "alice", 3, metadata={"car": "slow"})
    assert [entry.metadata for entry in boards.top("arcade").entries] == [{"car": "red"}]
    boards.reset("arcade", "daily")
    boards.submit("arcade", "alice", 4)
    assert [entry.metadata for entry in boards.top("arcade", window="daily").entries] == [None]
    assert [entry.metadata for entry in boards.top("arcade").entries] == [{"car": "red"}]


def test_pages_with_metadata_can_be_read_while_it_comes_and_goes(boards: Boards) -> None:
    boards.define("arcade", keep="latest")
    bound = LoadBound()
    stop, problems = threading.Event(), []

    def read() -> None:
        while not stop.is_set() and bound.take():
            try:
                boards.top("arcade", 100)
            except Exception as problem:
                problems.append(problem)
                return

    reader = threading.Thread(target=read)
    reader.start()
    for turn in range(30):
        metadata = {"turn": turn} if turn % 2 else None
        boards.submit_many("arcade", [{"player": f"p{n}", "score": turn, "metadata": metadata} for n in range(50)])
    stop.set()
    join_all([reader])
    assert problems == []


# Proof


def poke(boards: Boards, key: InstanceKey, op: Op, player: str, score: int = 0) -> None:
    """Change the ranks behind the ledger's back."""
    board = boards.board(key.board)
    at = embedded_of(boards).rank_store.position(0).sequence
    rules = board.rules_for(board.window_of(key.window))
    columns: dict[str, Any] = {"score": array("q", [score]), "op": bytes([op])}
    embedded_of(boards).rank_store.apply(
        UpdateBatch(instances=[(key, rules)], players=[player], after=at, upto=at, **columns)
    )


@pytest.mark.parametrize(
    ("op", "player", "score", "message"),
    [
        (Op.PUT, "alice", 6, "scores or their order differ"),
        (Op.PUT, "mallory", 1, "3 players stand there and 2 should"),
        (Op.REMOVE, "bob", 0, "1 players stand there and 2 should"),
        (Op.CLEAR, "bob", 0, "0 players stand there and 2 should"),
    ],
)
@pytest.mark.parametrize(
    "key",
    [
        InstanceKey("arcade"),
        InstanceKey("arcade", "daily:2026-05-04"),
        InstanceKey("arcade", "all_time", "country:BR"),
        InstanceKey("arcade", "daily:2026-05-04", "country:BR"),
    ],
)
def test_ranks_that_are_not_what_the_ledger_says_are_found(
    boards: Boards, key: InstanceKey, *, op: Op, player: str, score: int, message: str
) -> None:
    boards.define("arcade", windows=["all_time", "daily"], scopes=["country"])
    boards.submit_many(
        "arcade", [{"player": who, "score": 5, "attributes": {"country": "BR"}} for who in ("alice", "bob")]
    )
    boards.verify()
    poke(boards, key, op, player, score)

    with pytest.raises(VerificationFailed) as failure:
        boards.verify()
    assert f"arcade in {key.window}, '{key.scope}': " in str(failure.value)
    assert message in str(failure.value)


def test_a_whole_instance_nobody_wrote_is_found(boards: Boards) -> None:
    boards.define("arcade", windows=["all_time", "daily"])
    boards.submit("arcade", "alice", 5)
    poke(boards, InstanceKey("arcade", "daily:2020-01-01"), Op.PUT, "ghost", 1)

    with pytest.raises(VerificationFailed, match="2020-01-01"):
        boards.verify()


def test_a_tie_that_was_moved_is_found(boards: Boards) -> None:
    boards.define("arcade")
    boards.submit("arcade", "alice", 5)
    poke(boards, InstanceKey("arcade"), Op.PUT, "alice", 5)  # the tie field becomes 0

    with pytest.raises(VerificationFailed):
        boards.verify()


def test_the_report_says_what_was_compared(boards: Boards) -> None:
    boards.define("arcade", windows=["all_time", "daily"])
    boards.submit_many("arcade", [("alice", 1), ("bob", 2), ("alice", 3)])
    report = boards.verify()
    assert (report.events, report.instances, report.entries) == (4, 2, 4)
