"""`rankd demo`: a server with some boards, and simulated players who submit scores."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Iterator
from typing import Any

import msgspec

from rankd.boards import Boards
from rankd.config.model import Config
from rankd.demo.crowd import Person, crowd
from rankd.errors import RankdError
from rankd.serving import serve

PEOPLE = 3_000
PAST_GAMES = 12_000  # played before the start
GAMES_PER_S = 30.0
DAY_MS = 86_400_000
SEED = 8_731
BOARDS: dict[str, dict[str, Any]] = {
    "arcade": {
        "title": "Arcade",
        "description": "The best score counts.",
        "windows": ["daily", "weekly", "all_time"],
        "scopes": ["country"],
        "feeds": ["guilds"],
    },
    "sprint": {
        "title": "Sprint",
        "description": "The fastest lap, in seconds.",
        "order": "asc",
        "decimals": 3,
        "windows": ["daily", "all_time"],
        "scopes": ["country"],
        "score_min": 1,
    },
    "steps": {
        "title": "Steps of the week",
        "description": "All steps add up.",
        "keep": "sum",
        "windows": ["weekly", "daily"],
        "score_min": 0,
        "score_max": 10_000_000,
    },
    "guilds": {
        "title": "Guilds",
        "description": "A guild is as strong as the best games of its members together.",
        "team": {"attribute": "guild", "by": "sum"},
        "windows": ["weekly", "all_time"],
    },
}
_log = logging.getLogger("rankd")


def run(config: Config) -> None:
    """Serve the demonstration's boards, with players."""
    serve(msgspec.structs.replace(config, boards={**BOARDS, **config.boards}), background=play)


def play(boards: Boards, stopping: threading.Event) -> None:
    """Submit scores until `stopping` is set."""
    rng = random.Random(SEED)  # noqa: S311 - a game, not a secret
    people = crowd(PEOPLE, rng)
    if boards.top("arcade", 1).total == 0:
        for person in people:
            boards.set_player(person.id, name=person.name, country=person.country, attributes={"guild": person.guild})
            if stopping.is_set():
                return
        _log.info("created %d players", len(people))
        for board, games in _past(boards, people, rng):
            boards.submit_many(board, games, imported=True, sender="demo")
    keenness = [person.keenness for person in people]
    rng = random.Random()  # noqa: S311 - a game, not a secret
    while not stopping.wait(rng.expovariate(GAMES_PER_S)):
        person = rng.choices(people, keenness)[0]
        board = rng.choices(("arcade", "sprint", "steps"), (5, 3, 2))[0]
        try:
            boards.submit(board, person.id, score_of(board, person, rng), sender="demo")
        except RankdError as problem:
            _log.warning("a score of the demonstration was not counted: %s", problem)


def score_of(board: str, person: Person, rng: random.Random) -> int:
    """Return the score of one game."""
    form = person.skill * rng.lognormvariate(0, 0.25)
    if board == "sprint":
        return max(1, int(62_000 / form**0.4))
    if board == "steps":
        return int(900 * form)
    return int(4_200 * form**1.6) // 10 * 10


def _past(boards: Boards, people: list[Person], rng: random.Random) -> Iterator[tuple[str, list[dict[str, object]]]]:
    """Yield games of the last days, in windows that are still open."""
    now = boards.top("arcade", 1).as_of
    keenness = [person.keenness for person in people]
    for board, share in (("arcade", 0.5), ("sprint", 0.3), ("steps", 0.2)):
        games: list[dict[str, object]] = []
        for person in rng.choices(people, keenness, k=int(PAST_GAMES * share)):
            at = now - int(rng.triangular(0, DAY_MS * 3, DAY_MS // 4))
            games.append({"player": person.id, "score": score_of(board, person, rng), "at": at})
        games.sort(key=lambda game: int(str(game["at"])))
        yield board, games
