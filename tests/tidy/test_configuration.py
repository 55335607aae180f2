"""docs/settings.md explains every key of rankd.toml, with the default and the variable it really has."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from rankd.config.loading import OTHER_VARIABLES, SECTIONS, VARIABLES, load_config

from .repository import ROOT, blocks

SETTINGS = ROOT / "docs" / "settings.md"
ROW = re.compile(r"^\| `(\w+\.\w+)` \| ([^|]+) \|([^|]*)\| ([^|]+) \|([^|]*)\| `(\w+)` \|$", re.MULTILINE)


def rows() -> list[tuple[str, ...]]:
    return ROW.findall(SETTINGS.read_text())


def written(default: object) -> str:
    """A default as the tables write it."""
    if default in ("", ()):
        return "none"
    if isinstance(default, bool):
        return str(default).lower()
    return str(default) if isinstance(default, int) else f"`{default}`"


def test_every_key_is_explained_with_its_default_in_the_order_of_the_code() -> None:
    keys = {
        f"{section}.{field.name}": written(field.default)
        for section, struct in SECTIONS.items()
        for field in msgspec.structs.fields(struct)
    }

    assert [(key, default.replace(",", "")) for key, default, *_ in rows()] == list(keys.items())


def test_every_variable_is_named_beside_its_key() -> None:
    assert {variable: key for key, *_, variable in rows()} == VARIABLES


def test_every_section_and_every_other_variable_has_its_place() -> None:
    text = SETTINGS.read_text()

    assert [section for section in SECTIONS if f"### `[{section}]`" not in text] == []
    assert [name for name in OTHER_VARIABLES if f"`{name}`" not in text] == []


def test_what_a_number_counts_is_said() -> None:
    wordless = {"server.port"}

    assert not [
        key for key, default, unit, *_ in rows() if default[0].isdigit() and not unit.strip() and key not in wordless
    ]


def test_the_example_can_be_loaded(tmp_path: Path) -> None:
    (example,) = blocks(SETTINGS, "toml")
    file = tmp_path / "rankd.toml"
    file.write_text(example)

    assert load_config(file, {}).boards["arcade"]["keep"] == "best"
