"""Players are found by id, and by a prefix of it, as in a plain dict: whatever their ids, indexed or not."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.contract.ledger_drafts import scores
from tests.unit.ledger.drafts import draft, tamper

from rankd.errors import LedgerUnavailable
from rankd.ledger.sqlite import numbers, player_ids
from rankd.ledger.sqlite.database import Database
from rankd.ledger.sqlite.ledger import SqliteLedger
from rankd.registry.port import Profile
from rankd.registry.sqlite.registry import SqliteRegistry

CHUNK = 4  # of players, in place of thousands
LIMIT = 5
# Few different characters, so that ids share prefixes: neighbours of surrogates, the last of all, marks, quotes.
ODD = "aAä\u0301\ud7ff\ue000\uffff\U0001f3c6\U0010ffff%_'\"\\,"
IDS = st.one_of(
    st.text(ODD, min_size=1, max_size=4),
    st.builds(lambda tail: "guild-of-the-long-night/" * 4 + tail, st.text(ODD + "0123", max_size=4)),
    st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1, max_size=8),
)
BATCHES = st.lists(IDS, min_size=1, max_size=12)
FAIL = "CREATE TRIGGER full BEFORE INSERT ON events BEGIN SELECT RAISE(ABORT, 'full'); END"


class PlayersOfAFolder(RuleBasedStateMachine):
    """A ledger with its registry beside a dict from ids to numbers."""

    @initialize()
    def begin(self) -> None:
        self.closing = ExitStack()
        self.parent = Path(self.closing.enter_context(tempfile.TemporaryDirectory()))
        self.numbers: dict[str, int] = {}
        self.scored: set[str] = set()
        self.crashes = 0
        self.is_failing = False
        (self.parent / "0").mkdir()
        self.open()

    def open(self) -> None:
        self.folder = self.parent / str(self.crashes)
        self.database = Database(self.folder)
        self.closing.callback(self.database.close)
        self.ledger = SqliteLedger(self.folder, self.database)
        self.closing.callback(self.ledger.close)
        self.registry = SqliteRegistry(self.database, self.ledger.players, 3, self.ledger.record_changes)

    def expect(self, players: list[str]) -> list[int]:
        return [self.numbers.setdefault(player, len(self.numbers) + 1) for player in players]

    @rule(players=BATCHES)
    def join(self, players: list[str]) -> None:
        event_run = scores(self.ledger, *((player, 1) for player in players))
        if self.is_failing:
            with pytest.raises(LedgerUnavailable):
                self.ledger.append(draft(event_run))
            return
        self.ledger.append(draft(event_run))
        self.scored.update(players)
        assert list(event_run.player) == self.expect(players), "numbers follow each other, and stay"

    @rule(player=IDS)
    def set_profile(self, player: str) -> None:
        self.registry.set_profile(Profile(player, country="BR"))
        self.expect([player])

    @rule()
    def index(self) -> None:
        self.ledger.player_ids.index_chunk()

    @precondition(lambda self: not self.is_failing)
    @rule()
    def fail_from_now_on(self) -> None:
        tamper(self.folder, FAIL)
        self.is_failing = True

    @precondition(lambda self: self.is_failing)
    @rule()
    def work_again(self) -> None:
        tamper(self.folder, "DROP TRIGGER full")
        self.is_failing = False

    @rule()
    def crash(self) -> None:
        """Go on with the files as a kill at this moment leaves them."""
        self.crashes += 1
        shutil.copytree(self.folder, self.parent / str(self.crashes), ignore=shutil.ignore_patterns("*-shm"))
        self.open()

    @rule(player=IDS)
    def look_up(self, player: str) -> None:
        for asked in {player, *list(self.numbers)[-3:]}:
            assert self.ledger.player_ids.number(asked) == self.numbers.get(asked)
            assert bool(self.ledger.history(asked, 1)) == (asked in self.scored)

    @rule(prefix=IDS, length=st.integers(1, 60))
    def search(self, prefix: str, length: int) -> None:
        for start in (prefix, prefix[:1], *(player[:length] for player in list(self.numbers)[-3:])):
            expected = sorted(player for player in self.numbers if player.startswith(start))[:LIMIT]
            assert self.ledger.player_ids.with_prefix(start, LIMIT) == expected
            assert [profile.player for profile in self.registry.search(start, LIMIT)] == expected

    @invariant()
    def nobody_has_two_numbers(self) -> None:
        if hasattr(self, "ledger"):
            self.ledger.check()

    def teardown(self) -> None:
        if hasattr(self, "closing"):
            self.closing.close()


def test_players_are_found_as_in_a_dict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(player_ids, "CHUNK_PLAYERS", CHUNK)
    monkeypatch.setattr(numbers, "PLAYERS_READ_AT_ONCE", 3)
    PlayersOfAFolder.TestCase.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
    PlayersOfAFolder.TestCase().runTest()
