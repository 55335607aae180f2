"""What every store of credentials promises: shown once, found at once, gone when revoked, noticed by others."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.servers.load_bound import LoadBound

from rankd.clock import ManualClock
from rankd.errors import InvalidValue
from rankd.registry.credentials import Credentials, Scope
from rankd.registry.postgres.credentials import PostgresCredentials
from rankd.registry.sqlite.credentials import SqliteCredentials

NOW = 1_777_896_000_000
TOKEN = re.compile(r"rk_[0-9a-f]{16}_[A-Za-z0-9_-]{43}")

OpenCredentials = Callable[[], Credentials]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW)


@pytest.fixture(params=["sqlite", "postgres"])
def open_credentials(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> Iterator[OpenCredentials]:
    """Open the same credentials once more, as another process would."""
    with ExitStack() as closing:

        def open_sqlite() -> Credentials:
            return closing.enter_context(SqliteCredentials(tmp_path, clock))

        def open_postgres() -> Credentials:
            return closing.enter_context(PostgresCredentials(request.getfixturevalue("registry_url"), clock))

        yield open_sqlite if request.param == "sqlite" else open_postgres


@pytest.fixture
def credentials(open_credentials: OpenCredentials) -> Credentials:
    return open_credentials()


def names(credentials: Credentials) -> list[str]:
    return [credential.name for credential in credentials.list()]


def test_a_key_is_found_by_its_token_alone(credentials: Credentials) -> None:
    made, token = credentials.create("game server", ["scores:write", "read"])

    assert TOKEN.fullmatch(token)
    assert token.startswith(f"rk_{made.id}_")
    assert credentials.find(token) == credentials.find(token.encode()) == made
    assert (made.name, made.scopes, made.player) == (
        "game server",
        frozenset({Scope.SCORES_WRITE, Scope.READ}),
        None,
    )
    assert (made.created_at, made.expires_at, made.is_service) == (NOW, None, True)
    for other in ("", token[:-1], token + "A", token.swapcase(), f"rk_{made.id}_", "\ud800", made.id):
        assert credentials.find(other) is None


def test_no_two_tokens_are_alike(credentials: Credentials) -> None:
    made = [credentials.create(f"server {number}", ["scores:write"]) for number in range(20)]

    assert len({token for _, token in made}) == len({credential.id for credential, _ in made}) == 20
    assert len({token.split("_", 2)[2] for _, token in made}) == 20


def test_a_key_is_there_after_opening_again(credentials: Credentials, open_credentials: OpenCredentials) -> None:
    service, service_token = credentials.create("Zoë", list(Scope), expires_at=NOW + 5)
    player, player_token = credentials.create("alice's phone", [], player="alice")
    again = open_credentials()

    assert again.find(service_token) == service
    assert again.find(player_token) == player
    assert again.list() == credentials.list() == (service, player)


@pytest.mark.parametrize("scopes", [[], ["read"]])
def test_a_key_without_a_service_scope_acts_for_its_player(credentials: Credentials, scopes: list[str]) -> None:
    made, _ = credentials.create("phone", scopes, player="alice")

    assert made.player == "alice"
    assert not made.is_service
    with pytest.raises(InvalidValue, match="player: must be given"):
        credentials.create("other", scopes)


@pytest.mark.parametrize("scope", ["scores:write", "players:write", "boards:admin"])
def test_a_service_acts_for_nobody_in_particular(credentials: Credentials, scope: str) -> None:
    assert credentials.create("server", [scope])[0].is_service
    with pytest.raises(InvalidValue, match="player: cannot be given with"):
        credentials.create("other", ["read", scope], player="alice")


@pytest.mark.parametrize(
    ("field", "asked"),
    [
        ("name", {"name": ""}),
        ("name", {"name": "x" * 65}),
        ("name", {"name": "line\nfeed"}),
        ("name", {"name": "\ud800"}),
        ("name", {"name": 7}),
        ("name", {"name": "player"}),
        ("name", {"name": "local"}),
        ("name", {"name": "jwt:somebody"}),
        ("scopes", {"scopes": ["scores:read"]}),
        ("scopes", {"scopes": [["read"]]}),
        ("scopes", {"scopes": "reading"}),
        ("player", {"scopes": ["read"], "player": ".."}),
        ("player", {"scopes": ["read"], "player": 7}),
        ("expires_at", {"expires_at": NOW}),
        ("expires_at", {"expires_at": 1.5}),
    ],
)
def test_what_makes_no_sense_is_refused(credentials: Credentials, field: str, asked: dict[str, object]) -> None:
    with pytest.raises(InvalidValue) as refused:
        credentials.create(**{"name": "server", "scopes": ["scores:write"], **asked})  # type: ignore[arg-type]

    assert refused.value.field == field
    assert credentials.list() == ()


def test_a_name_belongs_to_one_key_at_a_time(credentials: Credentials, open_credentials: OpenCredentials) -> None:
    other = open_credentials()
    made, token = credentials.create("server", ["scores:write"])
    for instance in (credentials, other):
        with pytest.raises(InvalidValue, match="name: 'server' is the name of another API key"):
            instance.create("server", ["read"], player="alice")

    assert credentials.revoke(made.id)
    successor, _ = other.create("server", ["scores:write"])

    assert successor.id != made.id
    credentials.refresh()
    assert credentials.find(token) is None
    assert credentials.list() == (successor,)


def test_the_name_of_an_expired_key_is_free(
    credentials: Credentials, open_credentials: OpenCredentials, clock: ManualClock
) -> None:
    made, token = credentials.create("server", ["scores:write"], expires_at=NOW + 10)
    clock.set(NOW + 9)
    with pytest.raises(InvalidValue):
        credentials.create("server", ["scores:write"])
    clock.set(NOW + 10)
    assert credentials.list() == (made,)

    successor, _ = credentials.create("server", ["scores:write"])

    for instance in (credentials, open_credentials()):
        assert instance.list() == (successor,)
        assert instance.find(token) is None


def test_whether_a_key_has_expired_is_for_the_caller_to_decide(credentials: Credentials, clock: ManualClock) -> None:
    made, token = credentials.create("server", ["scores:write"], expires_at=NOW + 10)
    clock.set(NOW + 10)

    assert credentials.find(token) == made
    assert made.holds_at(NOW + 9)
    assert not made.holds_at(NOW + 10)


def test_a_revoked_key_is_found_no_more(credentials: Credentials, open_credentials: OpenCredentials) -> None:
    made, token = credentials.create("one", ["scores:write"])
    kept, kept_token = credentials.create("two", ["scores:write"])

    assert credentials.revoke(made.id)

    for instance in (credentials, open_credentials()):
        assert instance.find(token) is None
        assert instance.find(kept_token) == kept
        assert instance.list() == (kept,)
        assert not instance.revoke(made.id)


@pytest.mark.parametrize("unknown", ["", "0" * 16, "x' OR 1=1 --", "Zoë", "\ud800"])
def test_what_is_not_there_cannot_be_revoked(credentials: Credentials, unknown: str) -> None:
    credentials.create("one", ["scores:write"])
    credentials.create_signing_key("arcade")

    assert not credentials.revoke(unknown)
    assert not credentials.revoke_signing_key(unknown)
    assert names(credentials) == ["one"]
    assert len(credentials.list_signing_keys()) == 1


def test_what_others_change_holds_after_a_refresh(credentials: Credentials, open_credentials: OpenCredentials) -> None:
    server, command = credentials, open_credentials()
    made, token = command.create("one", ["scores:write"])
    secret = command.create_signing_key("arcade")
    server.refresh()
    assert server.find(token) == made
    assert server.signing_key("arcade") == secret.encode()

    command.revoke(made.id)
    command.revoke_signing_key("arcade")
    assert server.find(token) == made
    server.refresh()

    assert server.find(token) is None
    assert server.signing_key("arcade") is None
    assert server.list() == ()
    assert server.list_signing_keys() == ()


def test_own_changes_do_not_hide_those_of_others(credentials: Credentials, open_credentials: OpenCredentials) -> None:
    other = open_credentials()
    theirs, their_token = other.create("theirs", ["scores:write"])
    gone, gone_token = credentials.create("gone", ["scores:write"])
    other.revoke(gone.id)
    mine, my_token = credentials.create("mine", ["scores:write"])

    for instance in (credentials, other):
        instance.refresh()
        assert instance.find(their_token) == theirs
        assert instance.find(my_token) == mine
        assert instance.find(gone_token) is None


def test_what_is_known_changes_as_a_whole_or_not_at_all(
    credentials: Credentials, open_credentials: OpenCredentials
) -> None:
    before = credentials.known
    credentials.refresh()
    assert credentials.known is before

    other = open_credentials()
    made, _ = other.create("one", ["scores:write"])
    credentials.refresh()
    after = credentials.known
    other.revoke(made.id)
    credentials.refresh()

    assert list(before.values()) == []
    assert list(after.values()) == [made]
    assert list(credentials.known.values()) == []
    with pytest.raises(TypeError):
        after[b""] = made  # type: ignore[index]


def test_keys_are_found_while_others_come_and_go(credentials: Credentials, open_credentials: OpenCredentials) -> None:
    """A key that nobody touches is there at every moment, and one that was revoked does not come back."""
    other = open_credentials()
    kept, token = credentials.create("kept", ["scores:write"])
    done = threading.Event()
    problems: list[object] = []

    def repeat(step: Callable[[], None]) -> None:
        bound = LoadBound()
        try:
            while bound.take() and not done.wait(0.0002):
                step()
        except BaseException as problem:
            problems.append(problem)

    def find() -> None:
        assert credentials.find(token) == kept
        assert credentials.signing_key("kept") is not None

    credentials.create_signing_key("kept")
    threads = [threading.Thread(target=repeat, args=(step,)) for step in (find, find, credentials.refresh)]
    for thread in threads:
        thread.start()
    try:
        for number in range(20):
            passing_key, passing = (other, credentials)[number % 2].create(f"passing {number}", ["scores:write"])
            assert (credentials, other)[number % 3 == 0].revoke(passing_key.id)
            credentials.refresh()
            assert credentials.find(passing) is None
    finally:
        done.set()
        for thread in threads:
            thread.join(20)

    assert problems == []
    assert names(credentials) == ["kept"]


def test_a_signing_key_is_shown_once_and_kept(credentials: Credentials, open_credentials: OpenCredentials) -> None:
    secret = credentials.create_signing_key("arcade")

    assert re.fullmatch(r"rs_[A-Za-z0-9_-]{43}", secret)
    for instance in (credentials, open_credentials()):
        assert instance.signing_key("arcade") == secret.encode()
        assert instance.signing_key("words") is None
        assert [(key.name, key.created_at) for key in instance.list_signing_keys()] == [("arcade", NOW)]


def test_a_signing_key_is_replaced_only_after_it_was_revoked(credentials: Credentials) -> None:
    secret = credentials.create_signing_key("arcade")
    with pytest.raises(InvalidValue, match="name: 'arcade' is a signing key already"):
        credentials.create_signing_key("arcade")
    assert credentials.signing_key("arcade") == secret.encode()

    assert credentials.revoke_signing_key("arcade")
    assert credentials.signing_key("arcade") is None
    assert credentials.create_signing_key("arcade") != secret


@pytest.mark.parametrize("name", ["", "Arcade", "a b", "\ud800", 7])
def test_a_signing_key_is_named_as_boards_name_it(credentials: Credentials, name: str) -> None:
    with pytest.raises(InvalidValue, match="name: must be"):
        credentials.create_signing_key(name)


def test_the_first_key_is_made_where_there_never_was_one(
    credentials: Credentials, open_credentials: OpenCredentials
) -> None:
    kept: list[str] = []
    made = credentials.create_first("admin", list(Scope), kept.append)

    assert made is not None
    assert credentials.find(kept[0]) == open_credentials().find(kept[0]) == made
    assert credentials.revoke(made.id)
    assert credentials.create_first("admin", list(Scope), kept.append) is None
    assert len(kept) == 1


def test_a_first_key_that_could_not_be_kept_does_not_hold(
    credentials: Credentials, open_credentials: OpenCredentials
) -> None:
    tokens: list[str] = []

    def lose(token: str) -> None:
        tokens.append(token)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        credentials.create_first("admin", list(Scope), lose)
    credentials.refresh()

    for instance in (credentials, open_credentials()):
        assert instance.find(tokens[0]) is None
        assert instance.list() == ()
    assert credentials.create_first("admin", list(Scope), tokens.append) is not None


def test_nothing_that_is_shown_holds_a_secret(credentials: Credentials) -> None:
    made, token = credentials.create("server", ["scores:write"])
    secret = credentials.create_signing_key("arcade")
    shown = [made, credentials, credentials.list(), credentials.known, credentials.list_signing_keys()]
    for call in (
        lambda: credentials.create("server", ["scores:write"]),
        lambda: credentials.create_signing_key("arcade"),
    ):
        with pytest.raises(InvalidValue) as refused:
            call()
        shown.append(refused.value)

    for value in shown:
        for text in (repr(value), str(value)):
            assert token.split("_", 2)[2] not in text
            assert secret.removeprefix("rs_") not in text
