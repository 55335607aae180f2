"""A board by one scope without a global one: very many small boards, which come and go together."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.servers.waiting import wait_until

from rankd import Boards, ManualClock
from rankd.domain.instance import InstanceKey
from rankd.node.open_embedded import embedded_of
from rankd.projection import applier
from rankd.projection.counting import CountingStore

if TYPE_CHECKING:
    from tests.unit.conftest import OpenBoards

DAY_MS = 86_400_000
DAY = "daily:2026-05-04"
LOBBIES, PLAYERS = 25, 4


@pytest.fixture(autouse=True)
def _few_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(applier, "LET_GO_AT_ONCE", 3)


def fill(boards: Boards, lobbies: int = LOBBIES) -> None:
    rows = [
        {"player": f"p{(lobby + number) % 30}", "score": lobby * number, "attributes": {"lobby": lobby}}
        for lobby in range(lobbies)
        for number in range(PLAYERS)
    ]
    boards.submit_many("lobbies", rows)


def define(boards: Boards) -> None:
    boards.define("lobbies", windows=["daily"], scopes=["lobby"], global_=False, retention="1h", scope_values_max=10**8)


@pytest.fixture
def boards(open_boards: OpenBoards) -> Boards:
    """A family of lobbies."""
    boards = open_boards()
    define(boards)
    fill(boards)
    return boards


def store_of(boards: Boards) -> CountingStore:
    store = embedded_of(boards).rank_store
    store.check()
    return store


def retire(boards: Boards, clock: ManualClock) -> None:
    """Let the day leave the ranks, and only a part of it the store."""
    clock.advance(2 * DAY_MS)
    running = embedded_of(boards)
    running.writer.roll_over("lobbies")
    running._retirement.due(clock.now(), LOBBIES)
    wait_until(lambda: running._retirement.archiving.waiting == 0)
    running._roll_overs.append_retired(clock.now(), running.writer.run_control)


def test_a_window_is_gone_for_readers_at_once_and_leaves_the_store_bit_by_bit(
    boards: Boards, clock: ManualClock
) -> None:
    retire(boards, clock)
    page = boards.top("lobbies", window=DAY, scope="lobby:1")
    assert (page.source, page.total) == ("archive", PLAYERS)
    assert boards.figures().entries == (LOBBIES - 3) * PLAYERS

    boards.submit("lobbies", "ann", 1, attributes={"lobby": 1})
    assert boards.figures().entries == (LOBBIES - 6) * PLAYERS + 1
    boards.settle()
    assert boards.figures().entries == 1
    assert list(store_of(boards).scopes("lobbies", DAY)) == []


def test_a_restart_goes_on_where_a_window_was_leaving(
    boards: Boards, open_boards: OpenBoards, clock: ManualClock
) -> None:
    retire(boards, clock)
    boards.snapshot()
    boards.close()

    again = open_boards()
    assert again.started.replayed == 0
    assert again.figures().entries == (LOBBIES - 3) * PLAYERS
    again.settle()
    assert again.figures().entries == 0
    assert list(store_of(again).instances()) == []


def test_what_is_leaving_is_no_difference_from_the_ledger(boards: Boards, clock: ManualClock) -> None:
    retire(boards, clock)
    assert boards.verify().entries == 0


def test_a_board_defined_anew_begins_without_what_is_left_of_the_one_before(boards: Boards) -> None:
    boards.delete("lobbies")
    assert boards.figures().entries > 0
    define(boards)
    assert boards.figures().entries == 0
    fill(boards, 2)
    assert boards.top("lobbies", scope="lobby:1").total == PLAYERS
    boards.verify()


def test_a_player_is_taken_out_of_every_lobby(boards: Boards) -> None:
    store = store_of(boards)
    assert len(list(store.scopes("lobbies", DAY, "p7"))) == PLAYERS
    boards.remove("lobbies", "p7")
    assert list(store.scopes("lobbies", DAY, "p7")) == []
    assert boards.figures().entries == LOBBIES * PLAYERS - PLAYERS
    boards.verify()


def test_a_reset_empties_every_lobby(boards: Boards) -> None:
    assert boards.reset("lobbies").changed
    assert boards.figures().entries == 0
    assert not boards.reset("lobbies").changed
    fill(boards, 2)
    assert boards.figures().entries == 2 * PLAYERS
    boards.verify()


def test_the_names_of_lobbies_are_not_held_beside_the_engine(boards: Boards) -> None:
    live = embedded_of(boards).applier.state.boards["lobbies"]
    assert live.windows == {DAY}
    assert len(live.scope_values["lobby"]) == LOBBIES
    assert sorted(store_of(boards).scopes("lobbies", DAY)) == sorted(f"lobby:{lobby}" for lobby in range(LOBBIES))
    assert store_of(boards).window_sum("lobbies", DAY)[:2] == (LOBBIES, LOBBIES * PLAYERS)
    assert store_of(boards).total(InstanceKey("lobbies", DAY, "lobby:1")) == PLAYERS


def test_a_deleted_board_leaves_with_all_its_windows(boards: Boards) -> None:
    boards.define("levels", windows=["daily", "weekly", "all_time"], scopes=["level"])
    boards.submit("levels", "ann", 1, attributes={"level": 1})
    boards.delete("levels")
    boards.verify()
    boards.settle()
    assert boards.figures().entries == LOBBIES * PLAYERS


def test_batches_of_more_values_than_are_remembered_count_where_they_belong(
    boards: Boards, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rankd.projection.placement._PLANS_MAX", 4)
    boards.define("rooms", scopes=["room"], global_=False, keep="sum")
    for first in (0, 3, 6, 2):  # each time other values, of the same number or of more than fit
        rooms = [str(first + step) for step in range(3 if first else 7)]
        boards.submit_many("rooms", players=["ann"] * len(rooms), scores=[1] * len(rooms), attributes={"room": rooms})
        boards.submit("rooms", "bob", 5, attributes={"room": first})

    sums = {room: boards.top("rooms", 2, scope=f"room:{room}").entries for room in range(9)}
    assert {room: [(entry.player, entry.score) for entry in entries] for room, entries in sums.items()} == {
        0: [("bob", 5), ("ann", 1)],
        1: [("ann", 1)],
        2: [("bob", 5), ("ann", 2)],
        3: [("bob", 5), ("ann", 3)],
        4: [("ann", 3)],
        5: [("ann", 2)],
        6: [("bob", 5), ("ann", 2)],
        7: [("ann", 1)],
        8: [("ann", 1)],
    }
