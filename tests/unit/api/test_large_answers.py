"""Large answers are compressed beside the event loop."""

from __future__ import annotations

import gzip
import random
import time
from pathlib import Path

import msgspec
import pytest

from rankd.api.http.negotiation import GZIP_LEVEL
from rankd.api.work_queue import WorkQueue
from rankd.errors import Overloaded

from .in_process import InProcess as App
from .in_process import in_process as in_app
from .timed_app import in_process

ENTRIES = 1_000
METADATA_BYTES = 1_000
GZIP = b"gzip"


def test_a_large_top_is_compressed_beside_the_event_loop(tmp_path: Path) -> None:
    chosen = random.Random(5)
    with in_process(tmp_path / "data") as app:
        app.boards.define("arcade")
        for number in range(ENTRIES):
            note = chosen.randbytes(METADATA_BYTES // 2 - 10).hex()
            app.boards.submit("arcade", f"player-{number}", number, metadata={"note": note})
        answers = [
            app.ask("GET", "/v1/boards/arcade/top", query=b"limit=1000", headers={"accept-encoding": GZIP})
            for _ in range(3)
        ]
        text = gzip.decompress(answers[0].body)
        assert len(msgspec.json.decode(text)["entries"]) == ENTRIES
        assert min(answer.loop_s for answer in answers) < compressing_s(text) / 2


def compressing_s(text: bytes) -> float:
    """Return the processor time that compressing a text takes, on this machine."""
    began_s = time.thread_time()
    gzip.compress(text, GZIP_LEVEL)
    return time.thread_time() - began_s


def test_a_large_answer_goes_as_it_is_when_the_queue_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(app: App) -> None:
        app.service.exposition = lambda: b"figures " * 10_000
        assert (await app.get("/metrics", accept_encoding="gzip")).headers[b"content-encoding"] == GZIP

        async def refuse(*_: object) -> None:
            raise Overloaded("full")

        monkeypatch.setattr(WorkQueue, "run", refuse)
        plain = await app.get("/metrics", accept_encoding="gzip")
        assert plain.status == 200
        assert b"content-encoding" not in plain.headers
        assert plain.body == b"figures " * 10_000

    in_app(tmp_path, test)
