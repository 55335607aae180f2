"""A registry that several processes share: each notices what the others change, also when PostgreSQL was away."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import psycopg
import pytest
from tests.servers.postgres import PostgresServer
from tests.servers.waiting import WAIT_S, join_all, wait_until

from rankd.errors import LedgerNewer, LedgerUnavailable
from rankd.ledger.postgres.ledger import migrate as migrate_ledger
from rankd.ledger.postgres.migrations import migrate_component, scripts_of
from rankd.registry.port import Profile
from rankd.registry.postgres import registry as postgres
from rankd.registry.postgres import watch as postgres_watch
from rankd.registry.postgres.registry import COMPONENT, POLL_EVERY_MS, PostgresRegistry, migrate_registry

ALICE = Profile("alice", "Alice", country="BR")
NOTE = "INSERT INTO rankd.registry_changes (player) VALUES ('alice')"
RENAME = "UPDATE rankd.registry_profiles SET name = 'Al' WHERE player = 'alice'"

OpenShared = Callable[..., PostgresRegistry]


@pytest.fixture
def open_thin(registry_url: str) -> Iterator[OpenShared]:
    """Open the registry as a further process would, which looks for changes at short intervals."""
    with ExitStack() as closing:

        def make(url: str = registry_url, poll_every_ms: int = 20) -> PostgresRegistry:
            registry = PostgresRegistry(url, 100, poll_every_ms)
            closing.callback(registry.close)
            return registry

        yield make


def test_others_notice_a_change(open_thin: OpenShared) -> None:
    writer, reader = open_thin(), open_thin()
    assert reader.profile("alice") is None
    assert reader.friends("alice") == []
    before = reader.changes

    writer.set_profile(ALICE)
    writer.set_friends("alice", ["bob"])
    wait_until(lambda: reader.profile("alice") == ALICE and reader.friends("alice") == ["bob"])
    assert reader.attributes(["alice"]) == {"alice": {"country": "BR"}}
    assert reader.changes > before

    between = reader.changes
    writer.set_profile(Profile("alice", "Al", country="PT"))
    wait_until(lambda: reader.attributes(["alice"]) == {"alice": {"country": "PT"}})
    assert reader.changes > between


def test_others_notice_who_is_a_mutual_friend_no_longer(open_thin: OpenShared) -> None:
    writer, reader = open_thin(), open_thin()
    writer.set_friends("alice", ["bob"])
    writer.set_friends("bob", ["alice"])
    wait_until(lambda: reader.mutual_friends("alice") == ["bob"])
    writer.set_friends("bob", ["carol"])
    wait_until(lambda: reader.mutual_friends("alice") == [])


def test_others_notice_within_about_a_second(open_thin: OpenShared) -> None:
    assert POLL_EVERY_MS <= 1_000
    writer, reader = open_thin(), open_thin(poll_every_ms=POLL_EVERY_MS)
    assert reader.profiles(["alice"]) == {}

    writer.set_profile(ALICE)
    wait_until(lambda: reader.profiles(["alice"]) == {"alice": ALICE})


def test_what_nobody_changed_stays_in_memory(open_thin: OpenShared) -> None:
    writer, reader = open_thin(), open_thin()
    writer.set_profile(ALICE)
    writer.set_profile(Profile("bob"))
    let_notice(reader)
    held = reader.profile("alice")

    writer.set_profile(Profile("bob", "Bob"))
    wait_until(lambda: reader.profile("bob") == Profile("bob", "Bob"))
    assert reader.profile("alice") is held


def test_a_change_that_began_early_and_committed_late_is_noticed(open_thin: OpenShared, registry_url: str) -> None:
    writer, reader = open_thin(), open_thin()
    writer.set_profile(ALICE)
    let_notice(reader)
    assert reader.profile("alice") == ALICE
    with psycopg.connect(registry_url) as late:
        late.execute(RENAME)
        late.execute(NOTE)
        for number in range(3):  # later transactions are seen before it
            writer.set_profile(Profile("bob", str(number)))
            wait_until(lambda expected=str(number): named(reader, "bob") == expected)  # type: ignore[misc]
        assert reader.profile("alice") == ALICE
        late.commit()

    wait_until(lambda: named(reader, "alice") == "Al")


def let_notice(reader: PostgresRegistry) -> None:
    """Return when a reader has noticed all that was written so far, and forgets nothing of it later."""
    now = time.monotonic()
    wait_until(lambda: reader._watch._polled_at > now)


def named(registry: PostgresRegistry, player: str) -> str | None:
    profile = registry.profile(player)
    return None if profile is None else profile.name


def test_very_many_changes_at_once_are_noticed_too(open_thin: OpenShared, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_watch, "NOTICED_MAX", 2)
    writer, reader = open_thin(), open_thin()
    players = [f"p{number}" for number in range(10)]
    assert reader.profiles(players) == {}

    for player in players:
        writer.set_profile(Profile(player, "somebody"))
    wait_until(lambda: len(reader.profiles(players)) == len(players))


def test_a_process_that_was_away_for_too_long_forgets_everything(
    open_thin: OpenShared, registry_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody kept for it what changed meanwhile."""
    registry = open_thin(poll_every_ms=1_000_000)
    registry.set_profile(ALICE)
    registry._watch._poll()  # its own change
    assert registry.profile("alice") == ALICE
    with psycopg.connect(registry_url) as connection:
        connection.execute(RENAME)

    registry._watch._poll()
    assert registry.profile("alice") == ALICE
    monkeypatch.setattr(postgres_watch, "AWAY_S_MAX", -1)
    registry._watch._poll()
    assert named(registry, "alice") == "Al"


def test_what_everybody_has_noticed_is_deleted(
    open_thin: OpenShared, registry_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = open_thin()
    registry.set_profile(ALICE)
    with psycopg.connect(registry_url, autocommit=True) as rank_source:
        count = "SELECT count(*) FROM rankd.registry_changes"
        registry._watch._prune()
        assert rank_source.execute(count).fetchone() == (1,)
        monkeypatch.setattr(postgres_watch, "KEPT_S", -1)
        registry._watch._prune()
        assert rank_source.execute(count).fetchone() == (0,)


def test_two_who_give_different_parts_of_a_profile_both_count(open_thin: OpenShared) -> None:
    parts = [Profile("alice", "Alice"), Profile("alice", country="BR"), Profile("alice", attributes={"level": "7"})]
    together = threading.Barrier(len(parts))

    def fill(registry: PostgresRegistry, part: Profile) -> None:
        together.wait(WAIT_S)
        registry.set_profile(part, only_given=True)

    registries = [open_thin() for _ in parts]
    run_at_once(
        [
            lambda registry=registry, part=part: fill(registry, part)  # type: ignore[misc]
            for registry, part in zip(registries, parts, strict=True)
        ]
    )

    assert open_thin().profile("alice") == Profile("alice", "Alice", country="BR", attributes={"level": "7"})


def test_players_who_were_met_are_found_by_id(open_thin: OpenShared) -> None:
    registry = open_thin()
    registry.meet(["zed", "alice", "zed", "al\\b%"])
    registry.meet([])
    registry.meet(["alice", "albert"])
    registry.set_profile(ALICE)

    assert [profile.player for profile in registry.search("al", 10)] == ["al\\b%", "albert", "alice"]
    assert registry.search("al", 10)[2] == ALICE
    assert registry.profile("zed") is None


def test_the_same_newcomers_may_be_met_in_any_order_at_once(open_thin: OpenShared) -> None:
    newcomers = [f"p{number}" for number in range(2_000)]
    first_registry, second_registry = open_thin(), open_thin()
    run_at_once(
        [
            lambda: first_registry.meet(newcomers),
            lambda: second_registry.meet(newcomers[::-1]),
            lambda: first_registry.set_profile(Profile("p1")),
            lambda: second_registry.set_profile(Profile("p2")),
        ]
    )

    assert len(first_registry.search("p", 10_000)) == len(newcomers)


FIRST = scripts_of("rankd.registry.postgres")[:1]
STORED = """
INSERT INTO rankd.registry_players VALUES ('alice'), ('bob'), ('carol'), ('dave'), ('erin'), ('zed');
INSERT INTO rankd.registry_profiles (player, name) VALUES ('bob', 'Bob');
INSERT INTO rankd.registry_friends VALUES ('alice', '{bob,carol,dave}'), ('zed', '{}');
"""
SCORED = """
INSERT INTO rankd.events (partition, sequence, committed, context, at, player, score, tiebreak)
VALUES (0, 1, 0, 1, 0, 'carol', 5, 0)
"""


def test_ids_that_only_lists_named_are_found_no_longer_after_a_migration(postgres_url: str) -> None:
    migrate_ledger(postgres_url)
    migrate_component(postgres_url, COMPONENT, FIRST)
    with psycopg.connect(postgres_url) as connection:
        connection.execute("CREATE TABLE rankd.events_1970 PARTITION OF rankd.events FOR VALUES FROM (0) TO (1)")
        connection.execute(STORED.encode())
        connection.execute(SCORED.encode())
    assert migrate_registry(postgres_url) == 1

    registry = PostgresRegistry(postgres_url, 100)
    try:
        profiles = [player for start in "abcdez" for player in registry.search(start, 10)]
        assert profiles == [Profile("bob", "Bob"), Profile("carol"), Profile("erin")]
        assert registry.friends("alice") == ["bob", "carol", "dave"]
    finally:
        registry.close()


def test_where_the_ledger_is_in_another_database_everybody_stays(postgres_url: str) -> None:
    migrate_component(postgres_url, COMPONENT, FIRST)
    with psycopg.connect(postgres_url) as connection:
        connection.execute(STORED.encode())
    migrate_registry(postgres_url)

    registry = PostgresRegistry(postgres_url, 100)
    try:
        assert len([player for start in "abcdez" for player in registry.search(start, 10)]) == 6
    finally:
        registry.close()


def test_while_postgres_is_away_memory_answers_and_writes_are_refused(
    own_postgres: PostgresServer, open_thin: OpenShared
) -> None:
    url = own_postgres.url(own_postgres.make_database())
    migrate_registry(url)
    registry, other = open_thin(url), open_thin(url)
    registry.set_profile(ALICE)
    registry.set_profile(Profile("bob", "Bob"))
    registry.set_friends("alice", ["bob"])
    let_notice(other)
    assert other.profile("alice") == ALICE
    assert other.friends("alice") == ["bob"]
    own_postgres.stop()

    assert other.profile("alice") == ALICE
    assert other.attributes(["alice"]) == {"alice": {"country": "BR"}}
    assert other.friends("alice") == ["bob"]
    assert other.profiles(["alice", "bob"]) == {"alice": ALICE}
    without_bob = other.changes
    for refused in (
        lambda: other.profile("bob"),
        lambda: other.attributes(["bob"]),
        lambda: other.friends("bob"),
        lambda: other.search("a", 10),
        lambda: other.set_profile(Profile("carol")),
        lambda: other.set_friends("carol", ["alice"]),
        lambda: other.meet(["carol"]),
    ):
        with pytest.raises(LedgerUnavailable):
            refused()

    own_postgres.start()
    wait_until(lambda: other.profiles(["alice", "bob"]) == {"alice": ALICE, "bob": Profile("bob", "Bob")})
    assert other.changes > without_bob  # so that nobody goes on showing what lacked a name
    registry.set_profile(Profile("alice", "Al"))
    wait_until(lambda: named(other, "alice") == "Al")


def test_a_score_is_not_counted_by_what_others_may_have_changed_long_ago(
    own_postgres: PostgresServer, open_thin: OpenShared
) -> None:
    url = own_postgres.url(own_postgres.make_database())
    migrate_registry(url)
    registry, other = open_thin(url), open_thin(url)
    other.set_profile(ALICE)
    let_notice(registry)
    assert registry.attributes(["alice"]) == {"alice": {"country": "BR"}}
    own_postgres.stop()
    registry._watch._fresh_s = 0.0

    assert registry.profile("alice") == ALICE
    with pytest.raises(LedgerUnavailable):
        registry.attributes(["alice"])


def test_a_server_that_hangs_holds_nobody_up_for_long(
    own_postgres: PostgresServer, open_thin: OpenShared, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "READ_WAIT_S", 0.3)
    url = own_postgres.url(own_postgres.make_database())
    migrate_registry(url)
    registry, other = open_thin(url), open_thin(url)
    other.set_profile(ALICE)
    other.set_profile(Profile("bob", "Bob"))
    let_notice(registry)
    assert registry.profile("alice") == ALICE
    own_postgres.pause()
    try:
        assert registry.profiles(["alice", "bob"]) == {"alice": ALICE}
        with pytest.raises(LedgerUnavailable, match="a moment ago"):
            registry.profile("bob")
    finally:
        own_postgres.resume()

    wait_until(lambda: len(registry.profiles(["alice", "bob"])) == 2)


def test_a_database_has_to_be_migrated_once(postgres_url: str) -> None:
    with pytest.raises(LedgerUnavailable, match="rankd migrate"):
        PostgresRegistry(postgres_url, 100)

    run_at_once([lambda: migrate_registry(postgres_url) for _ in range(4)])
    assert migrate_registry(postgres_url) == 2
    PostgresRegistry(postgres_url, 100).close()


def test_a_registry_of_a_newer_rankd_is_refused(postgres_url: str) -> None:
    migrate_registry(postgres_url)
    with psycopg.connect(postgres_url) as connection:
        connection.execute("UPDATE rankd.versions SET version = 9, usable_from = 9 WHERE component = 'registry'")

    with pytest.raises(LedgerNewer, match="upgrade rankd"):
        PostgresRegistry(postgres_url, 100)


def run_at_once(calls: list[Callable[[], object]]) -> None:
    """Make calls in threads of their own; the first failure is this one's."""
    problems: list[BaseException] = []

    def run(call: Callable[[], object]) -> None:
        try:
            call()
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=run, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    join_all(threads)
    if problems:
        raise problems[0]
