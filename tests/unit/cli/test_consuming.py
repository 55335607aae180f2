"""`rankd consume`, `rankd dlq` and `rankd relay` before they reach a broker."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.cli.conftest import Run

import rankd

TOPICS = {
    "RANKD_CONSUME_URL": "kafka://127.0.0.1:1",
    "RANKD_CONSUME_TOPICS": "scores",
    "RANKD_OUTBOX_URL": "kafka://127.0.0.1:1",
}


@pytest.mark.parametrize("command", [("consume",), ("dlq", "list"), ("dlq", "replay"), ("dlq", "drop")])
def test_without_topics_they_say_what_to_set(run: Run, command: tuple[str, ...]) -> None:
    refused = run(*command)

    assert refused.exit_code == 1
    assert "consume.url" in refused.stderr
    assert "consume.topics" in refused.stderr


def test_without_brokers_relaying_says_what_to_set(run: Run) -> None:
    refused = run("relay")

    assert refused.exit_code == 1
    assert "outbox.url" in refused.stderr


@pytest.mark.parametrize("command", [("consume",), ("dlq", "list"), ("relay",)])
def test_they_make_no_folder_after_a_typing_mistake(
    run: Run, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    for name, value in TOPICS.items():
        monkeypatch.setenv(name, value)

    refused = run(*command, "--data", "scroes")

    assert refused.exit_code == 1
    assert "there are no boards in scroes" in refused.stderr
    assert not Path("scroes").exists()


@pytest.mark.parametrize("command", ["consume", "relay"])
def test_a_folder_in_use_names_who_has_it(run: Run, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    for name, value in TOPICS.items():
        monkeypatch.setenv(name, value)

    with rankd.open("scores"):
        refused = run(command, "--data", "scores")

    assert refused.exit_code == 4
    assert "scores is in use by process" in refused.stderr


def test_a_password_is_in_no_refusal(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANKD_CONSUME_URL", "kafka://rankd:hunter2@127.0.0.1:x")
    monkeypatch.setenv("RANKD_CONSUME_TOPICS", "scores")

    refused = run("dlq", "list")

    assert refused.exit_code == 1
    assert "hunter2" not in refused.stderr
