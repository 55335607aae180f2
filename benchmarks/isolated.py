"""Runs one measurement in a process of its own, so that its memory is nobody else's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TypeVar

import msgspec

ROOT = Path(__file__).resolve().parent.parent
ISOLATED_WAIT_S = 3_600.0

Result = TypeVar("Result")


def run_isolated(module: str, arguments: msgspec.Struct, result: type[Result]) -> Result:
    """Run `python -m module` with the arguments as JSON on its command line; what it prints last is the result."""
    done = subprocess.run(
        [sys.executable, "-m", module, msgspec.json.encode(arguments).decode()],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        timeout=ISOLATED_WAIT_S,
        check=True,
    )
    return msgspec.json.decode(done.stdout.splitlines()[-1], type=result)


def resident_bytes() -> int:
    """What this process holds in memory now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def resident_peak_bytes() -> int:
    """The most this process ever held in memory; not ru_maxrss, which a child inherits from its parent."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("the kernel does not tell the peak: no VmHWM in /proc/self/status")
