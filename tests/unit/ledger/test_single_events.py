"""A commit of one score takes a shorter way to the same rows and seals."""

from __future__ import annotations

import random
from array import array
from pathlib import Path

import pytest

from rankd.errors import Closed, LedgerUnavailable
from rankd.ledger.database import Database
from rankd.ledger.event import SEAL_BYTES, Accepted, Context, Kind, Single, Stretch, seal, seal_single
from rankd.ledger.port import Draft
from rankd.ledger.sqlite import SqliteLedger

from .drafts import ask, everything, opened


def context(sender: str) -> Context:
    return Context(Kind.SCORE, "arcade", sender, {"arcade": Accepted(1)})


def test_the_seal_of_one_event_is_that_of_its_columns(rng: random.Random) -> None:
    for _ in range(200):
        event = Single(
            context=rng.randrange(1, 2**31),
            at=rng.randrange(2**43),
            player_id="ann",
            score=rng.randrange(-(2**63), 2**63),
            tiebreak=rng.randrange(2**40),
            player=rng.randrange(1, 2**32),
            first=rng.randrange(1, 2**53),
        )
        before, json = rng.randbytes(SEAL_BYTES), rng.randbytes(rng.randrange(1, 300))
        numbers = (event.context, event.at, event.player, event.score, event.tiebreak)
        columns = [array("q", [number]) for number in numbers]

        assert seal_single(before, event, json) == seal(before, event.at, event.first, [json], columns, details=[b""])


def test_the_rows_are_those_of_a_draft(tmp_path: Path, rng: random.Random) -> None:
    (tmp_path / "single").mkdir()
    (tmp_path / "drafted").mkdir()
    with opened(tmp_path / "single") as single, opened(tmp_path / "drafted") as drafted:
        for at in range(1, 120):
            player, score = f"p{rng.randrange(20)}", rng.randrange(-(2**63), 2**63)
            tiebreak, sender = rng.choice([0, 7]), rng.choice(["local", "key-1"])
            event = Single(single.number_context(context(sender)), at, player, score, tiebreak)
            head = single.append_single(event)
            stretch = Stretch(
                drafted.number_context(context(sender)),
                array("q", [at]),
                drafted.number_players([player]),
                array("q", [score]),
                array("q", [tiebreak]),
                [player],
            )

            assert drafted.append(Draft([stretch], {}, [], [], at)) == head
            assert event.first == stretch.first == head.sequence
            assert event.stretch() == stretch
            assert Single.of(stretch) == event
        assert everything(single) == everything(drafted)
        assert single.head() == drafted.head()
    for query in (
        "SELECT * FROM events ORDER BY sequence",
        "SELECT * FROM players ORDER BY number",
        "SELECT * FROM contexts ORDER BY number",
    ):
        assert ask(tmp_path / "single", query) == ask(tmp_path / "drafted", query) != []


def test_an_event_that_cannot_be_written_is_not_there(tmp_path: Path) -> None:
    database = Database(tmp_path)
    ledger = SqliteLedger(tmp_path, database)
    number = ledger.number_context(context("local"))
    head = ledger.append_single(Single(number, 1, "ann", 10, 0))
    other = Database(tmp_path)
    database._writer.set_busy_timeout(0)
    with other.writing(), pytest.raises(LedgerUnavailable):
        ledger.append_single(Single(number, 2, "ann", 11, 0))
    other.close()

    assert ledger.recover() == head
    assert ledger.append_single(Single(number, 3, "ann", 12, 0)).sequence == 2
    ledger.close()
    database.close()


def test_a_closed_file_takes_nothing(tmp_path: Path) -> None:
    database = Database(tmp_path)
    database.close()

    with pytest.raises(Closed):
        database.write_one("INSERT INTO players (number, id) VALUES (1, 'ann')", ())
