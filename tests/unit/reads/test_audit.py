"""What the audit says that an event changed is what its sender was answered."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

import rankd
from rankd.errors import BoardUnknown, InvalidValue, RankdError
from rankd.intake.sender import Sender
from rankd.ledger.event import EventKind
from rankd.ledger.origin import RequestOrigin, readable_user_agent
from rankd.reads import audit
from rankd.reads.audit import AuditEntry, AuditPage

NOON = 1_777_896_000_000  # 2026-05-04T12:00:00Z, a Monday
HOUR_MS = 3_600_000
DEFINITIONS: dict[str, dict[str, object]] = {
    "best": {"keep": "best", "windows": ["all_time", "weekly"]},
    "sum": {"keep": "sum", "windows": ["daily", "all_time"], "score_min": -50, "score_max": 120},
    "latest": {"keep": "latest", "ties": "value", "windows": ["weekly"], "scopes": ["country"]},
    "first": {"keep": "first", "order": "asc", "windows": ["hourly", "weekly"]},
    "rolled": {"keep": {"weekly": "sum_of_daily", "daily": "best"}, "windows": ["weekly", "daily"], "retention": "2d"},
    "decaying": {
        "keep": "best",
        "windows": ["all_time"],
        "decay": {"factor": 0.9, "every": "1d"},
        "score_min": 1,
        "ties": "player",
    },
    "feeding": {"keep": "best", "windows": ["all_time"], "feeds": ["sum", "latest"]},
}
PLAYERS = ["alice", "bob", "carol"]


@pytest.fixture
def clock() -> rankd.ManualClock:
    return rankd.ManualClock(NOON)


@pytest.fixture
def boards(tmp_path: Path, clock: rankd.ManualClock) -> Iterator[rankd.Boards]:
    with rankd.open(tmp_path, clock=clock) as opened:
        yield opened


def every_entry(boards: rankd.Boards, **asked: object) -> list[AuditEntry]:
    entries: list[AuditEntry] = []
    cursor = None
    for _ in range(10_000):
        page: AuditPage = boards.audit(cursor=cursor, **asked)  # type: ignore[arg-type]
        entries += page.events
        cursor = page.next
        if cursor is None:
            return entries
    raise AssertionError("the pages do not end")


def play(
    boards: rankd.Boards, clock: rankd.ManualClock, rng: random.Random, steps: int
) -> dict[str, tuple[object, ...]]:
    """Play on all boards; return old and new score by the position of each event."""
    answered: dict[str, tuple[object, ...]] = {}
    for _ in range(steps):
        clock.advance(rng.choice([1, 1_000, HOUR_MS // 3, 7 * HOUR_MS]))
        board, player = rng.choice(list(DEFINITIONS)), rng.choice(PLAYERS)
        chance = rng.random()
        if chance < 0.06:
            before = boards.rank(board, player)
            removed = boards.remove(board, player)
            answered[removed.position] = (None if before is None else before.score, None)
        elif chance < 0.1:
            boards.reset(board, rng.choice([None, *boards.board(board).all_windows]))
        elif chance < 0.12 and board in ("best", "latest"):
            boards.delete(board) if board == "best" else None
            boards.define(board, {**DEFINITIONS[board], "title": f"T{rng.random()}", "late_by": "1h"})
        else:
            at = clock.now() - rng.choice([0, 0, 1_000, 200_000])
            score = rng.randint(1, 60)
            try:
                sent = boards.submit(board, player, score, tiebreak=rng.randint(0, 3), at=at)
            except RankdError:
                continue  # its window is closed, or it is too late
            answered[sent.position] = (sent.previous_score, sent.score)
    return answered


@pytest.mark.parametrize("seed", range(4))
def test_the_scores_before_and_after_are_those_that_the_sender_was_answered(
    boards: rankd.Boards, clock: rankd.ManualClock, seed: int
) -> None:
    for name, definition in DEFINITIONS.items():
        boards.define(name, definition)
    answered = play(boards, clock, random.Random(seed), 250)
    entries = {entry.position: entry for entry in every_entry(boards, limit=70)}
    compared = 0
    for position, scores in answered.items():
        entry = entries[position]
        assert entry.unknown is None
        assert (entry.old_score, entry.new_score) == scores, entry
        compared += entry.old_score is not None
    assert compared > 100
    of_a_player = every_entry(boards, limit=9, player="alice")
    assert of_a_player == [entry for entry in entries.values() if entry.player == "alice"]


def test_boards_whose_entries_are_no_players_say_why_there_is_no_score(boards: rankd.Boards) -> None:
    boards.define("teams", team={"attribute": "guild", "by": "sum"})
    boards.define("countries", {"scopes": ["country"], "global": False})
    boards.submit("teams", "alice", 5, attributes={"guild": "red"})
    boards.submit("countries", "alice", 5, attributes={"country": "BR"})
    entries = boards.audit(kind="score").events
    assert [(entry.old_score, entry.new_score, entry.unknown) for entry in entries] == [
        (None, None, audit.NO_GLOBAL),
        (None, None, audit.TEAM),
    ]


def test_beyond_the_bound_of_earlier_events_a_reason_stands_in_place_of_scores(
    boards: rankd.Boards, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "EARLIER_EVENTS_MAX", 5)
    boards.define("arcade")
    boards.submit_many("arcade", [("alice", number) for number in range(5)])
    boards.submit("arcade", "bob", 1)
    assert [entry.unknown for entry in boards.audit(player="alice", limit=1).events] == [None]
    assert [entry.unknown for entry in boards.audit(kind="score", limit=2).events] == [None, audit.TOO_MANY]
    boards.submit("arcade", "alice", 9)
    entries = boards.audit(player="alice").events
    assert [entry.unknown for entry in entries] == [audit.TOO_MANY] * 6
    assert [entry.new_score for entry in entries] == [None] * 6


def test_a_change_of_a_board_has_its_sender_and_where_it_came_from(boards: rankd.Boards) -> None:
    origin = RequestOrigin("2001:db8::1", "console/3", "r-17")
    admin = Sender("admin", "admin", origin=origin)
    boards.define("arcade", sender=admin)
    boards.submit("arcade", "alice", 5)
    boards.remove("arcade", "alice", sender=admin)
    boards.reset("arcade", "all_time", sender=admin)
    boards.delete("arcade", sender=admin)
    taken = boards.audit(sender="admin").events
    assert [(entry.kind, entry.player, entry.window) for entry in taken] == [
        (EventKind.DELETE, None, None),
        (EventKind.RESET, None, "all_time"),
        (EventKind.REMOVE, "alice", "all_time"),
        (EventKind.DEFINE, None, None),
    ]
    assert {RequestOrigin(entry.address or "", entry.user_agent, entry.request_id) for entry in taken} == {origin}
    assert boards.audit(sender="local", board="arcade").events[0].address is None
    boards.verify()


def test_a_board_that_was_deleted_is_still_asked_for_and_one_that_never_was_is_refused(boards: rankd.Boards) -> None:
    boards.define("arcade")
    boards.delete("arcade")
    assert [entry.kind.value for entry in boards.audit(board="arcade").events] == ["delete", "define"]
    with pytest.raises(BoardUnknown):
        boards.audit(board="arcde")


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({"limit": 0}, "limit"),
        ({"limit": audit.LIMIT_MAX + 1}, "limit"),
        ({"kind": "scores"}, "kind"),
        ({"kind": ["score"]}, "kind"),
        ({"player": ""}, "player"),
        ({"board": "no board"}, "board"),
        ({"sender": "x" * 129}, "sender"),
        ({"since": -1}, "since"),
        ({"until": 2**70}, "until"),
        ({"since": 5, "until": 4}, "until"),
        *(
            ({"cursor": text}, "cursor")
            for text in ("", "ä", "!", "k" * 200, "kwAA", "lAAAAAA", "k8CAwA", "kw--", "kwAAxgA")
        ),
    ],
)
def test_what_is_asked_wrongly_is_refused_by_its_name(
    boards: rankd.Boards, asked: dict[str, object], field: str
) -> None:
    with pytest.raises(InvalidValue) as refusal:
        boards.audit(**asked)  # type: ignore[arg-type]
    assert refusal.value.field == field


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        (None, None),
        (b"", None),
        (b"game/1.2 (\xc3\xb6)", "game/1.2 (ö)"),
        (b"\x00\r\n\x1b[2J", "\ufffd\ufffd\ufffd\ufffd[2J"),
        (b"\xff\xfe", "\ufffd\ufffd"),
        ("\u202eevil".encode(), "\ufffdevil"),
        (b"a" * 100_000, "a" * 256),
        ("😀".encode() * 1_000, "😀" * 256),
    ],
)
def test_a_user_agent_is_one_readable_line_of_bounded_length(sent: bytes | None, kept: str | None) -> None:
    assert readable_user_agent(sent) == kept


def test_events_of_one_player_are_applied_once_for_each_board(
    boards: rankd.Boards, monkeypatch: pytest.MonkeyPatch
) -> None:
    boards.define("arcade")
    boards.define("words", keep="sum")
    read: list[Sequence[str]] = []
    original: Callable[..., object] = type(boards._backend._ledger).events_of  # type: ignore[attr-defined]

    def events_of(ledger: object, players: dict[str, int], events_max: int) -> object:
        read.append([*players])
        return original(ledger, players, events_max)

    monkeypatch.setattr(type(boards._backend._ledger), "events_of", events_of)  # type: ignore[attr-defined]
    for number in range(5):
        boards.submit("arcade", "alice", number)
        boards.submit("words", "alice", number)
    entries = boards.audit(player="alice").events
    assert [(entry.old_score, entry.new_score) for entry in entries if entry.board == "words"] == [
        (6, 10),
        (3, 6),
        (1, 3),
        (0, 1),
        (None, 0),
    ]
    assert next((entry.old_score, entry.new_score) for entry in entries if entry.board == "arcade") == (3, 4)
    assert read == [["alice"]]
