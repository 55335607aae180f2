"""The committed stub is the one that the bindings generate."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
STUB = ROOT / "src" / "rankd" / "_engine.pyi"
GENERATE_WAIT_S = 60


def test_the_stub_is_the_one_the_bindings_generate(tmp_path: Path) -> None:
    fresh = tmp_path / STUB.name
    config = ROOT / "pyproject.toml"
    for command in (
        ["-m", "nanobind.stubgen", "-q", "-m", "rankd._engine", "-o", str(fresh)],
        ["-m", "ruff", "format", "--quiet", "--config", str(config), str(fresh)],
    ):
        subprocess.run([sys.executable, *command], check=True, timeout=GENERATE_WAIT_S)

    assert fresh.read_text() == STUB.read_text(), "the bindings have changed: renew the stub with `make stub`"
