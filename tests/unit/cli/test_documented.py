"""docs/command-line.md speaks of the commands there are, and of what they end with."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

from typer.main import get_command

from rankd.cli.exits import ExitCode
from rankd.cli.main import app

TEXT = (Path(__file__).resolve().parents[3] / "docs" / "command-line.md").read_text()


def test_every_command_is_explained() -> None:
    commands = getattr(get_command(app), "commands", {})
    table = TEXT[: TEXT.index("## Which boards")]

    assert [name for name in commands if not re.search(rf"`(?:rankd )?{name}\b", table)] == []


def test_every_exit_code_is_explained() -> None:
    section = TEXT[TEXT.index("## Exit codes") :]

    assert [int(code) for code in re.findall(r"^\| (\d+) \|", section, re.MULTILINE)] == [
        int(code) for code in ExitCode
    ]


def test_every_example_is_a_command_with_options_it_has() -> None:
    examples = re.findall(r"^rankd (.+)$", TEXT, re.MULTILINE)
    assert len(examples) >= 5
    for example in examples:
        words = shlex.split(example)
        command: Any = get_command(app)
        while words and words[0] in getattr(command, "commands", {}):
            command = command.commands[words.pop(0)]
        known = {option for parameter in command.params for option in parameter.opts}
        assert command.name != "rankd"
        assert {word for word in words if word.startswith("--")} <= known, example
