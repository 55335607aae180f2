"""An append that failed after its commit: whatever comes next finds it in the ledger, and stands behind it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.unit.conftest import OpenBoards

from rankd import Boards, ManualClock
from rankd.errors import LedgerUnavailable
from rankd.ledger.port import Draft
from rankd.ledger.sqlite.ledger import LedgerHead, SqliteLedger
from rankd.node.open_embedded import embedded_of

DAY_MS = 86_400_000
CHANGES: dict[str, Callable[[Boards], object]] = {
    "a score": lambda boards: boards.submit("arcade", "carol", 3),
    "a removal": lambda boards: boards.remove("arcade", "alice"),
    "a definition": lambda boards: boards.define("words", windows=["all_time"]),
    "a reset": lambda boards: boards.reset("arcade"),
    "a deletion": lambda boards: boards.delete("other"),
}


def cut_off_after(append: Callable[[SqliteLedger, Draft], LedgerHead], problem: BaseException) -> object:
    """Return an append that commits, and then fails all the same."""

    def cut_off(ledger: SqliteLedger, draft: Draft) -> LedgerHead:
        append(ledger, draft)
        raise problem

    return cut_off


@pytest.fixture
def filled(boards: Boards) -> Boards:
    """Two boards, and a player on one."""
    for board in ("arcade", "other"):
        boards.define(board, windows=["all_time", "daily"])
    boards.submit("arcade", "alice", 1)
    return boards


def check_goes_on(boards: Boards, open_boards: OpenBoards) -> None:
    """Commit a score behind what was cut off, and compare what is ranked with the ledger."""
    assert boards.submit("arcade", "bob", 2).rank is not None
    boards.verify()
    top = boards.top("arcade").entries
    boards.close()
    assert open_boards().top("arcade").entries == top


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("problem", [LedgerUnavailable("cut off"), KeyboardInterrupt()], ids=["failed", "interrupted"])
def test_the_next_score_follows_a_change_that_was_cut_off_after_its_commit(
    filled: Boards, open_boards: OpenBoards, change: str, problem: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = embedded_of(filled)._ledger.heads().sequences[0]
    with monkeypatch.context() as patched:
        patched.setattr(SqliteLedger, "_append", cut_off_after(SqliteLedger._append, problem))
        with pytest.raises(type(problem)):
            CHANGES[change](filled)

    assert embedded_of(filled)._ledger.heads().sequences[0] == before + 1
    check_goes_on(filled, open_boards)


def test_a_roll_over_that_was_cut_off_after_its_commit_is_not_appended_again(
    filled: Boards, open_boards: OpenBoards, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock.advance(2 * DAY_MS)
    ledger = embedded_of(filled)._ledger
    with monkeypatch.context() as patched:
        patched.setattr(SqliteLedger, "_append", cut_off_after(SqliteLedger._append, LedgerUnavailable("cut off")))
        with pytest.raises(LedgerUnavailable):
            filled.submit("arcade", "carol", 3)
    cut_off = ledger.heads().sequences[0]

    assert filled.submit("arcade", "dan", 4).position == f"0-{cut_off + 1}"
    check_goes_on(filled, open_boards)
