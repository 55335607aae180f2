"""Imports one file in a process of its own, and prints what came of it and how much memory it took."""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path

import rankd
from rankd.errors import InvalidValue
from rankd.operations.transfer import import_scores

ADDRESSES_BYTES_MAX = 4 * 1024**3  # so that a fault fails the test, and not the machine


def main() -> None:
    """Arguments: a data folder, and the file."""
    folder, path = sys.argv[1:]
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES_BYTES_MAX, ADDRESSES_BYTES_MAX))
    with rankd.open(folder) as boards:
        boards.define("arcade")
        try:
            report = import_scores(boards, "arcade", path, skip_bad_lines=True)
            output = {
                "lines": report.lines,
                "imported": report.imported,
                "problems": [bad.problem for bad in report.bad],
            }
        except InvalidValue as problem:
            output = {"refused": str(problem)}
    output["own_bytes"] = own_bytes_max()
    output["worker_bytes"] = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    sys.stdout.write(json.dumps(output))


def own_bytes_max() -> int:
    """Return the most memory this program had; `ru_maxrss` would count that of the one which started it."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


if __name__ == "__main__":
    main()
