"""What the configuration of a server changes: TLS, limits, origins, boards, addresses that are kept."""

from __future__ import annotations

import datetime
import ssl
import time
from pathlib import Path

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from rankd.clock import SystemClock
from rankd.registry.sqlite.credentials import SqliteCredentials

from .serving import Serving, free_port, serving, start


def certificate(folder: Path) -> tuple[Path, Path]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    cert_file, key_file = folder / "cert.pem", folder / "key.pem"
    cert_file.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    key_file.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return cert_file, key_file


def test_a_certificate_and_its_key_make_it_tls(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    port = free_port()
    config = f'[server]\nhost = "127.0.0.1"\ntls_cert = "{cert}"\ntls_key = "{key}"\n'
    server = start(tmp_path / "data", port=port, config=config)
    try:
        context = ssl.create_default_context(cafile=str(cert))
        url = f"https://localhost:{port}/healthz"
        deadline = time.monotonic() + 20
        while True:
            try:
                answer = httpx.get(url, verify=context)
                break
            except httpx.TransportError:
                assert time.monotonic() < deadline, server.log.read_text()
        assert answer.json()["status"] == "ok"
        with pytest.raises(httpx.TransportError):
            httpx.get(f"http://localhost:{port}/healthz")
    finally:
        assert server.stop() == 0


def add_player(server: Serving, player: str) -> str:
    with SqliteCredentials(server.folder, SystemClock()) as credentials:
        token = credentials.create(player, [], player=player)[1]
    server.assert_known(token)
    return token


def test_a_player_who_sends_too_fast_learns_when_to_go_on(tmp_path: Path) -> None:
    with serving(tmp_path / "data", config='[boards.arcade]\nwrites = "players"\n') as server:
        token = add_player(server, "alice")
        with server.client(token) as alice:
            answers = [alice.post("/v1/scores", json={"board": "arcade", "score": number}) for number in range(30)]
        refused = [answer for answer in answers if answer.status_code == 429]

        assert {answer.status_code for answer in answers} == {200, 429}
        assert refused[0].headers["retry-after"] == "1"
        assert refused[0].headers["ratelimit-limit"] == "10"
        assert refused[0].json()["code"] == "rate_exceeded"
        assert answers[0].headers["ratelimit-remaining"]


def test_a_player_stores_so_many_lists_of_friends_a_minute_and_a_service_any(tmp_path: Path) -> None:
    with serving(tmp_path / "data", config="[limits]\nplayer_writes_per_s = 0\n") as server:
        token = add_player(server, "alice")
        path = "/v1/players/alice/friends"
        with server.client(token) as alice, server.client(server.admin_key) as admin:
            answers = [alice.put(path, json={"players": [f"f{number}"]}) for number in range(12)]
            by_service = [admin.put(path, json={"players": ["bob"]}).status_code for _ in range(12)]

        assert [answer.status_code for answer in answers] == [200] * 10 + [429] * 2
        assert 1 <= int(answers[10].headers["retry-after"]) <= 6
        assert answers[10].headers["ratelimit-limit"] == "10"
        assert "10 a minute are allowed" in answers[10].json()["detail"]
        assert by_service == [200] * 12


def test_ids_that_only_lists_of_friends_name_are_nowhere_public(tmp_path: Path) -> None:
    with serving(tmp_path / "data", config="[boards.arcade]\n") as server:
        token = add_player(server, "owner")
        with server.client(token) as owner, server.client() as anybody, server.client(server.admin_key) as admin:
            admin.post("/v1/scores", json={"board": "arcade", "player": "unknown-9", "score": 1})
            listed = [f"unknown-{number}" for number in range(1_000)]
            assert owner.put("/v1/players/owner/friends", json={"players": listed}).status_code == 200

            assert owner.get("/v1/players/owner/friends").json()["players"] == listed
            assert anybody.get("/v1/players?search=unknown").json()["players"] == [{"player": "unknown-9"}]
            assert anybody.get("/v1/players?search=owner").json()["players"] == []
            assert [anybody.get(f"/v1/players/{player}").status_code for player in ("unknown-1", "owner")] == [404, 404]
            group = owner.get("/v1/boards/arcade/players/owner/friends").json()
            assert [entry["player"] for entry in group["entries"]] == ["unknown-9"]


def test_pages_of_other_origins_may_read_when_they_are_named(tmp_path: Path) -> None:
    config = '[server]\ncors_origins = ["https://game.example"]\n'
    with serving(tmp_path / "data", config=config) as server, server.client() as client:
        named = client.get("/v1/boards", headers={"Origin": "https://game.example"})
        other = client.get("/v1/boards", headers={"Origin": "https://evil.example"})
        asked = client.options(
            "/v1/boards", headers={"Origin": "https://game.example", "Access-Control-Request-Method": "GET"}
        )

        assert named.headers["access-control-allow-origin"] == "https://game.example"
        assert "access-control-allow-origin" not in other.headers
        assert (asked.status_code, asked.headers["access-control-allow-origin"]) == (204, "https://game.example")


def test_addresses_are_kept_when_that_is_asked_for_and_believed_from_proxies_only(tmp_path: Path) -> None:
    config = '[server]\nrecord_origin = true\ntrusted_proxies = ["127.0.0.1"]\n[boards.arcade]\n'
    with serving(tmp_path / "data", config=config) as server, server.client(server.admin_key) as admin:
        sent = {"board": "arcade", "player": "alice", "score": 5}
        admin.post("/v1/scores", json=sent)
        admin.post("/v1/scores", json=sent, headers={"X-Forwarded-For": "203.0.113.9, 192.0.2.7"})
        events = admin.get("/v1/boards/arcade/players/alice/events").json()["events"]

        assert [event["origin"] for event in events] == ["192.0.2.7", "127.0.0.1"]


def test_boards_of_the_configuration_are_there_and_stay(tmp_path: Path) -> None:
    with serving(tmp_path / "data", config='[boards.arcade]\nkeep = "sum"\n') as server, server.client() as client:
        assert client.get("/v1/boards/arcade").json()["keep"] == "sum"
    server = start(tmp_path / "data", config='[boards.arcade]\nkeep = "best"\n')
    assert server.process.wait(20) == 1
    assert "keep" in server.log.read_text()


def test_what_one_score_may_touch_is_limited(tmp_path: Path) -> None:
    config = "[limits]\ninstances_per_event_max = 4\n"
    fits = {"windows": ["all_time", "daily"], "scopes": ["country"]}
    with serving(tmp_path / "data", config=config) as server, server.client(server.admin_key) as admin:
        assert admin.put("/v1/boards/arcade", json=fits).status_code == 200
        refused = admin.put("/v1/boards/arcade", json={**fits, "scopes": ["country", "level"]})

    assert refused.status_code == 422
    assert refused.json()["errors"][0]["field"] == "windows, scopes"
    assert "touch 6 instances, and 4 is the most" in refused.json()["detail"]
    assert "raise instances_per_event_max" in refused.json()["detail"]
