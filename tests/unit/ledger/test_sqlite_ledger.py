"""The embedded ledger gives back what was appended, numbered without gaps, and gives no number twice."""

from __future__ import annotations

import json
import random
from array import array
from pathlib import Path
from typing import Any

import pytest

from rankd.errors import LedgerDamaged, LedgerUnavailable
from rankd.ledger import history, numbers, sqlite
from rankd.ledger.event import NO_SEAL, Accepted, Context, Detail, Kind, Stretch
from rankd.ledger.sqlite import SqliteLedger

from .drafts import ARCADE, AT, about_no_player, ask, draft, everything, opened, request, scores, tamper

DETAILS: list[Detail | None] = [
    None,
    Detail(attributes={"country": "BR", "guild": "the “reds”"}),
    Detail(keys={"fading": 2**62}, has_metadata=True),
    Detail(window="daily:2026-05-04"),
    Detail(definition={"keep": "best", "windows": ["all_time"], "score_max": 2**63 - 1}),
]


def read_back(stretches: list[Stretch]) -> list[tuple[object, ...]]:
    rows: list[tuple[object, ...]] = []
    for stretch in stretches:
        details = stretch.detail or [None] * len(stretch)
        columns = zip(
            stretch.at, stretch.player, stretch.score, stretch.tiebreak, stretch.players, details, strict=True
        )
        rows.extend((stretch.context, *row) for row in columns)
    return rows


def test_an_empty_ledger_ends_before_its_first_event(tmp_path: Path) -> None:
    with opened(tmp_path) as ledger:
        assert ledger.head().sequence == 0
        assert ledger.head().seal == NO_SEAL
        assert everything(ledger) == []


def test_what_is_read_is_what_was_appended(tmp_path: Path, rng: random.Random) -> None:
    with opened(tmp_path) as ledger:
        appended: list[tuple[object, ...]] = []
        for _ in range(20):
            stretches = []
            for _ in range(rng.randint(1, 4)):
                count = rng.choice([1, 2, 7, 99, 100, 101, 250])
                players = [f"p{rng.randrange(40)} – {'é' * rng.randrange(3)}" for _ in range(count)]
                sender = rng.choice(["local", "key-1"])
                stretches.append(
                    Stretch(
                        ledger.number_context(Context(Kind.SCORE, "arcade", sender, {"arcade": Accepted(1)})),
                        array("q", [rng.randrange(2**43) for _ in range(count)]),
                        ledger.number_players(players),
                        array("q", [rng.choice([0, -(2**63), 2**63 - 1, rng.randrange(1000)]) for _ in range(count)]),
                        array("q", [rng.randrange(2**40) for _ in range(count)]),
                        players,
                        [rng.choice(DETAILS) for _ in range(count)] if rng.random() < 0.5 else None,
                    )
                )
            ledger.append(draft(*stretches))
            appended += read_back(stretches)
        assert read_back(everything(ledger)) == appended
    with opened(tmp_path) as ledger:
        assert read_back(everything(ledger)) == appended


def test_events_are_numbered_without_gaps_in_commit_order(tmp_path: Path) -> None:
    with opened(tmp_path) as ledger:
        one, two = scores(ledger, ("alice", 1), ("bob", 2)), scores(ledger, ("carol", 3))
        assert ledger.append(draft(one, two)).sequence == 3
        three = scores(ledger, ("alice", 4))
        assert ledger.append(draft(three)).sequence == 4

        assert [one.first, two.first, three.first] == [1, 3, 4]
    assert ask(tmp_path, "SELECT sequence FROM events") == [(1,), (2,), (3,), (4,)]


def test_the_numbering_goes_on_after_a_restart(tmp_path: Path) -> None:
    with opened(tmp_path) as ledger:
        ledger.append(draft(scores(ledger, ("alice", 1))))
    with opened(tmp_path) as ledger:
        assert ledger.append(draft(scores(ledger, ("bob", 1)))).sequence == 2
        assert [list(stretch.players) for stretch in everything(ledger, after=1)] == [["bob"]]


def test_reading_begins_at_the_end_of_a_commit_only(tmp_path: Path) -> None:
    with opened(tmp_path) as ledger:
        ledger.append(draft(scores(ledger, ("alice", 1), ("bob", 2))))

        assert everything(ledger, after=2) == []
        with pytest.raises(LedgerDamaged, match="no commit ends"):
            everything(ledger, after=1)


def test_reading_in_parts_cuts_no_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "READ_EVENTS", 3)
    with opened(tmp_path) as ledger:
        for size in (1, 5, 2, 2, 1):
            ledger.append(draft(scores(ledger, *((f"p{n}", n) for n in range(size)))))

        parts = [sum(map(len, stretches)) for stretches in ledger.read(0)]
        assert parts == [6, 4, 1]


def test_one_event_can_be_looked_up(tmp_path: Path) -> None:
    with opened(tmp_path) as ledger:
        ledger.append(draft(scores(ledger, ("alice", 1), ("bob", 2))))

        assert (ledger.event(2).players, ledger.event(2).score[0]) == (["bob"], 2)
        with pytest.raises(LedgerDamaged):
            ledger.event(3)


def test_the_ledgers_time_is_kept_with_the_commit(tmp_path: Path) -> None:
    with opened(tmp_path) as ledger:
        ledger.append(draft(scores(ledger, ("alice", 1), at=5), at=AT + 7))
    with opened(tmp_path) as ledger:
        assert ledger.head().at == AT + 7


def test_players_keep_their_numbers(tmp_path: Path) -> None:
    with opened(tmp_path) as ledger:
        ledger.append(draft(scores(ledger, ("alice", 1), ("bob", 2), ("alice", 3))))
        assert list(ledger.number_players(["bob", "alice", "carol", "alice"])) == [2, 1, 3, 1]
    with opened(tmp_path) as ledger:
        assert list(ledger.number_players(["carol", "bob"])) == [3, 2]


def test_ids_are_kept_to_the_byte(tmp_path: Path) -> None:
    ids = ["é", "e\u0301", "É", "a ", "a", "\U0010ffff", "\uff41"]
    with opened(tmp_path) as ledger:
        assert len(set(ledger.number_players(ids))) == len(ids)
        ledger.append(draft(scores(ledger, *((player, 1) for player in ids))))
        assert [player for stretch in everything(ledger) for player in stretch.players] == ids


def test_a_failed_commit_takes_back_its_numbers_and_leaves_nothing(tmp_path: Path) -> None:
    with opened(tmp_path) as ledger:
        ledger.append(draft(scores(ledger, ("alice", 1))))
        other = Context(Kind.SCORE, "words", "local", {"words": Accepted(1)})
        failing = draft(scores(ledger, ("bob", 1), context=other), metadata={0: "{}", 1: "{}"})
        tamper(tmp_path, "CREATE TRIGGER full BEFORE INSERT ON metadata BEGIN SELECT RAISE(ABORT, 'full'); END")
        with pytest.raises(LedgerUnavailable):
            ledger.append(failing)
        assert ledger.recover().sequence == 1

        ledger.append(draft(scores(ledger, ("carol", 5))))
        ledger.append(draft(scores(ledger, ("bob", 6), context=other)))

        assert [list(stretch.players) for stretch in everything(ledger)] == [["alice", "carol"], ["bob"]]
        assert [ledger.context(stretch.context).board for stretch in everything(ledger)] == ["arcade", "words"]
    assert ask(tmp_path, "SELECT number, id FROM players") == [(1, "alice"), (2, "carol"), (3, "bob")]
    with opened(tmp_path) as ledger:
        assert [list(stretch.players) for stretch in everything(ledger)] == [["alice", "carol"], ["bob"]]


def test_a_number_that_was_not_used_is_not_mixed_up_with_one_given_elsewhere(tmp_path: Path) -> None:
    with opened(tmp_path) as ledger:
        ledger.number_players(["refused"])
        tamper(tmp_path, "INSERT INTO players (id) VALUES ('registered')")
        ledger.forget_numbers()
        ledger.append(draft(scores(ledger, ("refused", 1), ("registered", 2))))

        assert [list(stretch.players) for stretch in everything(ledger)] == [["refused", "registered"]]


def test_more_players_than_memory_holds_are_looked_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numbers, "PLAYERS_CACHED_MAX", 3)
    with opened(tmp_path) as ledger:
        for first in range(0, 12, 2):
            ledger.append(draft(scores(ledger, *((f"p{n}", n) for n in range(first, first + 4)))))

        assert list(ledger.number_players([f"p{n}" for n in range(14)])) == list(range(1, 15))


def test_equal_contexts_are_stored_once(tmp_path: Path) -> None:
    with opened(tmp_path) as ledger:
        for _ in range(3):
            ledger.append(draft(scores(ledger, ("alice", 1))))
        twin = Context(Kind.SCORE, "arcade", "local", {"arcade": Accepted(1, 0, {})})
        assert ledger.number_context(twin) == 1
        assert ledger.number_context(Context(Kind.SCORE, "arcade", "other", {"arcade": Accepted(1)})) == 2
        assert ledger.context(1) == ARCADE
    assert ask(tmp_path, "SELECT count(*) FROM contexts") == [(1,)]


def test_the_clocks_of_a_context_come_back(tmp_path: Path) -> None:
    read = Context(Kind.SCORE, "arcade", "local", {"arcade": Accepted(3, -12_600, {"raid": AT}), "xp": Accepted(1)})
    with opened(tmp_path) as ledger:
        ledger.append(draft(scores(ledger, ("alice", 1), context=read)))
    with opened(tmp_path) as ledger:
        assert ledger.context(1) == read
        assert ledger.context(1).boards["arcade"].reading(AT).utc_offset_s == -12_600


def test_metadata_is_kept_apart_and_checked(tmp_path: Path) -> None:
    with opened(tmp_path) as ledger:
        ledger.append(draft(scores(ledger, ("alice", 1), ("bob", 2)), metadata={1: '{"car":"röt"}'}))
        assert ledger.metadata([1, 2, 3]) == {2: '{"car":"röt"}'}
        assert ledger.metadata([]) == {}

        tamper(tmp_path, "UPDATE metadata SET json = replace(json, 'r', 'g')")
        assert everything(ledger)
        with pytest.raises(LedgerDamaged, match="metadata of event 2"):
            ledger.metadata([2])


def test_a_player_can_be_erased_without_breaking_a_seal(tmp_path: Path) -> None:
    with opened(tmp_path) as ledger:
        ledger.append(draft(scores(ledger, ("alice", 1)), metadata={0: '{"name":"Alice"}'}))
    tamper(tmp_path, "UPDATE players SET id = 'erased-1' WHERE id = 'alice'")
    tamper(tmp_path, "DELETE FROM metadata")
    with opened(tmp_path) as ledger:
        assert [list(stretch.players) for stretch in everything(ledger)] == [["erased-1"]]


def test_a_person_can_read_the_events(tmp_path: Path) -> None:
    with opened(tmp_path) as ledger:
        ledger.append(
            draft(scores(ledger, ("alice", 976), at=AT + 5, detail=[Detail(attributes={"country": "BR"})]),
                  metadata={0: '{"car":"red"}'})
        )  # fmt: skip
        ledger.append(draft(about_no_player(ledger, Kind.RESET)))
    (score, emptied) = ask(
        tmp_path, "SELECT sequence, kind, board, at, player, score, detail, metadata, sender FROM readable_events"
    )

    assert score[:6] == (1, "score", "arcade", "2026-05-04T12:00:00.005Z", "alice", 976)
    assert json.loads(str(score[6])) == {"attributes": {"country": "BR"}}
    assert score[7:] == ('{"car":"red"}', "local")
    assert (emptied[1], emptied[4], emptied[8]) == ("reset", None, "admin")


def test_requests_are_remembered_with_their_events(tmp_path: Path) -> None:
    with opened(tmp_path) as ledger:
        ledger.append(draft(scores(ledger, ("alice", 1))))
        made = draft(scores(ledger, ("bob", 1), ("carol", 2), ("dan", 3)),
                     requests=[(request("one"), 0, 2), (request("two", "other"), 2, 1)])  # fmt: skip
        ledger.append(made)
    with opened(tmp_path) as ledger:
        one, two = ledger.request("local", "one"), ledger.request("other", "two")
        assert one is not None
        assert two is not None
        assert (one.first, one.upto, one.fingerprint, one.at, one.answer) == (2, 3, b"print", AT, None)
        assert (two.first, two.upto) == (4, 4)
        assert ledger.request("other", "one") is None


def test_an_answer_is_added_once_it_is_known(tmp_path: Path) -> None:
    with opened(tmp_path) as ledger:
        ledger.append(draft(scores(ledger, ("alice", 1)), requests=[(request("one"), 0, 1)]))
        ledger.append(draft(answers=[("local", "one", b"first")]))
        ledger.append(draft(answers=[("local", "one", b"second"), ("local", "unknown", b"x")]))

        found = ledger.request("local", "one")
        assert found is not None
        assert found.answer == b"first"
        assert ledger.head().sequence == 1


def test_requests_are_forgotten_oldest_first_and_some_at_a_time(tmp_path: Path) -> None:
    with opened(tmp_path) as ledger:
        for number in range(6):
            at = AT + number
            one = request(f"k{number}", at=at)
            ledger.append(draft(scores(ledger, ("alice", number)), requests=[(one, 0, 1)], at=at))

        assert ledger.forget_requests(AT + 5, 3) == 3
        assert ledger.request("local", "k2") is None
        assert ledger.request("local", "k3") is not None
        assert ledger.forget_requests(AT + 5, 3) == 2
        assert ledger.forget_requests(AT + 5, 3) == 0
        assert ledger.request("local", "k5") is not None


def test_every_definition_there_was_can_be_read(tmp_path: Path) -> None:
    with opened(tmp_path) as ledger:
        first, second = (
            about_no_player(ledger, Kind.DEFINE, version, Detail(definition={"title": f"v{version}"}))
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

        def found(reader: SqliteLedger, player: str, **about: Any) -> list[tuple[int, int | None]]:
            return [(one.sequence, one.score) for one in reader.history(player, **{"limit": 1_000, **about})]

        for player in ("p0", "p1", "p2", "p3", "p4", "nobody"):
            own = [(sequence, score) for sequence, (who, score) in enumerate(sent, start=1) if who == player][::-1]
            assert found(ledger, player) == own
            assert found(ledger, player, limit=3) == own[:3]
            assert found(ledger, player, before=20) == [one for one in own if one[0] < 20]
            with opened(tmp_path) as again:
                assert found(again, player) == own


def test_an_event_in_a_players_history_says_what_it_was(tmp_path: Path) -> None:
    with opened(tmp_path) as ledger:
        detail = Detail(attributes={"country": "BR"}, has_metadata=True)
        ledger.append(draft(scores(ledger, ("alice", 5), detail=[detail]), metadata={0: '{"car":"red"}'}))
        removed = scores(ledger, ("alice", 0), context=Context(Kind.REMOVE, "arcade", "admin", {"arcade": Accepted(1)}))
        ledger.append(draft(removed))
        taken_out, scored = ledger.history("alice", 10)

        assert (taken_out.kind, taken_out.score, taken_out.sender) == (Kind.REMOVE, None, "admin")
        assert (scored.kind, scored.board, scored.at, scored.score) == (Kind.SCORE, "arcade", AT, 5)
        assert (scored.attributes, scored.metadata) == ({"country": "BR"}, {"car": "red"})
