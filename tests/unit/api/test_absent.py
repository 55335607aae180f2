"""Somebody who does not stand there: the answer says as of when."""

from __future__ import annotations

from pathlib import Path

import pytest

from .in_process import InProcess, in_process


@pytest.mark.parametrize("read", ["", "/around"])
def test_who_is_absent_is_so_as_of_a_position(read: str, tmp_path: Path) -> None:
    async def test(app: InProcess) -> None:
        app.boards.define("arcade")
        position = app.boards.submit("arcade", "alice", 5).position
        there = (await app.get(f"/v1/boards/arcade/players/alice{read}")).json()
        absent = await app.get(f"/v1/boards/arcade/players/bob{read}")
        problem = absent.json()

        assert (absent.status, problem["code"]) == (404, "player_absent")
        assert (problem["position"], problem["stale"]) == (position, False)
        assert problem["as_of"] >= there["as_of"]
        unknown = (await app.get(f"/v1/boards/nowhere/players/bob{read}")).json()
        assert not {"position", "as_of", "stale"} & unknown.keys()
        assert app.boards.rank("arcade", "bob") is None
        assert app.boards.around("arcade", "bob") is None

    in_process(tmp_path, test)
