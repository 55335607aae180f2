"""No secret in any log, answer or listing: a whole run's output is searched for each of them."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import jwt

from rankd.api.auth.signing import sign

from .serving import serving

JWT_SECRET = "the-secret-that-signs-the-tokens-of-players"
METRICS_TOKEN = "the-token-that-prometheus-sends"
CONFIG = f"""
[server]
metrics_token = "{METRICS_TOKEN}"
log_requests = "all"
log_level = "debug"
[auth]
jwt_secret = "{JWT_SECRET}"
jwt_issuer = "game"
jwt_audience = "rankd"
"""


def run(*arguments: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "rankd", *arguments], capture_output=True, text=True, check=False, cwd=folder, timeout=60
    )
    return done.stdout + done.stderr


def test_no_secret_is_written_anywhere(tmp_path: Path) -> None:
    with serving(tmp_path / "data", config=CONFIG) as server:
        texts: list[str] = []
        made = json.loads(
            run("token", "--data", str(server.folder), "--scope", "scores:write", "--json", folder=tmp_path)
        )
        signing = json.loads(run("token", "signing", "relay", "--data", str(server.folder), "--json", folder=tmp_path))
        player = jwt.encode(
            {"sub": "alice", "iss": "game", "aud": "rankd", "exp": int(time.time()) + 600}, JWT_SECRET, "HS256"
        )
        secrets = {
            "admin key": server.admin_key,
            "service key": made["token"],
            "signing secret": signing["secret"],
            "JWT secret": JWT_SECRET,
            "token for figures": METRICS_TOKEN,
            "JWT": player,
        }
        server.assert_known(made["token"])
        with server.client(server.admin_key) as admin:
            texts.append(admin.put("/v1/boards/relayed", json={"signing": "relay", "writes": "players"}).text)
            texts.append(admin.put("/v1/boards/arcade", json={}).text)
            texts.append(admin.put("/v1/boards/bad", json={"signing": signing["secret"]}).text)
            texts.append(admin.get("/v1/boards/relayed").text)
            texts.append(admin.get(f"/v1/boards/{server.admin_key}").text)
            texts.append(admin.get("/metrics").text)
        for sent in (METRICS_TOKEN, f"{METRICS_TOKEN}x"):
            with server.client(sent) as prometheus:
                texts.append(prometheus.get("/metrics").text)
                texts.append(prometheus.get(f"/v1/boards/{sent[:20]}").text)
        assert "rankd_position" in texts[-4], "the token opens the figures"
        body = json.dumps({"board": "relayed", "score": 5}).encode()
        for token in (made["token"], player, player[:-3] + "abc", made["token"] + "x"):
            with server.client(token) as client:
                for path in ("/v1/boards/arcade/top", "/v1/nothing", f"/v1/boards/arcade/players/{token[:100]}"):
                    texts.append(
                        client.get(path).text.replace(token[:100], "") if token in path else client.get(path).text
                    )
                now = int(time.time())
                signature = sign(signing["secret"], now, "match-1", body)
                secrets.setdefault("signature", signature.removeprefix("v1="))
                headers = {
                    "Content-Type": "application/json",
                    "Idempotency-Key": "match-1",
                    "X-Rankd-Timestamp": str(now),
                    "X-Rankd-Signature": signature,
                }
                texts.append(client.post("/v1/scores", content=body, headers=headers).text)
                texts.append(client.post("/v1/scores", content=body + b" ", headers=headers).text)
        texts.append(run("token", "list", "--data", str(server.folder), folder=tmp_path))
        texts.append(run("config", "show", "--config", str(server.log.with_suffix(".toml")), folder=tmp_path))
        texts.append(run("token", "revoke", "nobody", "--data", str(server.folder), folder=tmp_path))
    log = server.log.read_text()

    assert "/v1/boards/arcade/top" in log, "the run was logged"
    for name, secret in secrets.items():
        assert secret not in log, f"the {name} stands in the log"
        for text in texts:
            assert secret not in text, f"the {name} stands in: {text[:300]}"
