"""`rankd config`: a check that names mistakes, and a view that hides secrets."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path

from rankd.config.loading import load_config
from rankd.config.masking import shown
from rankd.config.model import Config

from .conftest import Run

Output = Callable[..., str]
SECRET = "s3cret-s3cret-s3cret-s3cret-s3cret"
NAMED = {"RANKD_AUTH_JWT_ISSUER": "my-game", "RANKD_AUTH_JWT_AUDIENCE": "rankd"}


def test_without_a_file_the_defaults_are_in_force(done: Output) -> None:
    assert done("config", "check") == "there is no rankd.toml: the defaults are in force\n"
    assert tomllib.loads(done("config", "show")) == {
        section: values for section, values in shown(Config()).items() if section != "boards"
    }


def test_a_good_file_is_said_to_be_good(done: Output) -> None:
    Path("rankd.toml").write_text("[boards.arcade]\n[boards.xp]\n")

    assert done("config", "check") == "rankd.toml is fine, with 2 boards\n"
    assert json.loads(done("config", "check", "--json", RANKD_SERVER_PORT="9000")) == {
        "file": "rankd.toml", "variables": ["RANKD_SERVER_PORT"], "boards": 2,
    }  # fmt: skip
    assert "✓" in done("config", "check", terminal=True)


def test_a_mistake_is_named_with_its_line(run: Run) -> None:
    Path("other.toml").write_text("[server]\nprot = 1\n")
    refused = run("config", "check", "--config", "other.toml")

    assert refused.exit_code == 1
    assert refused.stderr == "error: other.toml, line 2: server.prot: is not known; did you mean port?\n"


def test_what_a_server_would_refuse_is_refused(run: Run) -> None:
    """The keys of tokens are opened, as a server does."""
    refused = run("config", "check", RANKD_AUTH_JWT_SECRET=SECRET)
    assert (refused.exit_code, refused.stderr.split(":")[1]) == (1, " auth.jwt_issuer")

    Path("keys.pem").write_text("no key")
    refused = run("config", "check", RANKD_AUTH_JWT_PUBLIC_KEY="keys.pem", **NAMED)
    assert (refused.exit_code, "must be a file that begins with -----BEGIN PUBLIC KEY" in refused.stderr) == (1, True)


def test_the_file_may_be_named_by_a_variable(done: Output) -> None:
    Path("other.toml").write_text("[server]\nport = 9000\n")

    assert json.loads(done("config", "show", "--json", RANKD_CONFIG="other.toml"))["server"]["port"] == 9000


def test_what_is_shown_is_a_file_that_can_be_read(done: Output) -> None:
    Path("rankd.toml").write_text(
        '[server]\ncors_origins = ["https://a.example"]\n'
        '[boards."a.b"]\nkeep = {all_time = "best"}\nwindows = ["all_time"]\n'
        '[boards.cup]\nperiods = [{name = "may-26", start = 2026-05-01T00:00:00Z, end = "2026-06-01T00:00:00Z"}]\n'
    )
    Path("again.toml").write_text(done("config", "show", RANKD_SERVER_PORT="9000"))
    again = load_config("again.toml", {})

    assert again == load_config(None, {"RANKD_SERVER_PORT": "9000"})


def test_no_secret_is_shown(done: Output) -> None:
    for how in ((), ("--json",)):
        for terminal in (False, True):
            output = done("config", "show", *how, terminal=terminal, RANKD_AUTH_JWT_SECRET=SECRET, **NAMED)
            assert SECRET not in output
            assert "***" in output


def test_the_folder_of_the_command_line_is_shown_too(done: Output) -> None:
    assert json.loads(done("config", "show", "--json", "--data", "scores"))["ledger"]["url"] == "sqlite:scores"
