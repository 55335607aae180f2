"""Who did what: every ledger that finds history answers queries as a list of all its events would."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pytest
from tests.contract.ledger_drafts import AT, PLAYERS, keyed, scores
from tests.contract.ledger_places import LedgerPlace

from rankd.domain.partition import partition_of
from rankd.ledger.audit import AuditedEvent, AuditMark, AuditQuery
from rankd.ledger.event import AcceptanceContext, Context, Detail, EventKind
from rankd.ledger.origin import OriginSpan, RequestOrigin
from rankd.ledger.port import ControlEvent, Draft, Ledger

pytestmark = pytest.mark.capability("finds_history")
BOARDS = ["arcade", "guilds", "words"]
SENDERS = ["server-1", "server-2", "player:ö"]
DAY_MS = 86_400_000


class Sent(NamedTuple):
    """One event as it was sent."""

    committed: int
    partition: int
    sequence: int
    kind: EventKind
    board: str
    sender: str
    player: str
    score: int
    origin: RequestOrigin | None


def context_of(kind: EventKind, board: str, sender: str) -> Context:
    return Context(kind, board, sender, {board: AcceptanceContext(1)})


def written(ledger: Ledger, rng: random.Random, commits: int, *, at: int = AT) -> list[Sent]:
    """Append commits of every kind; return all their events, the newest first."""
    sent: list[Sent] = []
    seen = 0
    for number in range(commits):
        at += rng.choice([0, 0, 1, 1_000, DAY_MS])
        board, sender = rng.choice(BOARDS), rng.choice(SENDERS)
        origin = rng.choice(
            [None, RequestOrigin(f"192.0.2.{number}"), RequestOrigin("2001:db8::1", "game/1 ö\ufffd", f"r-{number}")]
        )
        if rng.random() < 0.2:
            kind = rng.choice([EventKind.DEFINE, EventKind.RESET, EventKind.MIDNIGHT, EventKind.CLOSE])
            event = ControlEvent(context_of(kind, board, sender), Detail(window="daily:x"), at)
            (made,) = ledger.append_control([event], seen, keyed(f"k-{number}", 0, 1), at=at, origin=origin)
            seen += not ledger.capabilities.is_sole_writer
            sent.append(Sent(at, 0, made.sequences[0], kind, board, sender, "", 0, origin))
            continue
        kind = rng.choice([EventKind.SCORE, EventKind.SCORE, EventKind.REMOVE])
        events = [(rng.choice(PLAYERS), rng.randrange(100)) for _ in range(rng.randint(1, 8))]
        first = rng.randrange(len(events))
        spans = [] if origin is None else [OriginSpan(origin, first, len(events) - first)]
        run = scores(ledger, *events, context=context_of(kind, board, sender), at=at - rng.choice([0, 5_000]))
        appended = ledger.append(Draft([run], at, seen, origins=spans))
        for index, (player, score) in enumerate(events):
            partition, sequence = appended.place(index)
            where = origin if index >= first else None
            sent.append(Sent(at, partition, sequence, kind, board, sender, player, score, where))
    return sorted(sent, key=lambda event: event[:3], reverse=True)


def as_sent(event: AuditedEvent) -> Sent:
    run, context = event.event_run, event.context
    return Sent(
        event.committed,
        run.partition,
        run.first,
        context.kind,
        context.board,
        context.sender,
        run.players[0],
        run.score[0],
        event.origin,
    )


def pages(ledger: Ledger, query: AuditQuery) -> Iterator[Sequence[AuditedEvent]]:
    mark: AuditMark | None = None
    for _ in range(2_000):
        page = ledger.audit(query, mark)
        yield page.events
        mark = page.next
        if mark is None:
            return
    raise AssertionError("the pages do not end")


def expected(sent: Sequence[Sent], query: AuditQuery) -> list[Sent]:
    """Return what a query asks for, by looking at everything."""
    return [
        event
        for event in sent
        if (query.player is None or event.player == query.player)
        and (query.board is None or event.board == query.board)
        and (query.kind is None or event.kind is query.kind)
        and (query.sender is None or event.sender == query.sender)
        and (query.since is None or event.committed >= query.since)
        and (query.until is None or event.committed <= query.until)
    ]


def random_query(rng: random.Random, sent: Sequence[Sent]) -> AuditQuery:
    def sometimes(share: float, *values: object) -> object:
        return rng.choice(values) if rng.random() < share else None

    times = [rng.choice(sent).committed + rng.choice([-1, 0, 1]) for _ in range(2)]
    return AuditQuery(
        rng.choice([3, 7, 50]),
        sometimes(0.3, *PLAYERS, "nobody"),  # type: ignore[arg-type]
        sometimes(0.4, *BOARDS, "unknown"),  # type: ignore[arg-type]
        sometimes(0.4, *EventKind),  # type: ignore[arg-type]
        sometimes(0.3, *SENDERS),  # type: ignore[arg-type]
        sometimes(0.3, min(times)),  # type: ignore[arg-type]
        sometimes(0.3, max(times)),  # type: ignore[arg-type]
    )


def test_every_query_finds_what_a_look_at_everything_finds(ledger: Ledger, ledger_place: LedgerPlace) -> None:
    rng = random.Random(19)
    sent = written(ledger, rng, 80)
    for checked in ledger_place.now_and_reopened(ledger):
        for _ in range(20):
            query = random_query(rng, sent)
            assert [as_sent(event) for page in pages(checked, query) for event in page] == expected(sent, query), query


def test_a_page_looks_at_a_bounded_number_of_events_and_goes_on(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(5)
    sent = written(ledger, rng, 60)
    for module in ("sqlite", "postgres"):
        path = f"rankd.ledger.{module}.auditing"
        monkeypatch.setattr(f"{path}.LOOKED_AT_MAX", 20)
        monkeypatch.setattr(f"{path}.OF_PLAYER_MAX", 3)
        monkeypatch.setattr(f"{path}._STEP_FIRST", 6)
    queries = [
        AuditQuery(50, board="words", sender="server-1"),
        AuditQuery(50, kind=EventKind.REMOVE, board="guilds"),
        AuditQuery(50, player=sent[-1].player, board="arcade"),
        AuditQuery(50, kind=EventKind.RESET),
        AuditQuery(50, board="unknown"),
    ]
    for query in queries:
        taken = list(pages(ledger, query))
        assert [as_sent(event) for page in taken for event in page] == expected(sent, query), query
    assert len(taken) > 3  # an unknown board takes as many as there are steps
    assert not any(taken)


def test_what_is_appended_meanwhile_does_not_shift_the_pages(ledger: Ledger) -> None:
    rng = random.Random(3)
    sent = written(ledger, rng, 40)
    query = AuditQuery(5, board="arcade")
    first = ledger.audit(query)
    seen = ledger.heads().control
    ledger.append(Draft([scores(ledger, ("alice", 1))], AT + 1_000 * DAY_MS, seen))
    rest = []
    mark = first.next
    while mark is not None:
        page = ledger.audit(query, mark)
        rest += page.events
        mark = page.next
    assert [as_sent(event) for event in [*first.events, *rest]] == expected(sent, query)


def test_a_players_events_and_a_boards_control_events_are_in_the_players_order(ledger: Ledger) -> None:
    rng = random.Random(11)
    sent = written(ledger, rng, 60)
    players = dict.fromkeys((*PLAYERS[:5], "nobody"), 1 << 40)
    taken = dict(ledger.events_of(players, 1_000))
    for player in PLAYERS[:5]:
        of_player = [event for event in sent if event.player == player]
        assert [(run.first, run.players[0]) for run in taken[player]] == [(e.sequence, player) for e in of_player]
        assert [len(run) for run in taken[player]] == [1] * len(of_player)
        middle = of_player[len(of_player) // 2].sequence
        ((_, earlier),) = ledger.events_of({player: middle}, 2)
        assert [run.first for run in earlier] == [e.sequence for e in of_player if e.sequence < middle][:2]
        partition = partition_of(player, ledger.partitions)
        controls = ledger.controls_of("arcade", partition) or []
        kinds = [ledger.context(run.context).kind for run in controls]
        of_board = [e for e in reversed(sent) if e.board == "arcade" and not e.player]
        assert kinds == [e.kind for e in of_board if e.kind is not EventKind.MIDNIGHT]
        assert [run.first for run in controls] == sorted(run.first for run in controls)
    assert list(taken.get("nobody", ())) == []


def test_a_mark_that_nobody_gave_finds_no_more_than_there_is(ledger: Ledger) -> None:
    sent = written(ledger, random.Random(1), 10)
    for mark in (AuditMark(2**61, 900, 2**61), AuditMark(-1, -1, -1), AuditMark(AT, 2**61, 0), AuditMark(0, 0, 2**61)):
        page = ledger.audit(AuditQuery(1_000), mark)
        assert {as_sent(event) for event in page.events} <= set(sent)
