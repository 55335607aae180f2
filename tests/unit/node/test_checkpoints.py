"""A node writes a checkpoint at a time, whoever asks for one."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.servers.waiting import WAIT_S

from rankd.node.open_node import CHECKPOINTS, open_node
from rankd.node.shared_stores import SharedStores

AT_ONCE = 8
PLAYERS = 20_000


def test_checkpoints_that_are_asked_for_at_once_are_written_one_after_the_other(
    postgres_url: str, tmp_path: Path
) -> None:
    SharedStores(postgres_url).migrate()
    with open_node(SharedStores(postgres_url), tmp_path) as boards:
        boards.define("arcade", windows=["all_time"])
        boards.submit_many("arcade", [(f"p{number}", number) for number in range(PLAYERS)])
        boards.settle()  # on a slow machine a node answers before it has ranked everything
        with ThreadPoolExecutor(AT_ONCE) as threads:
            for asked in [threads.submit(boards.snapshot) for _ in range(AT_ONCE)]:
                asked.result(WAIT_S)
        position = boards.position
    assert len(list((tmp_path / CHECKPOINTS).iterdir())) == 1
    with open_node(SharedStores(postgres_url), tmp_path) as boards:
        assert (boards.position, boards.started.replayed) == (position, 0)
