"""The committed stubs are those that the bindings generate."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
GENERATE_WAIT_S = 60


@pytest.mark.parametrize("module", ["_columns", "_engine", "_numbers"])
def test_the_stub_is_the_one_the_bindings_generate(tmp_path: Path, module: str) -> None:
    stub = ROOT / "src" / "rankd" / f"{module}.pyi"
    fresh = tmp_path / stub.name
    config = ROOT / "pyproject.toml"
    for command in (
        ["-m", "nanobind.stubgen", "-q", "-m", f"rankd.{module}", "-o", str(fresh)],
        ["-m", "ruff", "format", "--quiet", "--config", str(config), str(fresh)],
    ):
        subprocess.run([sys.executable, *command], check=True, timeout=GENERATE_WAIT_S)

    assert fresh.read_text() == stub.read_text(), "the bindings have changed: renew the stub with `make stub`"
