"""The demonstration keeps to itself."""

from __future__ import annotations

from pathlib import Path

import pytest

import rankd.demo
from rankd.config.loading import data_folder
from rankd.config.model import Config

from .conftest import Run


@pytest.mark.parametrize(
    ("arguments", "folder"),
    [((), "rankd-demo"), (("--data", "rankd-data"), "rankd-data"), (("--data", "mine"), "mine")],
)
def test_it_has_a_folder_of_its_own_unless_one_is_named(
    run: Run, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], folder: str
) -> None:
    shown: list[Config] = []
    monkeypatch.setattr(rankd.demo, "run", shown.append)
    assert run("demo", *arguments).exit_code == 0

    assert [data_folder(config) for config in shown] == [Path(folder)]


def test_a_folder_that_the_configuration_names_is_taken(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[Config] = []
    monkeypatch.setattr(rankd.demo, "run", shown.append)
    Path("rankd.toml").write_text('[ledger]\nurl = "sqlite:elsewhere"\n')
    assert run("demo").exit_code == 0

    assert [data_folder(config) for config in shown] == [Path("elsewhere")]
