"""A player's course over HTTP: what is asked, who may, and what the clients make of it."""

from __future__ import annotations

from pathlib import Path

import rankd
from rankd.client import calls
from rankd.config.model import Config, ServerConfig

from .in_process import InProcess, in_process

DAY_MS = 86_400_000
NOON = 1_777_896_000_000


def played(folder: Path) -> None:
    """Let alice play for five days."""
    clock = rankd.ManualClock(NOON)
    with rankd.open(folder, clock=clock) as boards:
        boards.define("arcade", windows=["weekly", "all_time"], history={"top": "all"})
        for day in range(5):
            boards.submit_many("arcade", [("alice", 10 + day), ("bob", 12)])
            clock.advance(DAY_MS)
        boards.settle()


def test_a_course_is_answered_with_points_finals_and_the_best(tmp_path: Path) -> None:
    played(tmp_path)

    async def test(app: InProcess) -> None:
        path = "/v1/boards/arcade/players/alice/course"
        reply = await app.get(f"{path}?to={NOON + 100 * DAY_MS}")
        assert reply.status == 200
        course = reply.json()
        assert [point["rank"] for point in course["points"]] == [2, 2, 2, 1, 1]
        assert course["best"] == course["points"][3]
        assert course["finals"] == [
            {
                "window": "weekly:2026-W19",
                "ends_at": NOON + 6 * DAY_MS + DAY_MS // 2,
                "rank": 1,
                "score": 14,
                "total": 2,
                "percentile": 50.0,
                "top_percent": 50.0,
            }
        ]
        assert (course["window"], course["scope"]) == ("weekly", "global")
        assert reply.headers[b"cache-control"] == b"no-store"
        call = calls.course("arcade", "alice", window="weekly", since=0, until=NOON + DAY_MS, limit=5)
        decoded = call.decode((await app.get(call.target)).body)
        assert [point.rank for point in decoded.points] == [2]
        for query, field in (("from=-1", "from"), ("to=x", "to"), ("from=5&to=4", "to"), ("limit=0", "limit")):
            refused = await app.get(f"{path}?{query}")
            assert (refused.status, refused.json()["errors"][0]["field"]) == (422, field)
        assert (await app.get(f"{path}?window=yearly")).status == 404
        assert (await app.get("/v1/boards/words/players/alice/course")).status == 404
        nobody = await app.get("/v1/boards/arcade/players/nobody/course")
        assert (nobody.status, nobody.json()["points"], nobody.json()["best"]) == (200, [], None)

    in_process(tmp_path, test)


def test_it_is_as_private_as_a_rank(tmp_path: Path) -> None:
    played(tmp_path)

    async def test(app: InProcess) -> None:
        path = "/v1/boards/arcade/players/alice/course"
        own = app.credentials.create("alice's phone", [], player="alice")[1]
        other = app.credentials.create("bob's phone", [], player="bob")[1]
        service = app.credentials.create("game", ["scores:write"])[1]
        assert (await app.get(path)).status == 401
        assert (await app.get(path, authorization=f"Bearer {other}")).status == 403
        assert (await app.get(path, authorization=f"Bearer {own}")).status == 200
        assert (await app.get(path, authorization=f"Bearer {service}")).status == 200

    in_process(tmp_path, test, Config(server=ServerConfig(public_read=False)))
