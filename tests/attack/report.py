"""`python -m tests.attack.report`: run every attack and print what was measured, as a table for docs/security.md.

Both forms by default, the short ones alone with `--short`. Attacks that succeeded are listed behind the table.
"""

from __future__ import annotations

import subprocess
import sys

from .bounds import COLUMNS
from .healthy import ROOT

RUN_S_MAX = 3_600


def table(written: str) -> list[str]:
    """Return the rows of the table among what pytest wrote."""
    rows = [line for line in written.splitlines() if line.startswith("| ")]
    return [rows[0], "|" + "---|" * len(COLUMNS), *rows[1:]] if rows else []


def main(arguments: list[str]) -> int:
    """Run them, and return pytest's exit status."""
    form = "not long" if "--short" in arguments else "long or not long"
    command = [sys.executable, "-m", "pytest", "-s", "-p", "no:randomly", "--tb=line", "-m", form, "tests/attack"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=RUN_S_MAX, check=False)
    succeeded = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    sys.stdout.write("\n".join([*table(done.stdout), "", *succeeded, ""]))
    return done.returncode


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
