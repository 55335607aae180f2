"""From the header to who asks: API keys from memory, tokens remembered, nothing repeated, nothing outlived."""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.servers.load_bound import LoadBound
from tests.timing import BUSY_MACHINE

from rankd import ManualClock
from rankd.api.auth import authentication
from rankd.api.auth.authentication import Authenticator
from rankd.api.auth.identity import Identity
from rankd.api.auth.token_keys import VerificationKeys
from rankd.api.auth.tokens import TOKEN_BYTES_MAX, TokenVerifier, open_tokens
from rankd.errors import Unauthenticated
from rankd.registry.credentials import Scope
from rankd.registry.sqlite.credentials import SqliteCredentials

from .issuer import CLAIMS, NOW_S, SECRET, auth, made

NOW = NOW_S * 1_000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW)


@pytest.fixture
def credentials(tmp_path: Path, clock: ManualClock) -> Iterator[SqliteCredentials]:
    with SqliteCredentials(tmp_path, clock) as opened:
        yield opened


@pytest.fixture
def tokens(clock: ManualClock) -> TokenVerifier:
    verifier = open_tokens(auth(jwt_secret=SECRET), clock)
    assert verifier is not None
    return verifier


@pytest.fixture
def authenticator(credentials: SqliteCredentials, tokens: TokenVerifier, clock: ManualClock) -> Authenticator:
    return Authenticator(credentials, tokens, clock)


def bearer(token: str | bytes) -> bytes:
    return b"Bearer " + (token.encode() if isinstance(token, str) else token)


def test_who_sends_nothing_is_nobody(authenticator: Authenticator) -> None:
    assert authenticator.identify(None) is None


def test_a_service_key_identifies_the_service(authenticator: Authenticator, credentials: SqliteCredentials) -> None:
    key, token = credentials.create("game server", ["scores:write", "read"], expires_at=NOW + 1_999)

    assert authenticator.identify(bearer(token)) == Identity(
        "game server", f"key:{key.id}", frozenset({Scope.SCORES_WRITE, Scope.READ}), None, NOW_S + 1, key.id
    )


def test_a_players_key_identifies_the_player(authenticator: Authenticator, credentials: SqliteCredentials) -> None:
    key, token = credentials.create("alice's phone", ["read"], player="alice")
    identity = authenticator.identify(bearer(token))

    assert identity == Identity("player", "player:alice", frozenset({Scope.READ}), "alice", None, key.id)
    assert not identity.is_service


def test_who_was_known_by_a_key_is_so_until_it_is_revoked(
    authenticator: Authenticator, credentials: SqliteCredentials
) -> None:
    (key, token), (_, other) = (credentials.create(name, ["read"], player=name) for name in ("alice", "bob"))
    alice, bob = authenticator.identify(bearer(token)), authenticator.identify(bearer(other))
    assert alice is not None
    assert bob is not None
    assert not authenticator.is_revoked(alice)
    credentials.revoke(key.id)

    assert authenticator.is_revoked(alice)
    assert not authenticator.is_revoked(bob)


def test_somebody_is_refused_whose_credential_was_revoked_or_has_expired_since(
    authenticator: Authenticator, credentials: SqliteCredentials, clock: ManualClock
) -> None:
    (key, token), (_, short) = (
        credentials.create(name, ["read"], player=name, expires_at=expires_at)
        for name, expires_at in (("alice", None), ("bob", NOW + 5_000))
    )
    claimed = made({**CLAIMS, "exp": NOW_S + 5})
    alice, *ending = (authenticator.identify(bearer(credential)) for credential in (token, short, claimed))
    assert alice is not None
    authenticator.check(alice)
    credentials.revoke(key.id)
    with pytest.raises(Unauthenticated, match="revoked; use another"):
        authenticator.check(alice)

    for somebody in ending:
        assert somebody is not None
        authenticator.check(somebody)
    clock.advance(20_000)
    for somebody in ending:
        assert somebody is not None
        with pytest.raises(Unauthenticated, match="expired; get a new one"):
            authenticator.check(somebody)


def test_a_players_keys_and_tokens_are_one_account(
    authenticator: Authenticator, credentials: SqliteCredentials
) -> None:
    """A request that is sent again after a new login is still the same request."""
    _, phone_token = credentials.create("phone", [], player="alice")
    _, console_token = credentials.create("console", [], player="alice")
    accounts = {
        identity.account
        for token in (phone_token, console_token, made(CLAIMS))
        if (identity := authenticator.identify(bearer(token)))
    }

    assert accounts == {"player:alice"}


@pytest.mark.parametrize(
    "spelling", ["Bearer {}", "bearer {}", "BEARER {}", "Bearer   {}", "Bearer {} ", "Bearer \t{}"]
)
def test_the_scheme_is_written_in_any_case(
    authenticator: Authenticator, credentials: SqliteCredentials, spelling: str
) -> None:
    _, token = credentials.create("server", ["scores:write"])

    assert authenticator.identify(spelling.format(token).encode()) is not None


@pytest.mark.parametrize(
    "header", [b"", b"Bearer", b"Basic YWxpY2U6c2VjcmV0", b"Bearer:{}", b"Token {}", b"{}", b"\xff\xfe"]
)
def test_another_scheme_is_refused_and_the_right_one_named(
    authenticator: Authenticator, credentials: SqliteCredentials, header: bytes
) -> None:
    _, token = credentials.create("server", ["scores:write"])
    with pytest.raises(Unauthenticated, match="the header must be `Authorization: Bearer` with an API key"):
        authenticator.identify(header.replace(b"{}", token.encode()))


def test_what_is_wrong_with_a_key_is_not_said(authenticator: Authenticator, credentials: SqliteCredentials) -> None:
    key, token = credentials.create("server", ["scores:write"])
    _, other = credentials.create("other", ["scores:write"])
    secret = other.split("_", 2)[2]
    messages = set()
    for wrong in (
        *("rk_", "rk_x", f"rk_{key.id}_", f"rk_{key.id}_{secret}", f"rk_{'0' * 16}_{secret}", token[:-1], token + "x"),
        *(token.replace("rk_", "rk_ "), f"rk_{key.id}_' OR 1=1 --", "rk_\x00", "rk_é", f"{token},{token}"),
    ):
        with pytest.raises(Unauthenticated) as refused:
            authenticator.identify(bearer(wrong))
        messages.add(str(refused.value))
        text = "".join(traceback.format_exception(refused.value))
        assert secret not in text
        assert token.split("_", 2)[2][:20] not in text

    assert messages == {"the API key is not known here; it may have been revoked"}


def test_a_header_may_be_as_long_as_the_longest_token(authenticator: Authenticator) -> None:
    with pytest.raises(Unauthenticated, match="the API key is not known"):
        authenticator.identify(bearer("rk_".ljust(TOKEN_BYTES_MAX, "x")))
    for size in (TOKEN_BYTES_MAX + 1, 10_000_000):
        with pytest.raises(Unauthenticated, match="too long"):
            authenticator.identify(bearer("rk_".ljust(size, "x")))


def test_a_key_holds_to_the_millisecond(
    authenticator: Authenticator, credentials: SqliteCredentials, clock: ManualClock
) -> None:
    _, token = credentials.create("server", ["scores:write"], expires_at=NOW + 500)
    assert authenticator.identify(bearer(token)) is not None
    clock.set(NOW + 499)
    assert authenticator.identify(bearer(token)) is not None
    clock.set(NOW + 500)
    with pytest.raises(Unauthenticated, match="has expired"):
        authenticator.identify(bearer(token))


def test_a_revoked_key_is_refused_at_once(authenticator: Authenticator, credentials: SqliteCredentials) -> None:
    key, token = credentials.create("server", ["scores:write"])
    assert authenticator.identify(bearer(token)) is not None
    credentials.revoke(key.id)
    with pytest.raises(Unauthenticated):
        authenticator.identify(bearer(token))


def test_a_key_that_another_process_revoked_is_refused_after_a_refresh(
    tmp_path: Path, authenticator: Authenticator, credentials: SqliteCredentials, clock: ManualClock
) -> None:
    with SqliteCredentials(tmp_path, clock) as command:
        key, token = command.create("server", ["scores:write"])
        with pytest.raises(Unauthenticated):
            authenticator.identify(bearer(token))
        credentials.refresh()
        assert authenticator.identify(bearer(token)) is not None
        command.revoke(key.id)
    credentials.refresh()
    with pytest.raises(Unauthenticated):
        authenticator.identify(bearer(token))


def test_without_keys_for_them_tokens_are_refused(credentials: SqliteCredentials, clock: ManualClock) -> None:
    with pytest.raises(Unauthenticated, match="this server accepts no other tokens"):
        Authenticator(credentials, None, clock).identify(bearer(made(CLAIMS)))


class Counted(TokenVerifier):
    """Counts how often a token has to be verified."""

    count = 0

    def verify(self, token: bytes, keys: VerificationKeys) -> Identity:
        self.count += 1
        return super().verify(token, keys)


@pytest.fixture
def counted(tokens: TokenVerifier, clock: ManualClock) -> Counted:
    return Counted(tokens.keys, "https://login.example", "rankd", 5, clock)


def test_a_token_is_verified_once_until_it_expires(
    credentials: SqliteCredentials, counted: Counted, clock: ManualClock
) -> None:
    authenticator = Authenticator(credentials, counted, clock)
    token = bearer(made({**CLAIMS, "exp": NOW_S + 10}))
    for _ in range(5):
        assert authenticator.identify(token) is not None
    assert counted.count == 1
    clock.set(NOW + 14_999)
    assert authenticator.identify(token) is not None
    clock.set(NOW + 15_000)
    with pytest.raises(Unauthenticated, match="has expired"):
        authenticator.identify(token)


def test_only_so_many_tokens_are_remembered(
    credentials: SqliteCredentials, counted: Counted, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(authentication, "TOKENS_REMEMBERED_MAX", 3)
    authenticator = Authenticator(credentials, counted, clock)
    headers = [bearer(made({**CLAIMS, "sub": f"player {number}"})) for number in range(5)]
    identities = [authenticator.identify(header) for header in headers]

    assert [identity and identity.player for identity in identities] == [f"player {number}" for number in range(5)]
    assert len(authenticator._verified[1]) == 3
    for header in headers[2:]:
        authenticator.identify(header)
    assert counted.count == 5
    authenticator.identify(headers[0])
    assert counted.count == 6


def test_a_refused_token_is_not_remembered(
    credentials: SqliteCredentials, counted: Counted, clock: ManualClock
) -> None:
    authenticator = Authenticator(credentials, counted, clock)
    for _ in range(3):
        with pytest.raises(Unauthenticated):
            authenticator.identify(bearer(made({**CLAIMS, "aud": "other"})))

    assert len(authenticator._verified[1]) == 0


def test_many_threads_ask_while_keys_change(
    authenticator: Authenticator, credentials: SqliteCredentials, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(authentication, "TOKENS_REMEMBERED_MAX", 2)
    _, kept = credentials.create("kept", ["scores:write"])
    headers = [bearer(kept), *(bearer(made({**CLAIMS, "sub": f"player {number}"})) for number in range(4))]
    expected = ["kept", *["player"] * 4]
    bound = LoadBound()
    done = threading.Event()
    problems: list[BaseException] = []

    def ask() -> None:
        try:
            while not done.is_set() and bound.take():
                identities = [authenticator.identify(header) for header in headers]
                assert [identity and identity.name for identity in identities] == expected
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for number in range(10):
            key, token = credentials.create(f"passing {number}", ["scores:write"])
            assert authenticator.identify(bearer(token)) is not None
            credentials.revoke(key.id)
            with pytest.raises(Unauthenticated):
                authenticator.identify(bearer(token))
    finally:
        done.set()
        for thread in threads:
            thread.join(20)

    assert problems == []


@pytest.mark.timed
def test_a_known_credential_costs_microseconds(authenticator: Authenticator, credentials: SqliteCredentials) -> None:
    _, key = credentials.create("server", ["scores:write"])
    for header in (bearer(key), bearer(made(CLAIMS))):
        authenticator.identify(header)
        began = time.perf_counter()
        for _ in range(10_000):
            authenticator.identify(header)
        # Some 2 µs each; verifying an HMAC each time would take more than ten times that.
        assert time.perf_counter() - began < 0.4 * BUSY_MACHINE
