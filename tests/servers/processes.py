"""Child processes that never outlive the test that started them."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import AnyStr

END_S = 30.0


@contextmanager
def killed_at_the_end(process: subprocess.Popen[AnyStr]) -> Iterator[subprocess.Popen[AnyStr]]:
    """Kill a process that is still running when the block ends; `Popen` itself would wait for it without a deadline."""
    try:
        yield process
    finally:
        process.kill()
        process.wait(END_S)
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
