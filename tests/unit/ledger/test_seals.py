"""Whatever is changed behind the ledger's back is found: a cell, a row, the end."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.contract.ledger_drafts import ARCADE, AT, scores

from rankd.errors import LedgerDamaged, LedgerUnreadable
from rankd.ledger.event import Detail
from rankd.ledger.sqlite.witness import WITNESS_NAME

from .drafts import ask, draft, end_of, everything, opened, tamper

LAST = 7
COLUMNS = ["context", "at", "player", "score", "tiebreak"]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger of three commits, with three, one and three events, some of them with a detail."""
    folder = tmp_path_factory.mktemp("written")
    with opened(folder) as ledger:
        detail = [Detail(attributes={"country": "BR"}), None, Detail(has_metadata=True)]
        ledger.append(draft(scores(ledger, ("alice", 1), ("bob", 2), ("carol", 3), detail=detail)))
        ledger.append(draft(scores(ledger, ("alice", 4), tiebreak=5)))
        ledger.append(draft(scores(ledger, ("dan", 5), ("bob", 6)), scores(ledger, ("alice", 7), at=AT + 1)))
    return folder


@pytest.fixture
def folder(written: Path, tmp_path: Path) -> Path:
    """A copy of it, to be damaged."""
    return Path(shutil.copytree(written, tmp_path / "copy"))


def assert_damage_is_found(folder: Path) -> None:
    with pytest.raises(LedgerDamaged, match="restore"), opened(folder) as ledger:
        everything(ledger)


def test_the_ledger_as_it_was_written_holds(folder: Path) -> None:
    with opened(folder) as ledger:
        assert sum(map(len, everything(ledger))) == LAST


@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("sequence", range(1, LAST + 1))
def test_a_changed_number_is_found(folder: Path, column: str, sequence: int) -> None:
    assert tamper(folder, f"UPDATE events SET {column} = {column} + 1 WHERE sequence = {sequence}")  # noqa: S608
    assert_damage_is_found(folder)


@pytest.mark.parametrize("sequence", range(1, LAST + 1))
@pytest.mark.parametrize("detail", ['{"attributes":{"country":"DE"}}', "{}", "not JSON", "null"])
def test_a_changed_detail_is_found(folder: Path, sequence: int, detail: str) -> None:
    tamper(folder, "UPDATE events SET detail = ? WHERE sequence = ?", detail, sequence)
    assert_damage_is_found(folder)


@pytest.mark.parametrize(("table", "column"), [("events", "detail"), ("players", "id")])
def test_text_that_is_no_text_is_found(folder: Path, table: str, column: str) -> None:
    tamper(folder, f"UPDATE {table} SET {column} = CAST(X'61FF' AS TEXT)")  # noqa: S608
    assert_damage_is_found(folder)


@pytest.mark.parametrize("sequence", [1, 3])
def test_a_detail_taken_away_is_found(folder: Path, sequence: int) -> None:
    assert tamper(folder, "UPDATE events SET detail = NULL WHERE sequence = ?", sequence)
    assert_damage_is_found(folder)


@pytest.mark.parametrize("sequence", [2, 4, 5])
def test_a_detail_of_no_text_is_found_or_says_nothing(folder: Path, sequence: int) -> None:
    tamper(folder, "UPDATE events SET detail = '' WHERE sequence = ?", sequence)
    try:
        with opened(folder) as ledger:
            details = [
                detail for event_run in everything(ledger) for detail in event_run.detail or [None] * len(event_run)
            ]
    except LedgerDamaged:
        return
    assert details[sequence - 1] is None


@pytest.mark.parametrize("sequence", [3, 4, LAST])
@pytest.mark.parametrize("seal", [b"", b"short", bytes(24), bytes(16) + b"\xff" * 8, bytes(32), b"\xff" * 40])
def test_a_changed_seal_is_found(folder: Path, sequence: int, seal: bytes) -> None:
    tamper(folder, "UPDATE events SET seal = ? WHERE sequence = ?", seal, sequence)
    assert_damage_is_found(folder)


@pytest.mark.parametrize("byte", range(24))
def test_every_byte_of_a_seal_counts(folder: Path, byte: int) -> None:
    ((sealed,),) = ask(folder, "SELECT seal FROM events WHERE sequence = 4")
    assert isinstance(sealed, bytes)
    flipped = sealed[:byte] + bytes([sealed[byte] ^ 1]) + sealed[byte + 1 :]
    tamper(folder, "UPDATE events SET seal = ? WHERE sequence = 4", flipped)
    assert_damage_is_found(folder)


@pytest.mark.parametrize("sequence", [3, 4, LAST])
def test_a_seal_taken_away_is_found(folder: Path, sequence: int) -> None:
    tamper(folder, "UPDATE events SET seal = NULL WHERE sequence = ?", sequence)
    assert_damage_is_found(folder)


@pytest.mark.parametrize("sequence", [1, 2, 5, 6])
def test_a_seal_where_none_was_is_found(folder: Path, sequence: int) -> None:
    tamper(folder, "UPDATE events SET seal = ? WHERE sequence = ?", bytes(24), sequence)
    assert_damage_is_found(folder)


@pytest.mark.parametrize("sequence", range(1, LAST + 1))
def test_a_missing_event_is_found(folder: Path, sequence: int) -> None:
    tamper(folder, "DELETE FROM events WHERE sequence = ?", sequence)
    assert_damage_is_found(folder)


def test_two_events_that_changed_places_are_found(folder: Path) -> None:
    tamper(folder, "UPDATE events SET sequence = 1000 - sequence WHERE sequence IN (1, 2)")
    tamper(folder, "UPDATE events SET sequence = sequence - 997 WHERE sequence > 500")
    assert_damage_is_found(folder)


def test_the_witness_shows_that_the_last_commit_was_taken_away(folder: Path) -> None:
    tamper(folder, "DELETE FROM events WHERE sequence > 4")
    with pytest.raises(LedgerDamaged, match="event 7 was acknowledged"), opened(folder):
        pass


@pytest.mark.parametrize("keep", range(16))
def test_a_torn_witness_says_nothing(folder: Path, keep: int) -> None:
    witness = folder / WITNESS_NAME
    witness.write_bytes(witness.read_bytes()[:keep])
    with opened(folder) as ledger:
        assert end_of(ledger) == LAST


@pytest.mark.parametrize("byte", range(16))
def test_a_witness_with_a_flipped_bit_says_nothing(folder: Path, byte: int) -> None:
    witness = folder / WITNESS_NAME
    content = bytearray(witness.read_bytes())
    content[byte] ^= 0x40
    witness.write_bytes(content)
    with opened(folder) as ledger:
        assert end_of(ledger) == LAST


def test_a_witness_behind_the_ledger_is_no_damage(folder: Path, tmp_path: Path) -> None:
    earlier = tmp_path / "earlier"
    earlier.mkdir()
    with opened(earlier) as ledger:
        ledger.append(draft(scores(ledger, ("alice", 1))))
    shutil.copy(earlier / WITNESS_NAME, folder / WITNESS_NAME)
    with opened(folder) as ledger:
        assert end_of(ledger) == LAST


@pytest.mark.parametrize(
    "change",
    [
        """replace(context, '"arcade"', '"brcade"')""",
        """replace(context, '"score"', '"remove"')""",
        """replace(context, '"local"', '"admin"')""",
        """replace(context, '"version":1', '"version":2')""",
        "'not JSON'",
        """'{"kind":"score"}'""",
    ],
)
def test_a_changed_context_is_found(folder: Path, change: str) -> None:
    """What an event means stands in its context: it must be as safe as the event."""
    assert tamper(folder, f"UPDATE contexts SET context = {change}")  # noqa: S608
    assert ask(folder, "SELECT context FROM contexts") != [(ARCADE.key.decode(),)]
    with pytest.raises(LedgerUnreadable), opened(folder) as ledger:
        everything(ledger)


def test_a_missing_context_is_found(folder: Path) -> None:
    tamper(folder, "DELETE FROM contexts")
    with pytest.raises(LedgerUnreadable), opened(folder) as ledger:
        [ledger.context(event_run.context) for event_run in everything(ledger)]
