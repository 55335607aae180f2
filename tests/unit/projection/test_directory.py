"""The boards in order: pages that hold each board once, whatever is searched for, and cost the same at any size."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.timing import BUSY_MACHINE

from rankd.domain.board import Board
from rankd.projection import directory
from rankd.projection.directory import Directory

IDS = ["a", "aa", "ab", "b", "ba", "arcade", "arcade-2", "z"]
TITLES = ["a", "A", "Aa", "AB", "Arcade", "ÄRGER", "straße", "STRASSE", "b:c", "Z", "z", "\U0010ffff"]
SEARCHES = ["", "a", "A", "aR", "ä", "STRASS", "straß", "b", "b:", "z", "\U0010ffff", "nowhere"]
boards = st.builds(
    lambda board_id, title: Board(id=board_id, title=title), st.sampled_from(IDS), st.sampled_from(TITLES)
)


def expected(all_boards: dict[str, Board], search: str) -> list[str]:
    """Work out what a search finds: by id, then by title."""
    start = search.casefold()
    by_id = sorted(board_id for board_id in all_boards if board_id.startswith(start))
    titled = sorted((board.title.casefold(), board.id) for board in all_boards.values())
    return by_id + [board_id for title, board_id in titled if title.startswith(start) and board_id not in by_id]


def walked(listing: Directory, search: str, limit: int) -> list[str]:
    """Go from page to page to the end."""
    ids: list[str] = []
    cursor = None
    for _ in range(1_000):
        page = listing.page(limit, cursor, search)
        assert len(page.boards) <= limit
        ids += [listed.board.id for listed in page.boards]
        if (cursor := page.next) is None:
            return ids
    raise AssertionError("it does not end")


@settings(max_examples=300)
@given(
    begin=st.lists(boards, max_size=8),
    steps=st.lists(boards | st.sampled_from(IDS), max_size=20),
    limit=st.integers(1, 4),
    looked_at_max=st.integers(1, 3),
)
def test_every_board_is_found_once_and_in_order(
    begin: list[Board], steps: list[Board | str], limit: int, looked_at_max: int
) -> None:
    there = {board.id: board for board in begin}
    listing = Directory(there.values())
    for step in steps:
        if isinstance(step, Board):
            there[step.id] = step
            listing.put(step)
        elif step in there:
            del there[step]
            listing.remove(step)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(directory, "TITLES_LOOKED_AT_MAX", looked_at_max)
        for search in SEARCHES:
            assert walked(listing, search, limit) == expected(there, search), search
    assert listing.ids() == sorted(there)
    assert len(listing) == len(there)


def test_the_cursor_of_each_board_goes_on_behind_it() -> None:
    listing = Directory(Board(id=f"b{number}", title=f"Title {number}") for number in range(5))
    for search in ("", "title"):
        ids = [f"b{number}" for number in range(5)]
        for number, listed in enumerate(listing.page(5, search=search).boards):
            behind = listing.page(5, listed.cursor, search)
            assert [entry.board.id for entry in behind.boards] == ids[number + 1 :]


def test_who_pages_on_while_boards_come_and_go_sees_those_that_stay_once() -> None:
    listing = Directory(Board(id=f"b{number}", title=f"b{number}") for number in range(6))
    first = listing.page(3)
    listing.remove("b2")  # the one behind which it goes on
    listing.put(Board(id="b0a", title="b0a"))
    assert [entry.board.id for entry in listing.page(3, first.next).boards] == ["b3", "b4", "b5"]


@pytest.mark.timed
@pytest.mark.parametrize("search", ["", "b", "t"])
def test_a_page_costs_the_same_at_any_size(search: str) -> None:
    few, many = (
        Directory(Board(id=f"b{number}", title=f"t {number}") for number in range(count)) for count in (10, 50_000)
    )

    def cost_s(listing: Directory) -> float:
        costs = []
        for _ in range(20):
            began = time.thread_time()
            listing.page(10, search=search)
            costs.append(time.thread_time() - began)
        return min(costs)

    # A title that is looked at and left out costs too, and there are at most so many of them.
    assert cost_s(many) < 20 * cost_s(few) + 0.001 * BUSY_MACHINE
