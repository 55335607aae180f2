"""Embedded installations with some of everything, for tests of a move."""

from __future__ import annotations

import random
from pathlib import Path

import rankd
from rankd.clock import SystemClock
from rankd.node.open_embedded import embedded_of
from rankd.projection.placement import is_team_scope
from rankd.projection.verify import digests
from rankd.registry.sqlite.credentials import SqliteCredentials, first_admin_key

NOON = 1_777_896_000_000  # 2026-05-04T12:00Z, a Monday
DAY = 86_400_000


def fill(folder: Path, seed: int) -> dict[str, tuple[int, int]]:
    """Make an installation with some of everything, and return what it ranks."""
    rng = random.Random(seed)
    clock = rankd.ManualClock(NOON)
    with rankd.open(folder, clock=clock) as boards:
        boards.define("arcade", windows=["all_time", "daily", "weekly"], scopes=["country"])
        boards.define("guilds", team={"attribute": "guild", "by": "sum"}, keep="sum", windows=["all_time"])
        boards.define("xp", keep={"daily": "best", "weekly": "sum_of_daily"}, windows=["weekly", "daily"])
        for _ in range(40):
            player = f"p{rng.randrange(30)}"
            boards.submit("arcade", player, rng.randrange(1_000), attributes={"country": rng.choice(["BR", "FR"])})
            boards.submit("guilds", player, rng.randrange(9), attributes={"guild": rng.choice("xyz")})
            boards.submit_many("xp", [(f"p{rng.randrange(30)}", rng.randrange(100)) for _ in range(5)])
            clock.advance(rng.randrange(DAY // 4))
        boards.submit("arcade", "ann", 5_000, metadata={"level": 3})
        boards.remove("arcade", "p1")
        boards.reset("xp", "daily")
        boards.set_player("ann", name="Ann", country="FR")
        boards.set_friends("ann", ["p2", "p3"])
        ranked = digests(embedded_of(boards).rank_store)
    with SqliteCredentials(folder, SystemClock()) as credentials:
        first_admin_key(folder, credentials)
    return {text: digest for text, digest in ranked.items() if not is_team_scope(text)}
