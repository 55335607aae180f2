"""`rankd token`: keys are made, listed and revoked, also beside a server."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import rankd
from rankd.clock import SystemClock
from rankd.registry.credentials import Scope
from rankd.registry.sqlite.credentials import SqliteCredentials

from .conftest import Run, words

Output = Callable[..., str]
DATA = ("--data", "scores")
DAY_MS = 86_400_000


def test_a_service_gets_a_key(done: Output) -> None:
    made = json.loads(done("token", *DATA, "--scope", "scores:write", "--json"))
    with SqliteCredentials(Path("scores"), SystemClock()) as credentials:
        credential = credentials.find(made["token"])

    assert credential is not None
    assert (credential.id, credential.name, credential.scopes) == (
        made["id"],
        made["name"],
        frozenset({Scope.SCORES_WRITE}),
    )
    assert credential.is_service


def test_in_a_pipe_there_is_the_token_and_nothing_else(done: Output) -> None:
    token = done("token", *DATA, "--scope", "boards:admin", "--name", "ops")
    with SqliteCredentials(Path("scores"), SystemClock()) as credentials:
        credential = credentials.find(token.strip())

    assert credential is not None
    assert credential.name == "ops"


def test_on_a_terminal_it_says_to_keep_it(done: Output) -> None:
    output = words(done("token", *DATA, "--player", "alice", "--expires", "30d", terminal=True))

    assert output.startswith("rk_")
    assert "for alice, until " in output
    assert "it is shown this once" in output


def test_a_player_gets_a_key_that_ends(done: Output) -> None:
    before = SystemClock().now()
    made = json.loads(done("token", *DATA, "--player", "alice", "--expires", "30d", "--json"))

    assert made["player"] == "alice"
    assert 0 <= made["expires_at"] - before - 30 * DAY_MS < 60_000


def test_a_key_is_made_while_the_folder_is_in_use(done: Output) -> None:
    with rankd.open("scores"):
        assert done("token", *DATA, "--scope", "scores:write").startswith("rk_")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ((), 2, "say what the key may do: --scope scores:write for a service, or --player PLAYER."),
        (("--scope", "scores:wirte"), 1, "scopes: must be among scores:write, "),
        (("--scope", "scores:write", "--player", "a"), 1, "player: cannot be given with scores:write"),
        (("--scope", "scores:write", "--expires", "soon"), 1, "--expires: must be a whole number and ms, s, m, h or d"),
        (("--scope", "scores:write", "--expires", "0s"), 1, "--expires: must be from 1s"),
        (("revoke", "0123"), 1, "--data: there are no keys in scores"),
        (("list",), 1, "--data: there are no keys in scores"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments: tuple[str, ...], code: int, message: str, run: Run) -> None:
    refused = run("token", *arguments, *DATA)

    assert refused.exit_code == code
    assert refused.stderr.startswith(f"error: {message}")


def test_keys_are_listed_without_their_secrets(done: Output) -> None:
    token = done("token", *DATA, "--scope", "scores:write", "--scope", "read", "--name", "game").strip()
    secret = done("token", "signing", "arcade-client", *DATA).strip()
    listed = json.loads(done("token", "list", *DATA, "--json"))
    lines = [line.split("\t") for line in done("token", "list", *DATA).splitlines()]
    table = done("token", "list", *DATA, terminal=True)

    assert ("game", ["read", "scores:write"]) in [(token["name"], token["scopes"]) for token in listed["tokens"]]
    assert [key["name"] for key in listed["signing_keys"]] == ["arcade-client"]
    assert [line[0] for line in lines] == ["token", "token", "signing"]  # the administrator's is the first
    assert "Signing keys" in table
    assert secret.startswith("rs_")
    assert not [text for text in (str(listed), str(lines), table) if token in text or secret in text]


def test_a_revoked_key_holds_no_longer(done: Output, run: Run) -> None:
    made = json.loads(done("token", *DATA, "--scope", "scores:write", "--json"))

    assert json.loads(done("token", "revoke", made["id"], *DATA, "--json")) == {"revoked": made["id"]}
    assert run("token", "revoke", made["id"], *DATA).exit_code == 1
    assert made["id"] not in done("token", "list", *DATA)


def test_a_signing_key_is_made_once_and_revoked_by_name(done: Output, run: Run) -> None:
    assert json.loads(done("token", "signing", "client", *DATA, "--json"))["secret"].startswith("rs_")
    assert "name: 'client' is a signing key already" in run("token", "signing", "client", *DATA).stderr
    done("token", "revoke", "--signing", "client", *DATA)
    assert run("token", "revoke", "--signing", "client", *DATA).exit_code == 1
