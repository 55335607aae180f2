"""What every registry promises: profiles and friends are durable, searches find, memory is bounded and never stale."""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Callable, Iterator, Sized
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.servers.load_bound import LoadBound
from tests.servers.waiting import join_all

from rankd.errors import Overloaded
from rankd.ledger.sqlite.database import Database
from rankd.ledger.sqlite.numbers import PlayerNumbers
from rankd.registry.port import Profile, Registry
from rankd.registry.postgres.registry import PostgresRegistry
from rankd.registry.sqlite.registry import SqliteRegistry

OpenRegistry = Callable[..., Registry]


@pytest.fixture(params=["sqlite", "postgres"])
def open_registry(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OpenRegistry]:
    """Open a registry with a memory of its own on the same store."""
    with ExitStack() as closing:

        def open_sqlite(profiles_cached_max: int = 100, **limits: int) -> Registry:
            database = Database(tmp_path)
            closing.callback(database.close)
            return SqliteRegistry(database, PlayerNumbers(database), profiles_cached_max, lambda _count: None, **limits)

        def open_postgres(profiles_cached_max: int = 100, **limits: int) -> Registry:
            registry = PostgresRegistry(request.getfixturevalue("registry_url"), profiles_cached_max, **limits)
            closing.callback(registry.close)
            return registry

        yield open_sqlite if request.param == "sqlite" else open_postgres


@pytest.fixture
def registry(open_registry: OpenRegistry) -> Registry:
    return open_registry()


def remembered(registry: Registry) -> Sized:
    assert isinstance(registry, SqliteRegistry | PostgresRegistry)
    return registry._cached if isinstance(registry, SqliteRegistry) else registry._profiles


def ids(profiles: list[Profile]) -> list[str]:
    return [profile.player for profile in profiles]


def test_nobody_has_a_profile_before_it_is_set(registry: Registry) -> None:
    assert registry.profile("alice") is None
    assert registry.profiles(["alice", "bob"]) == {}
    assert registry.attributes(["alice"]) == {}
    assert registry.friends("alice") == []
    assert registry.search("a", 10) == []


def test_a_profile_comes_back_whole_and_from_disk(registry: Registry, open_registry: OpenRegistry) -> None:
    whole = Profile("alice", "Älice “A”", "https://example.com/a.png", "BR", {"level": "7", "guild": "reds"})
    bare = Profile("bob")
    registry.set_profile(whole)
    registry.set_profile(bare)

    for instance in (registry, open_registry()):
        assert instance.profile("alice") == whole
        assert instance.profile("bob") == bare
        assert instance.profiles(["bob", "carol", "alice"]) == {"alice": whole, "bob": bare}


def test_a_profile_replaces_the_one_before(registry: Registry, open_registry: OpenRegistry) -> None:
    registry.set_profile(Profile("alice", "Alice", "https://example.com/a", "BR", {"level": "7"}))
    registry.set_profile(Profile("alice", "Al"))

    for instance in (registry, open_registry()):
        assert instance.profile("alice") == Profile("alice", "Al")
        assert instance.search("alice", 10) == [Profile("alice", "Al")]
        assert ids(instance.search("Ali", 10)) == []


def test_only_what_is_given_replaces_when_that_is_asked_for(registry: Registry, open_registry: OpenRegistry) -> None:
    whole = Profile("alice", "Alice", "https://example.com/a", "BR", {"level": "7"})
    assert registry.set_profile(whole, only_given=True) == whole

    named = Profile("alice", "Älice", "https://example.com/a", "BR", {"level": "7"})
    assert registry.set_profile(Profile("alice", "Älice"), only_given=True) == named
    moved = Profile("alice", "Älice", "https://example.com/b", "PT", {"guild": "reds"})
    given = Profile("alice", avatar_url="https://example.com/b", country="PT", attributes={"guild": "reds"})
    assert registry.set_profile(given, only_given=True) == moved
    assert registry.set_profile(Profile("alice"), only_given=True) == moved

    for instance in (registry, open_registry()):
        assert instance.profile("alice") == moved
        assert ids(instance.search("ÄL", 10)) == ["alice"]
        assert ids(instance.search("alicE", 10)) == []
    assert registry.set_profile(Profile("alice")) == Profile("alice")


def test_a_change_is_counted_after_it_can_be_seen(registry: Registry) -> None:
    before = registry.changes
    registry.set_profile(Profile("alice", "Alice"))
    between = registry.changes
    registry.set_friends("alice", ["bob"])

    assert before < between < registry.changes


def test_somebody_asked_for_in_vain_is_found_once_they_have_a_profile(registry: Registry) -> None:
    assert registry.profile("alice") is None
    registry.set_profile(Profile("alice", "Alice"))
    assert registry.profile("alice") == Profile("alice", "Alice")


def test_the_country_is_an_attribute(registry: Registry) -> None:
    registry.set_profile(Profile("alice", country="BR", attributes={"level": "7"}))
    registry.set_profile(Profile("bob", attributes={"country": "DE"}))
    registry.set_profile(Profile("carol", country="PT", attributes={"country": "DE"}))

    assert registry.attributes(["alice"]) == {"alice": {"level": "7", "country": "BR"}}
    assert registry.attributes(["bob"]) == {"bob": {"country": "DE"}}
    assert registry.attributes(["carol"]) == {"carol": {"country": "PT"}}


def test_a_memory_smaller_than_the_question_answers_all_the_same(open_registry: OpenRegistry) -> None:
    registry = open_registry(profiles_cached_max=2)
    for number in range(10):
        registry.set_profile(Profile(f"p{number}", f"name {number}"))

    for _ in range(3):
        profiles = registry.profiles([f"p{number}" for number in range(12)])
        assert [profiles[f"p{number}"].name for number in range(10)] == [f"name {number}" for number in range(10)]


def test_memory_is_bounded(open_registry: OpenRegistry) -> None:
    registry = open_registry(profiles_cached_max=5)
    for number in range(20):
        registry.set_profile(Profile(f"p{number}"))
        registry.profiles([f"p{index}" for index in range(number)])
        assert len(remembered(registry)) <= 5


def test_friends_come_back_in_the_order_given(registry: Registry, open_registry: OpenRegistry) -> None:
    registry.set_friends("alice", ["zed", "bob", "nobody-yet", "alice"])

    for instance in (registry, open_registry()):
        assert instance.friends("alice") == ["zed", "bob", "nobody-yet", "alice"]
        assert instance.friends("bob") == []
    registry.set_friends("alice", ["bob"])
    assert registry.friends("alice") == ["bob"]
    registry.set_friends("alice", [])
    assert registry.friends("alice") == []


def test_a_profile_and_friends_do_not_disturb_each_other(registry: Registry) -> None:
    registry.set_friends("alice", ["bob"])
    registry.set_profile(Profile("alice", "Alice"))
    registry.set_profile(Profile("bob", "Bob"))
    registry.set_friends("bob", ["alice"])

    assert (registry.friends("alice"), registry.friends("bob")) == (["bob"], ["alice"])
    assert registry.profiles(["alice", "bob"]) == {"alice": Profile("alice", "Alice"), "bob": Profile("bob", "Bob")}


PEOPLE = [
    Profile("alice", "Zoë"),
    Profile("ALICE", "shouting"),
    Profile("albert", "Alicia"),
    Profile("bob", "alan"),
    Profile("100%", "percent"),
    Profile("100x", "no percent"),
    Profile("a_b", "under_score"),
    Profile("axb", "underXscore"),
    Profile("straße", "Straße"),
    Profile("élan", "ÉLAN"),
    Profile("日本", "日本太郎"),
    Profile("x", "İstanbul"),
    Profile("quote'", 'double"quote'),
    Profile("back\\slash", "*star?[a-z]"),
]


@pytest.mark.parametrize(
    ("start", "players"),
    [
        ("al", ["albert", "alice", "bob"]),
        ("AL", ["ALICE", "bob", "albert"]),
        ("alice", ["alice"]),
        ("Alic", ["albert"]),
        ("100%", ["100%"]),
        ("100", ["100%", "100x"]),
        ("a_", ["a_b"]),
        ("under_", ["a_b"]),
        ("_", []),
        ("%", []),
        ("STRASSE", ["straße"]),
        ("straß", ["straße"]),
        ("éla", ["élan"]),
        ("Éla", ["élan"]),
        ("日本", ["日本"]),
        ("日本太", ["日本"]),
        ("quote'", ["quote'"]),
        ('DOUBLE"', ["quote'"]),
        ("back\\", ["back\\slash"]),
        ("*", ["back\\slash"]),
        ("nobody", []),
        ("zoë", ["alice"]),
    ],
)
def test_a_search_finds_the_start_of_an_id_or_of_a_name(registry: Registry, start: str, players: list[str]) -> None:
    for profile in PEOPLE:
        registry.set_profile(profile)

    assert ids(registry.search(start, 100)) == players


def test_lists_of_friends_make_no_players(registry: Registry, open_registry: OpenRegistry) -> None:
    registry.set_profile(Profile("alan", "Alan"))
    registry.set_friends("alice", ["albert", "alan"])
    registry.set_friends("alan", ["alfred"])

    for instance in (registry, open_registry()):
        assert instance.search("al", 10) == [Profile("alan", "Alan")]
        assert instance.profile("alice") is None
        assert instance.profiles(["alice", "albert", "alfred"]) == {}
        assert instance.friends("alice") == ["albert", "alan"]


def test_friends_are_mutual_when_each_has_stored_the_other(registry: Registry, open_registry: OpenRegistry) -> None:
    registry.set_friends("alice", ["zed", "bob", "carol", "nobody", "alice"])
    registry.set_friends("bob", ["carol", "alice"])
    registry.set_friends("carol", ["bob"])
    registry.set_friends("zed", ["alice"])
    registry.set_friends("dave", ["alice"])

    for instance in (registry, open_registry()):
        assert instance.mutual_friends("alice") == ["zed", "bob", "alice"]
        assert instance.mutual_friends("carol") == ["bob"]
        assert instance.mutual_friends("dave") == []
        assert instance.mutual_friends("nobody") == []
    registry.set_friends("zed", [])
    assert registry.mutual_friends("alice") == ["bob", "alice"]


@pytest.mark.parametrize("profiles_cached_max", [2, 100])
def test_mutual_friends_are_right_in_a_memory_of_any_size(
    open_registry: OpenRegistry, profiles_cached_max: int
) -> None:
    registry = open_registry(profiles_cached_max=profiles_cached_max)
    rng = random.Random(7)
    players = [f"p{number}" for number in range(12)]
    lists: dict[str, list[str]] = {player: [] for player in players}
    for _ in range(60):
        changed = rng.choice(players)
        lists[changed] = rng.sample(players, rng.randrange(len(players)))
        registry.set_friends(changed, lists[changed])
        for player in rng.sample(players, 4):
            expected = [friend for friend in lists[player] if player in lists[friend]]
            assert registry.mutual_friends(player) == expected
            assert registry.mutual_friends(player) == expected


def test_an_id_within_another_one_makes_nobody_mutual(registry: Registry) -> None:
    for player in ("alice", "a\\", 'a"', ","):
        within = [f'x"{player}', f'x,"{player}', f'["{player}', f"{player}x", f"\\{player}"]
        for friend in within:
            registry.set_friends(friend, [other for other in within if other != player])
        registry.set_friends("last", ["first", *within, player])
        registry.set_friends(player, [*within, "last"])

        assert registry.mutual_friends(player) == ["last"]


def test_any_id_can_be_a_friend(registry: Registry) -> None:
    odd = ['x"alice', 'x,"alice', "alice,", "ali\\ce", "{alice}", "NULL", "日本", "al ice", "%s"]
    registry.set_friends("alice", odd)
    for friend in odd:
        registry.set_friends(friend, odd)

    assert registry.friends("alice") == odd
    assert registry.mutual_friends("alice") == []
    registry.set_friends(odd[0], ["alice"])
    assert registry.mutual_friends("alice") == [odd[0]]


def test_lists_of_friends_are_bounded_together(open_registry: OpenRegistry) -> None:
    registry = open_registry(friends_bytes_max=300_000)
    listed = [f"friend-{number:03}-{'x' * 100}" for number in range(100)]

    def store_until_refused() -> None:
        for number in range(1_000):
            registry.set_friends(f"p{number}", [*listed, f"another-{number}"])

    with pytest.raises(Overloaded, match=r"raise registry\.friends_bytes_max"):
        store_until_refused()

    count = sum(bool(registry.friends(f"p{number}")) for number in range(1_000))
    assert 5 < count < 1_000
    assert all(registry.friends(f"p{number}") for number in range(count))
    registry.set_friends("p0", listed[:1])  # what takes less is stored all the same
    registry.set_friends("p1", [])
    assert (registry.friends("p0"), registry.friends("p1")) == (listed[:1], [])


def test_a_search_ends_at_its_limit_ids_first_and_nobody_twice(registry: Registry) -> None:
    for number in range(5):
        registry.set_profile(Profile(f"id-{number}", f"zz {number}"))
        registry.set_profile(Profile(f"other-{number}", f"ID-{number}"))
    registry.set_profile(Profile("id-9", "id-9"))

    assert ids(registry.search("id-", 3)) == ["id-0", "id-1", "id-2"]
    assert ids(registry.search("id-", 8)) == ["id-0", "id-1", "id-2", "id-3", "id-4", "id-9", "other-0", "other-1"]
    assert len(registry.search("id-", 100)) == 11


def test_searches_agree_with_looking_at_everybody(registry: Registry) -> None:
    seed = random.randrange(2**32)
    sys.stdout.write(f"seed {seed}\n")
    rng = random.Random(seed)
    alphabet = "aAbBéÉß%_'\\ 日İıﬁǅ𝔸\u0301"
    people = {}
    for _ in range(60):
        player = "".join(rng.choices(alphabet, k=rng.randint(1, 4)))
        people[player] = Profile(player, "".join(rng.choices(alphabet, k=rng.randint(1, 4))))
        registry.set_profile(people[player])
    for _ in range(60):
        start = "".join(rng.choices(alphabet, k=rng.randint(1, 2)))
        by_id = sorted((p for p in people if p.startswith(start)), key=str.encode)
        named = [p for p in people if (people[p].name or "").casefold().startswith(start.casefold())]
        by_name = sorted(named, key=lambda p: ((people[p].name or "").casefold().encode(), p.encode()))
        assert ids(registry.search(start, 1_000)) == list(dict.fromkeys([*by_id, *by_name])), start


def test_readers_never_miss_a_profile_while_memory_overflows(open_registry: OpenRegistry) -> None:
    """Attributes are resolved once and stored with the event: one miss would last for ever."""
    registry = open_registry(profiles_cached_max=1)
    names = "abcd"
    for player in names:
        registry.set_profile(Profile(player, country="BR"))
    missed: list[str] = []

    def read(player: str) -> None:
        for _ in range(400):
            if registry.attributes([player]) != {player: {"country": "BR"}}:
                missed.append(player)
                return

    switch_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=read, args=(player,)) for player in names]
        for thread in threads:
            thread.start()
        join_all(threads)
    finally:
        sys.setswitchinterval(switch_s)
    assert missed == []


def test_a_reader_who_read_before_a_change_does_not_bring_the_old_profile_back(registry: Registry) -> None:
    bound = LoadBound()
    changes, reads = threading.Event(), []

    def change() -> None:
        for number in range(30):
            registry.set_profile(Profile("alice", str(number)))
        changes.set()

    def read() -> None:
        last = -1
        while not changes.is_set() and bound.take():
            profile = registry.profile("alice")
            if profile is not None and profile.name is not None:
                reads.append(int(profile.name) >= last)
                last = int(profile.name)

    threads = [threading.Thread(target=work) for work in (change, read, read)]
    for thread in threads:
        thread.start()
    join_all(threads)
    assert all(reads)
    assert registry.profile("alice") == Profile("alice", "29")
