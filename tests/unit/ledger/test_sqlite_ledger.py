"""What the embedded ledger does beyond the contract of all ledgers: player numbers, whole commits, plain tables."""

from __future__ import annotations

import json
import random
from array import array
from pathlib import Path
from typing import Any

import pytest
from tests.contract.ledger_drafts import ARCADE, AT, control, scores

from rankd.errors import LedgerDamaged, LedgerUnavailable
from rankd.ledger.audit import AuditQuery
from rankd.ledger.event import AcceptanceContext, Context, Detail, EventKind, EventRun
from rankd.ledger.origin import RequestOrigin
from rankd.ledger.sqlite import history
from rankd.ledger.sqlite.checksum import checksum
from rankd.ledger.sqlite.ledger import SqliteLedger

from .drafts import about_no_player, ask, draft, end_of, everything, opened, tamper

DETAILS: list[Detail | None] = [
    None,
    Detail(attributes={"country": "BR", "guild": "the “reds”"}),
    Detail(keys={"fading": 2**62}, has_metadata=True),
    Detail(window="daily:2026-05-04"),
    Detail(definition={"keep": "best", "windows": ["all_time"], "score_max": 2**63 - 1}),
]


def read_back(event_runs: list[EventRun]) -> list[tuple[object, ...]]:
    rows: list[tuple[object, ...]] = []
    for event_run in event_runs:
        details = event_run.detail or [None] * len(event_run)
        columns = zip(
            event_run.at, event_run.player, event_run.score, event_run.tiebreak, event_run.players, details, strict=True
        )
        rows.extend((event_run.context, *row) for row in columns)
    return rows


def numbers_of(ledger: SqliteLedger, players: list[str]) -> list[int]:
    """Append a score of each player, and return the numbers that they have."""
    event_run = scores(ledger, *((player, 1) for player in players))
    ledger.append(draft(event_run))
    return list(event_run.player)


def test_what_is_read_is_what_was_appended(tmp_path: Path, rng: random.Random) -> None:
    with opened(tmp_path) as ledger:
        appended: list[tuple[object, ...]] = []
        for _ in range(20):
            event_runs = []
            for _ in range(rng.randint(1, 4)):
                count = rng.choice([1, 2, 7, 99, 100, 101, 250])
                players = [f"p{rng.randrange(40)} – {'é' * rng.randrange(3)}" for _ in range(count)]
                sender = rng.choice(["local", "key-1"])
                event_runs.append(
                    EventRun(
                        ledger.number_context(
                            Context(EventKind.SCORE, "arcade", sender, {"arcade": AcceptanceContext(1)})
                        ),
                        array("q", [rng.randrange(2**43) for _ in range(count)]),
                        array("q", bytes(8 * count)),
                        array("q", [rng.choice([0, -(2**63), 2**63 - 1, rng.randrange(1000)]) for _ in range(count)]),
                        array("q", [rng.randrange(2**40) for _ in range(count)]),
                        players,
                        [rng.choice(DETAILS) for _ in range(count)] if rng.random() < 0.5 else None,
                    )
                )
            ledger.append(draft(*event_runs))
            appended += read_back(event_runs)
        assert read_back(everything(ledger)) == appended
    with opened(tmp_path) as ledger:
        assert read_back(everything(ledger)) == appended


def test_what_was_appended_has_its_sequences_and_players_have_numbers(tmp_path: Path) -> None:
    with opened(tmp_path) as ledger:
        first_run, second_run = scores(ledger, ("alice", 1), ("bob", 2), ("alice", 3)), scores(ledger, ("carol", 4))
        ledger.append(draft(first_run, second_run))

        assert [first_run.first, second_run.first] == [1, 4]
        assert [list(first_run.player), list(second_run.player)] == [[1, 2, 1], [3]]


def test_reading_begins_at_the_end_of_a_commit_only(tmp_path: Path) -> None:
    with opened(tmp_path) as ledger:
        ledger.append(draft(scores(ledger, ("alice", 1), ("bob", 2))))

        assert everything(ledger, after=2) == []
        with pytest.raises(LedgerDamaged, match="no commit ends"):
            everything(ledger, after=1)


def test_reading_in_parts_cuts_no_commit(tmp_path: Path) -> None:
    with opened(tmp_path) as ledger:
        for size in (1, 5, 2, 2, 1):
            ledger.append(draft(scores(ledger, *((f"p{n}", n) for n in range(size)))))

        read = [sum(len(part.event_run) for part in ledger.read([after], 3)) for after in (0, 6, 10, 11)]
        assert read == [6, 4, 1, 0]


def test_players_keep_their_numbers(tmp_path: Path) -> None:
    with opened(tmp_path) as ledger:
        ledger.append(draft(scores(ledger, ("alice", 1), ("bob", 2), ("alice", 3))))
        assert numbers_of(ledger, ["bob", "alice", "carol", "alice"]) == [2, 1, 3, 1]
    with opened(tmp_path) as ledger:
        assert numbers_of(ledger, ["dan", "carol", "bob"]) == [4, 3, 2]


def test_a_failed_commit_takes_back_its_numbers_and_leaves_nothing(tmp_path: Path) -> None:
    with opened(tmp_path) as ledger:
        ledger.append(draft(scores(ledger, ("alice", 1))))
        other = Context(EventKind.SCORE, "words", "local", {"words": AcceptanceContext(1)})
        failing = draft(scores(ledger, ("bob", 1), context=other), metadata={0: "{}", 1: "{}"})
        tamper(tmp_path, "CREATE TRIGGER full BEFORE INSERT ON metadata BEGIN SELECT RAISE(ABORT, 'full'); END")
        with pytest.raises(LedgerUnavailable):
            ledger.append(failing)
        assert end_of(ledger) == 1

        ledger.append(draft(scores(ledger, ("carol", 5))))
        ledger.append(draft(scores(ledger, ("bob", 6), context=other)))

        assert [list(event_run.players) for event_run in everything(ledger)] == [["alice", "carol"], ["bob"]]
        assert [ledger.context(event_run.context).board for event_run in everything(ledger)] == ["arcade", "words"]
    assert ask(tmp_path, "SELECT number, id FROM players") == [(1, "alice"), (2, "carol"), (3, "bob")]
    with opened(tmp_path) as ledger:
        assert [list(event_run.players) for event_run in everything(ledger)] == [["alice", "carol"], ["bob"]]


def test_a_number_that_was_not_used_is_not_mixed_up_with_one_of_the_registry(tmp_path: Path) -> None:
    with opened(tmp_path) as ledger:
        tamper(tmp_path, "CREATE TRIGGER full BEFORE INSERT ON metadata BEGIN SELECT RAISE(ABORT, 'full'); END")
        with pytest.raises(LedgerUnavailable):
            ledger.append(draft(scores(ledger, ("refused", 1)), metadata={0: "{}"}))
        for player in ("registered", "registered later"):
            tamper(tmp_path, "INSERT INTO players (id) VALUES (?)", player)
            ledger.players.forget_fresh()
            ledger.append(draft(scores(ledger, (f"{player} newcomer", 1), (player, 2))))
        ledger.append(draft(scores(ledger, ("refused", 3))))

        assert [player for event_run in everything(ledger) for player in event_run.players] == [
            *("registered newcomer", "registered", "registered later newcomer", "registered later", "refused"),
        ]


def test_a_player_with_two_numbers_is_damage(tmp_path: Path) -> None:
    with opened(tmp_path) as ledger:
        ledger.append(draft(scores(ledger, ("alice", 1), ("bob", 2))))
        ledger.check()
        tamper(tmp_path, "UPDATE players SET id = 'alice' WHERE id = 'bob'")

        with pytest.raises(LedgerDamaged, match="'alice' has two numbers"):
            ledger.check()


def test_equal_contexts_are_stored_once(tmp_path: Path) -> None:
    with opened(tmp_path) as ledger:
        for _ in range(3):
            ledger.append(draft(scores(ledger, ("alice", 1))))
    assert ask(tmp_path, "SELECT context FROM contexts") == [(ARCADE.key.decode(),)]


def test_metadata_is_kept_apart_and_checked(tmp_path: Path) -> None:
    with opened(tmp_path) as ledger:
        ledger.append(draft(scores(ledger, ("alice", 1), ("bob", 2)), metadata={1: '{"car":"röt"}'}))
        tamper(tmp_path, "UPDATE metadata SET json = replace(json, 'r', 'g')")
        assert everything(ledger)
        with pytest.raises(LedgerDamaged, match="metadata of event 2"):
            ledger.metadata([(0, 2)])


def test_a_player_can_be_erased_without_breaking_a_seal(tmp_path: Path) -> None:
    with opened(tmp_path) as ledger:
        ledger.append(draft(scores(ledger, ("alice", 1)), metadata={0: '{"name":"Alice"}'}))
    tamper(tmp_path, "UPDATE players SET id = 'erased-1' WHERE id = 'alice'")
    tamper(tmp_path, "DELETE FROM metadata")
    with opened(tmp_path) as ledger:
        assert [list(event_run.players) for event_run in everything(ledger)] == [["erased-1"]]


def test_a_person_can_read_the_events(tmp_path: Path) -> None:
    with opened(tmp_path) as ledger:
        ledger.append(
            draft(scores(ledger, ("alice", 976), at=AT + 5, detail=[Detail(attributes={"country": "BR"})]),
                  metadata={0: '{"car":"red"}'})
        )  # fmt: skip
        ledger.append(draft(about_no_player(ledger, EventKind.RESET)))
    (score, emptied) = ask(
        tmp_path, "SELECT sequence, kind, board, at, player, score, detail, metadata, sender FROM readable_events"
    )

    assert score[:6] == (1, "score", "arcade", "2026-05-04T12:00:00.005Z", "alice", 976)
    assert json.loads(str(score[6])) == {"attributes": {"country": "BR"}}
    assert score[7:] == ('{"car":"red"}', "local")
    assert (emptied[1], emptied[4], emptied[8]) == ("reset", None, "admin")


def test_every_definition_there_was_can_be_read(tmp_path: Path) -> None:
    with opened(tmp_path) as ledger:
        first, second = (
            about_no_player(ledger, EventKind.DEFINE, version, Detail(definition={"title": f"v{version}"}))
            for version in (1, 2)
        )
        ledger.append(draft(first))
        ledger.append(draft(scores(ledger, ("alice", 1)), second))
    assert ask(tmp_path, "SELECT board, version, sequence, definition FROM definitions") == [
        ("arcade", 1, 1, '{"title":"v1"}'),
        ("arcade", 2, 3, '{"title":"v2"}'),
    ]


def test_a_players_own_events_are_found_newest_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rng: random.Random
) -> None:
    monkeypatch.setattr(history, "CHUNK_EVENTS", 16)
    sent: list[tuple[str, int]] = []
    with opened(tmp_path) as ledger:
        for _ in range(25):
            events = [(f"p{rng.randrange(5)}", rng.randrange(100)) for _ in range(rng.randint(1, 6))]
            ledger.append(draft(scores(ledger, *events)))
            sent += events
            if rng.random() < 0.3 and ledger.player_index.behind(len(sent)) > 0:
                ledger.player_index.index_chunk()

        def history_of(reader: SqliteLedger, player: str, **about: Any) -> list[tuple[int, int | None]]:
            return [(event.sequence, event.score) for event in reader.history(player, **{"limit": 1_000, **about})]

        for player in ("p0", "p1", "p2", "p3", "p4", "nobody"):
            own = [(sequence, score) for sequence, (who, score) in enumerate(sent, start=1) if who == player][::-1]
            assert history_of(ledger, player) == own
            assert history_of(ledger, player, limit=3) == own[:3]
            assert history_of(ledger, player, before=20) == [event for event in own if event[0] < 20]
            with opened(tmp_path) as again:
                assert history_of(again, player) == own


@pytest.mark.parametrize("is_older", [False, True], ids=["this version", "an earlier version"])
def test_control_events_are_found_in_chunks_of_any_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rng: random.Random, is_older: bool
) -> None:
    monkeypatch.setattr(history, "CHUNK_EVENTS", 16)
    resets: list[int] = []
    with opened(tmp_path) as ledger:
        for number in range(120):
            if rng.random() < 0.2:
                (made,) = ledger.append_control([control(EventKind.RESET)], 0)
                resets.insert(0, made.sequences[0])
            else:
                ledger.append(draft(scores(ledger, ("alice", number))))
            if rng.random() < 0.3 and ledger.player_index.behind(number + 1) > 0:
                ledger.player_index.index_chunk()
        assert ledger.player_index.chunks > 4
    if is_older:
        tamper(tmp_path, "DELETE FROM player_events WHERE player = -1")

    def resets_in(reader: SqliteLedger) -> list[int]:
        return [event.event_run.first for event in reader.audit(AuditQuery(1_000, kind=EventKind.RESET)).events]

    with opened(tmp_path) as ledger:
        controls = ledger.player_index.controls
        assert controls.first_chunk == (ledger.player_index.chunks if is_older else 0)
        assert resets_in(ledger) == resets
        if is_older:
            assert ledger.controls_of("arcade", 0) is None
            controls.index_older()
            assert resets_in(ledger) == resets
        with opened(tmp_path) as again:
            assert again.player_index.controls.first_chunk == controls.first_chunk
        while controls.index_older():
            pass
        assert [run.first for run in ledger.controls_of("arcade", 0) or ()] == resets[::-1]
        assert resets_in(ledger) == resets


def test_an_address_of_an_earlier_version_is_read_as_it_was(tmp_path: Path) -> None:
    with opened(tmp_path) as ledger:
        ledger.append(draft(scores(ledger, ("alice", 1))))
    tamper(tmp_path, "INSERT INTO origins VALUES (1, 1, ?, ?, NULL, NULL)", "192.0.2.1", checksum(1, 1, "192.0.2.1"))
    with opened(tmp_path) as ledger:
        assert ledger.origin_of(1) == RequestOrigin("192.0.2.1")
        ledger.check()
    tamper(tmp_path, "UPDATE origins SET user_agent = 'game'")
    with opened(tmp_path) as ledger, pytest.raises(LedgerDamaged, match="came from"):
        ledger.check()
