"""A whole benchmark at its smallest size, as a person would run it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
SMOKE_WAIT_S = 240


def smoke_report(group: str, folder: Path) -> dict[str, Any]:
    """Run one group and return its report."""
    path = folder / "smoke.json"
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "--smoke", "--only", group, "--json", str(path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=SMOKE_WAIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    loaded: dict[str, Any] = json.loads(path.read_text())
    return loaded


def rows_of(report: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the rows of a report by name."""
    return {row["name"]: row for row in report["rows"]}
