"""One API process writes to the shared ledger: keys cost nothing until they repeat, and no other work is in the way."""

from __future__ import annotations

import threading
from array import array
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.committing import commit_together
from tests.servers.waiting import join_all, wait_until

from rankd.clock import ManualClock
from rankd.errors import BoardClosed, Forbidden, InvalidValue, KeyReused, LedgerUnavailable
from rankd.intake import definitions as definitions_module
from rankd.intake.changes import Changes
from rankd.intake.definitions import Definitions
from rankd.intake.newcomers import Newcomers
from rankd.intake.results import Accepted
from rankd.intake.scores import ScoreTask
from rankd.intake.sender import Sender
from rankd.intake.writer import Writer
from rankd.ledger.port import Appended, DefinitionsChanged, Draft, StoredRequest
from rankd.ledger.postgres.ledger import PostgresLedger
from rankd.node import ledger_upkeep as upkeep_module
from rankd.node.shared_stores import SharedStores
from rankd.node.thin import Thin
from rankd.registry.port import Profile
from rankd.registry.postgres.registry import PostgresRegistry
from rankd.settings import read_settings

NOON = 1_777_896_000_000
ADMIN = Sender("admin", "admin")
INSTANCES_MAX = 6  # that one event may touch


class CountingLedger(PostgresLedger):
    """Tells how often it was asked."""

    appends = 0
    lookups = 0

    def append(self, draft: Draft) -> Appended:
        self.appends += 1
        return super().append(draft)

    def requests(self, keys: Collection[tuple[str, str]]) -> dict[tuple[str, str], StoredRequest]:
        self.lookups += bool(keys)
        return super().requests(keys)


class Process:
    """What of an API process writes."""

    def __init__(self, url: str, opened: ExitStack, clock: ManualClock) -> None:
        self.ledger = CountingLedger(url)
        opened.callback(self.ledger.close)
        self.definitions = Definitions(self.ledger)
        self.registry = PostgresRegistry(url, 1_000)
        opened.callback(self.registry.close)
        self.writer = Writer(self.ledger, self.definitions, self.registry, clock, read_settings({}))
        self.asked_whether_there = threading.Event()
        self.changes = Changes(
            self.writer,
            self.ledger,
            self.definitions,
            is_there=self._is_there,
            instances_per_event_max=INSTANCES_MAX,
        )

    def _is_there(self, _board: str, _player: str) -> bool:
        self.asked_whether_there.set()
        return True

    def send(self, *tasks: ScoreTask) -> list[Any]:
        """Commit tasks together; return the result or the error of each."""
        commit_together(self.writer.enqueue, tasks)
        return [task.result if task.error is None else task.error for task in tasks]


def score(player: str, points: int, key: str | None = None) -> ScoreTask:
    return ScoreTask("arcade", [player], array("q", [points]), sender=Sender("game", "game", key))


@pytest.fixture
def processes(postgres_url: str) -> Iterator[tuple[Process, Process]]:
    SharedStores(postgres_url).migrate()
    with ExitStack() as opened:
        first_process, second_process = (Process(postgres_url, opened, ManualClock(NOON)) for _ in range(2))
        first_process.changes.define("arcade", {}, ADMIN)
        second_process.definitions.catch_up()
        yield first_process, second_process


def test_keys_that_are_new_are_not_looked_up(processes: tuple[Process, Process]) -> None:
    first_process, _ = processes
    answers = first_process.send(*(score(f"p{number}", number, f"key-{number}") for number in range(50)))

    assert all(isinstance(answer, Accepted) and not answer.repeated for answer in answers)
    assert (first_process.ledger.appends, first_process.ledger.lookups) == (1, 0)


def test_repeats_among_new_requests_are_found_in_one_query(processes: tuple[Process, Process]) -> None:
    first_process, second_process = processes
    (first, second) = first_process.send(score("alice", 1, "a"), score("bob", 2, "b"))
    answers = second_process.send(
        score("alice", 1, "a"), score("carol", 3, "c"), score("bob", 9, "b"), score("carol", 3, "c"), score("dave", 4)
    )

    assert (answers[0].position, answers[0].repeated) == (first.position, True)
    assert not answers[1].repeated
    assert isinstance(answers[2], KeyReused)
    assert (answers[3].position, answers[3].repeated) == (answers[1].position, True)
    assert not answers[4].repeated
    assert second.position != first.position
    assert second_process.ledger.appends == 2  # of which the first was refused
    assert sum(first_process.ledger.heads().sequences) - first_process.ledger.partitions == 4


def test_repeats_that_come_in_crowds_are_looked_up_before_anything_is_written(
    processes: tuple[Process, Process],
) -> None:
    first_process, second_process = processes
    first_process.send(*(score("alice", number, f"k{number}") for number in range(20)))
    for number in range(20):
        (answer,) = second_process.send(score("alice", number, f"k{number}"))
        assert answer.repeated
    assert second_process.ledger.appends == 1


def test_a_repeat_is_answered_on_a_board_that_takes_no_scores_any_more(processes: tuple[Process, Process]) -> None:
    first_process, second_process = processes
    (first,) = first_process.send(score("alice", 1, "a"))
    first_process.changes.define("arcade", {"open": False}, ADMIN)

    repeated, late, reused, unkeyed = second_process.send(
        score("alice", 1, "a"), score("bob", 1, "b"), score("bob", 1, "a"), score("bob", 1)
    )
    assert (repeated.position, repeated.repeated) == (first.position, True)
    assert isinstance(late, BoardClosed)
    assert isinstance(reused, KeyReused)
    assert isinstance(unkeyed, BoardClosed)


def test_a_board_that_another_process_deleted_has_no_version(processes: tuple[Process, Process]) -> None:
    first_process, second_process = processes
    first_process.changes.delete("arcade", ADMIN)
    assert ("arcade" in second_process.definitions.boards, second_process.definitions.version_of("arcade")) == (True, 1)
    second_process.definitions.catch_up()

    assert "arcade" not in second_process.definitions.boards
    with pytest.raises(DefinitionsChanged):
        second_process.definitions.version_of("arcade")


def test_a_board_deleted_by_another_process_refuses_its_own_scores_alone(processes: tuple[Process, Process]) -> None:
    first_process, second_process = processes
    first_process.changes.define("other", {"scopes": ["country"]}, ADMIN)
    second_process.definitions.catch_up()
    board = second_process.definitions.boards["arcade"]
    first_process.changes.delete("arcade", ADMIN)
    tasks = [
        ScoreTask("arcade", ["alice"], array("q", [1]), board=board, sender=Sender("game", "game")),
        ScoreTask("other", ["alice"], array("q", [1]), attributes=[{"country": "BR"}], sender=Sender("game", "game")),
    ]
    refused, taken = second_process.send(*tasks)

    assert "there is no board" in str(refused)
    assert isinstance(taken, Accepted)


def test_definitions_are_read_in_pages(processes: tuple[Process, Process], monkeypatch: pytest.MonkeyPatch) -> None:
    first_process, second_process = processes
    for number in range(5):
        first_process.changes.define(f"b{number}", {}, ADMIN)
    monkeypatch.setattr(definitions_module, "CONTROLS_MAX", 2)

    assert second_process.definitions.catch_up()
    assert len(second_process.definitions.boards) == 6
    assert not second_process.definitions.catch_up()


def test_what_one_event_may_touch_is_limited_whoever_defined_the_board_that_is_fed(
    processes: tuple[Process, Process],
) -> None:
    first_process, second_process = processes
    windows = ["all_time", "daily"]
    first_process.changes.define("xp", {"windows": windows}, ADMIN)
    second_process.changes.define("frame", {"windows": windows, "scopes": ["country"], "feeds": ["xp"]}, ADMIN)

    for definition in ({"windows": windows, "scopes": ["country"]}, {"windows": [*windows, "weekly"]}):
        with pytest.raises(InvalidValue, match=r"one event of frame touch [78] instances, and 6 is the most"):
            first_process.changes.define("xp", definition, ADMIN)
    with pytest.raises(InvalidValue, match="one event of frame touch 8 instances, and 6 is the most"):
        first_process.changes.define(
            "frame", {"windows": windows, "scopes": ["country", "level"], "feeds": ["xp"]}, ADMIN
        )


def test_profiles_are_stored_and_players_looked_for_while_scores_are_committed(
    processes: tuple[Process, Process],
) -> None:
    first_process, _ = processes
    is_committing, may_end = threading.Event(), threading.Event()

    def commit() -> None:
        is_committing.set()
        assert may_end.wait(30)

    committing = threading.Thread(target=lambda: first_process.writer.run_for(commit))
    removing = threading.Thread(target=lambda: first_process.changes.remove("arcade", "alice", ADMIN))
    committing.start()
    try:
        assert is_committing.wait(30)
        first_process.changes.register(
            lambda: first_process.registry.set_profile(Profile("alice", "Alice")), "said", ADMIN
        )
        assert first_process.registry.profile("alice") == Profile("alice", "Alice")
        removing.start()
        assert first_process.asked_whether_there.wait(30)
    finally:
        may_end.set()
        join_all([committing, removing])


def test_a_profile_is_stored_once_under_its_key(processes: tuple[Process, Process]) -> None:
    first_process, second_process = processes
    keyed, stored = Sender("admin", "admin", "k"), []
    first_process.changes.register(lambda: stored.append("one"), "said", keyed)
    second_process.changes.register(lambda: stored.append("other"), "said", keyed)
    with pytest.raises(KeyReused):
        second_process.changes.register(lambda: stored.append("another"), "said otherwise", keyed)
    assert stored == ["one"]


def test_newcomers_who_could_not_be_met_are_met_later(
    processes: tuple[Process, Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    first_process, _ = processes
    monkeypatch.setattr(upkeep_module, "UPKEEP_EVERY_S", 0.01)
    met: list[str] = []
    failures = iter([LedgerUnavailable("away"), LedgerUnavailable("still away")])

    def meet(players: Sequence[str]) -> None:
        if players and (problem := next(failures, None)) is not None:
            raise problem
        met.extend(players)

    running = _running(first_process, meet)
    try:
        commit_together(running.writer.enqueue, [score("alice", 1), score("bob", 2)])
        wait_until(lambda: met == ["alice", "bob"])
    finally:
        running.close()


def test_newcomers_are_not_gathered_without_end() -> None:
    newcomers = Newcomers(3)
    newcomers.see([f"p{number}" for number in range(10)])
    assert newcomers.take() == ["p0", "p1", "p2"]
    newcomers.see(["p9"])
    assert newcomers.take() == ["p9"]


def test_a_board_that_another_process_defined_with_signing_takes_nothing_unsigned(
    processes: tuple[Process, Process],
) -> None:
    first_process, second_process = processes
    first_process.changes.define("relayed", {"signing": "relay"}, ADMIN)  # which the other has not heard of
    senders = [Sender("game", f"game-{signing}", "k", signing=signing, is_local=False) for signing in (None, "relay")]
    answers = second_process.send(
        *(ScoreTask("relayed", ["alice"], array("q", [5]), sender=sender) for sender in senders)
    )

    assert [type(answer) for answer in answers] == [Forbidden, Accepted]


def test_a_board_that_is_not_signed_cannot_feed_one_that_is(processes: tuple[Process, Process]) -> None:
    first_process, second_process = processes
    first_process.changes.define("relayed", {"signing": "relay"}, ADMIN)
    for definition in ({"feeds": ["relayed"]}, {"feeds": ["relayed"], "signing": "another"}):
        with pytest.raises(InvalidValue, match="feeds: frame feeds relayed, which takes only submissions signed with"):
            second_process.changes.define("frame", definition, ADMIN)
    with pytest.raises(InvalidValue, match="feeds: arcade feeds relayed"):
        second_process.changes.define("arcade", {"feeds": ["relayed"]}, ADMIN)

    assert second_process.changes.define("frame", {"feeds": ["relayed"], "signing": "relay"}, ADMIN).changed


def test_all_requests_whose_time_is_over_are_forgotten_at_once(
    processes: tuple[Process, Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    first_process, _ = processes
    monkeypatch.setattr(upkeep_module, "UPKEEP_EVERY_S", 3_600)
    monkeypatch.setattr(upkeep_module, "REQUESTS_FORGOTTEN_AT_ONCE", 2)
    keys = [f"k{number}" for number in range(7)]
    running = _running(first_process)
    try:
        first_process.send(*(score("alice", 1, key) for key in keys))
        running._upkeep._clock = ManualClock(NOON + running.settings.idempotency_ttl_ms + 1)
        running._upkeep._forget_requests()
        assert first_process.ledger.requests([("game", key) for key in keys]) == {}
    finally:
        running.close()


def _running(process: Process, meet: Any = lambda _players: None) -> Thin:
    return Thin(
        process.ledger,
        process.definitions,
        process.registry,
        cast(Any, SimpleNamespace(open_ranks=None)),
        clock=ManualClock(NOON),
        settings=read_settings({}),
        close_parts=lambda: None,
        meet=meet,
    )
