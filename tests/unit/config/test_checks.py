"""Values that make no sense are refused, each with the way out."""

from __future__ import annotations

from pathlib import Path

import pytest

from rankd.api.auth.signing import TOLERANCE_S
from rankd.config.checks import listen_address
from rankd.config.loading import KEYS, load_config
from rankd.config.model import Config
from rankd.errors import InvalidValue

SECRET = "s3cret-s3cret-s3cret-s3cret-s3cret"
NAMED = {"auth_jwt_issuer": "my-game", "auth_jwt_audience": "rankd"}


@pytest.fixture(autouse=True)
def in_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def loaded(**variables: str) -> Config:
    return load_config(None, {f"RANKD_{name.upper()}": value for name, value in variables.items()})


def refusal(**variables: str) -> str:
    with pytest.raises(InvalidValue) as refused:
        loaded(**variables)
    return str(refused.value)


@pytest.mark.parametrize("host", ["127.0.0.1", "10.0.0.5", "::", "::1", "localhost", "ranks.game.example", "rank-1"])
def test_an_address_or_a_name_is_a_host(host: str) -> None:
    assert loaded(server_host=host).server.host == host


@pytest.mark.parametrize("host", ["", "1.2.3", "256.0.0.1", "a b", "-a", "http://localhost", "localhost:80", "a" * 64])
def test_anything_else_is_not(host: str) -> None:
    assert "must be an address or a host name" in refusal(server_host=host)


def test_brackets_belong_into_urls() -> None:
    assert refusal(server_host="[::1]") == "RANKD_SERVER_HOST: must be written without brackets: ::1"


def test_workers_keep_boards_by_patterns_of_their_ids() -> None:
    assert loaded(workers_boards="arcade*,daily").workers.boards == ("arcade*", "daily")


@pytest.mark.parametrize("pattern", ["Arcade", "arcade?", "[a-z]", "a b", "a" * 65])
def test_what_no_id_could_match_is_no_pattern(pattern: str) -> None:
    assert "must be ids" in refusal(workers_boards=pattern)


NUMBERS = [key for key, kind in KEYS.items() if kind is int]


@pytest.mark.parametrize("key", NUMBERS)
def test_no_number_is_negative(key: str) -> None:
    assert "must be" in refusal(**{key.replace(".", "_"): "-1"})


@pytest.mark.parametrize(
    "key",
    ["limits_body_bytes_max", "limits_requests_max", "ledger_commit_events_max", "ranks_snapshots_kept"],
)
def test_a_limit_is_at_least_one(key: str) -> None:
    assert refusal(**{key: "0"}).endswith("must be at least 1; got 0")


@pytest.mark.parametrize("key", ["limits_player_writes_per_s", "limits_address_reads_per_s", "ledger_commit_wait_ms"])
def test_a_rate_or_a_wait_may_be_none(key: str) -> None:
    assert loaded(**{key: "0"})


def test_keys_are_remembered_for_as_long_as_a_signed_submission_is_taken() -> None:
    message = refusal(ledger_idempotency_ttl_ms="659999")

    assert message.startswith(
        "RANKD_LEDGER_IDEMPOTENCY_TTL_MS: must be at least 660000, raise it; got 659999: a signed "
    )
    assert message.endswith("would count again without its key")
    assert loaded(ledger_idempotency_ttl_ms="660000").ledger.idempotency_ttl_ms > 2 * TOLERANCE_S * 1_000
    assert "must be at least 660000" in refusal(ledger_idempotency_ttl_ms="0")


def test_a_log_may_not_stop_commits_before_it_is_moved() -> None:
    message = refusal(ledger_checkpoint_bytes="1000", ledger_checkpoint_bytes_max="999")

    assert message.startswith("RANKD_LEDGER_CHECKPOINT_BYTES_MAX: must not be below ledger.checkpoint_bytes, 1000")


def test_a_certificate_needs_its_key_and_both_must_be_there(tmp_path: Path) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    cert.write_text("")
    key.write_text("")

    assert loaded(server_tls_cert=f"{cert}", server_tls_key=f"{key}").server.tls_cert == str(cert)
    assert refusal(server_tls_cert=f"{cert}") == "server.tls_key: must be set too, since server.tls_cert is"
    assert refusal(server_tls_key=f"{key}") == "server.tls_cert: must be set too, since server.tls_key is"
    assert "gone.pem cannot be read: No such file" in refusal(server_tls_cert="gone.pem", server_tls_key=f"{key}")


@pytest.mark.parametrize("networks", ["10.0.0.0/8", "10.1.2.3", "fd00::/8, ::1"])
def test_proxies_are_addresses_and_networks(networks: str) -> None:
    assert loaded(server_trusted_proxies=networks).server.trusted_proxies


def test_an_address_with_the_length_of_its_network_is_a_slip() -> None:
    assert refusal(server_trusted_proxies="10.0.0.1/8").endswith("did you mean 10.0.0.0/8?")
    assert "must be addresses or networks" in refusal(server_trusted_proxies="proxy.example")


@pytest.mark.parametrize("origins", ["*", "https://game.example", "http://localhost:3000,https://[::1]:8443"])
def test_origins_are_a_scheme_a_host_and_a_port(origins: str) -> None:
    assert loaded(server_cors_origins=origins).server.cors_origins


@pytest.mark.parametrize(
    "origin",
    [
        "game.example",
        "https://game.example/",
        "https://game.example/page",
        "ftp://game.example",
        "https://x:port",
        "//x",
        "https://game.example;script-src",
        "https://game.example 'self'",
    ],
)
def test_anything_else_is_no_origin(origin: str) -> None:
    assert "must be origins such as" in refusal(server_cors_origins=origin)


def test_all_origins_are_all() -> None:
    assert 'must be "*" alone' in refusal(server_cors_origins="*,https://game.example")


@pytest.mark.parametrize(
    ("name", "url", "message"),
    [
        ("ledger_url", "mysql://db", "does not know the address 'mysql://db'; what works is sqlite:<folder>"),
        ("ledger_url", "rankd-data", "does not know the address 'rankd-data'"),
        ("ledger_url", "sqlite:", "must name a folder, such as sqlite:rankd-data"),
        ("ledger_url", "sqlite:///var/lib/rankd", "without slashes of a host: sqlite:/var/lib/rankd"),
        ("registry_url", "postgresql://db", "does not know the address 'postgresql://db'; what works is nothing"),
        ("ranks_url", "redis+cluster://r", "must be engine: where the ledger is SQLite"),
        ("outbox_url", "amqp://k", "does not know the address 'amqp://k'; what works is none, or kafka://"),
    ],
)
def test_what_this_version_does_not_have_is_said(name: str, url: str, message: str) -> None:
    assert message in refusal(**{name: url})


def test_events_are_not_relayed_to_where_they_come_from() -> None:
    brokers = {"outbox_url": "kafka://k", "consume_url": "kafka://k"}

    assert "would come again" in refusal(**brokers, consume_topics="a,score-events")
    assert "must be another topic" in refusal(**brokers, consume_topics="a", outbox_notifications_topic="score-events")


def test_a_ledger_in_postgresql_goes_with_ranks_in_redis_or_in_each_server() -> None:
    assert loaded(ledger_url="postgresql://db/rankd").ranks.url == "engine:"
    config = loaded(ledger_url="postgresql://db/rankd", ranks_url="redis+cluster://a:7000,b:7000")
    assert config.ledger.partitions == 8
    assert "does not know the address" in refusal(ledger_url="postgresql://db/rankd", ranks_url="memcached://r")
    assert "does not know the address" in refusal(
        ledger_url="postgresql://db/rankd", ranks_url="redis://r", registry_url="sqlite:d"
    )


def test_a_ledger_in_kafka_goes_with_a_registry_in_postgresql() -> None:
    kafka = {"ledger_url": "kafka://k:9092", "registry_url": "postgresql://db/rankd"}

    assert loaded(**kafka).kafka.ledger_topic == "rankd-events"
    assert loaded(**kafka, ranks_url="redis://r").ledger.kafka_wait_ms == 30_000
    assert "profiles, credentials and leases need PostgreSQL" in refusal(ledger_url="kafka://k:9092")
    assert "does not know the address" in refusal(**{**kafka, "registry_url": "sqlite:d"})
    assert "must be up to 200 letters" in refusal(**kafka, kafka_ledger_topic="scores/today")
    assert "must be 1 where the ledger is PostgreSQL or Kafka" in refusal(**kafka, server_workers="2")


def test_a_ledger_in_kafka_is_neither_consumed_into_nor_relayed_from() -> None:
    kafka = {"ledger_url": "kafka://k:9092", "registry_url": "postgresql://db/rankd"}

    assert "cannot store what was read" in refusal(**kafka, consume_url="kafka://k", consume_topics="a")
    assert "cannot store how far a relay is" in refusal(**kafka, outbox_url="kafka://k")


def test_workers_share_a_folder_and_not_a_database() -> None:
    assert loaded(server_workers="4").server.workers == 4
    assert "must be from 1 to 64" in refusal(server_workers="65")
    assert "must be 1 where the ledger is PostgreSQL or Kafka" in refusal(
        ledger_url="postgresql://db/rankd", server_workers="2"
    )


def test_profiles_may_be_said_to_live_with_the_ledger() -> None:
    assert loaded(ledger_url="sqlite:d", registry_url="sqlite:d")


def test_a_password_in_a_refused_url_is_not_repeated() -> None:
    message = refusal(ledger_url="mysql://rankd:hunter2@db")

    assert "hunter2" not in message
    assert "mysql://rankd:***@db" in message


def test_a_secret_is_long_and_never_repeated() -> None:
    assert refusal(auth_jwt_secret=SECRET[:9]) == (
        "RANKD_AUTH_JWT_SECRET: must be at least 32 bytes, and random, such as `openssl rand -hex 32` prints; "
        "got 9 bytes"
    )
    assert loaded(auth_jwt_secret=SECRET, **NAMED).auth.jwt_secret == SECRET


@pytest.mark.parametrize(("name", "claim"), [("issuer", "iss"), ("audience", "aud")])
def test_tokens_name_who_made_them_and_for_whom(name: str, claim: str) -> None:
    given = {key: value for key, value in NAMED.items() if not key.endswith(name)}
    assert refusal(auth_jwt_secret=SECRET, **given) == (
        f"auth.jwt_{name}: must be set with auth.jwt_secret: name what your tokens carry as `{claim}`, "
        "so that tokens for other services are refused"
    )
    assert loaded(**NAMED).auth.jwt_secret == "", "without a key, there are no tokens to check"


def test_a_token_for_figures_can_stand_in_a_header_and_is_never_repeated() -> None:
    for spoilt in ("t0ken t0ken", "t0kén-t0ken", "t0ken-t0ken\n"):
        assert refusal(server_metrics_token=spoilt) == (
            "RANKD_SERVER_METRICS_TOKEN: must be letters, digits and signs of ASCII without spaces: it goes in a header"
        )
    assert loaded(server_metrics_token="t0ken-t0ken").server.metrics_token == "t0ken-t0ken"


def test_tokens_are_signed_in_one_way() -> None:
    message = refusal(auth_jwt_secret=SECRET, auth_jwt_jwks="keys.json")

    assert message == "RANKD_AUTH_JWT_JWKS: must not be set beside auth.jwt_secret: choose one way to sign tokens"


def test_a_public_key_is_a_file() -> None:
    assert "keys.pem cannot be read" in refusal(auth_jwt_public_key="keys.pem", **NAMED)


@pytest.mark.parametrize(
    ("address", "expected"),
    [("127.0.0.1:9108", ("127.0.0.1", 9108)), ("[::1]:0", ("::1", 0)), ("ranks.example:1", ("ranks.example", 1))],
)
def test_a_projector_listens_on_a_host_and_a_port(address: str, expected: tuple[str, int]) -> None:
    assert listen_address("here", loaded(projector_listen=address).projector.listen) == expected


@pytest.mark.parametrize(
    "address", ["9108", ":9108", "localhost", "localhost:http", "localhost:65536", "a b:1", "::1:9"]
)
def test_it_listens_on_nothing_else(address: str) -> None:
    assert refusal(projector_listen=address).startswith("RANKD_PROJECTOR_LISTEN: must ")
