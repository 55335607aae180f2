"""Clients that believe every message end with exactly the server's table, however often they are cut off.

Random scores, removals, resets, deletions, profiles and friends; clients of both kinds that watch several topics, read
when they please, vanish and come back with the last id they have; and a server that is killed in between. When all is
quiet, what each client has made of its messages is compared with the matching read.

A failure prints its seed: `RANKD_SEED=<seed>` before the same command makes the same choices again.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from tests.acceptance.live_clients import Event, EventStream, Socket, Table, entries_of
from tests.acceptance.serving import Serving, start

from .extent import LONG, scratch_folder

FRESH_SEEDS = 1
STEPS = 500
LONG_RUNS = 20
LONG_STEPS = 4_000
QUIET_EVERY = 100  # steps
QUIET_S = 20.0
INTERVAL_MS = 10
STAYS_SO_S = 5 * INTERVAL_MS / 1_000
CLIENTS = 6
CONFIG = f"""
[push]
push_interval_ms = {INTERVAL_MS}
"""
BOARD: dict[str, Any] = {"keep": "latest", "windows": ["all_time", "weekly"], "scopes": ["country"]}
PLAYERS = [f"player {number}" for number in range(14)]
COUNTRIES = ("BR", "NO")
READS = {
    "top:arcade": "/v1/boards/arcade/top",
    "top:arcade@weekly": "/v1/boards/arcade/top?window=weekly",
    "top:arcade@weekly@country:BR": "/v1/boards/arcade/top?window=weekly&scope=country:BR",
    "top:arcade@@country:NO": "/v1/boards/arcade/top?scope=country:NO",
    **{f"player:arcade:{player}": f"/v1/boards/arcade/players/{quote(player)}" for player in PLAYERS[:3]},
    **{f"friends:arcade:{player}": f"/v1/boards/arcade/players/{quote(player)}/friends" for player in PLAYERS[:2]},
}


class Client:
    """Somebody who watches, over one connection after the other."""

    def __init__(self, rng: random.Random, kind: str) -> None:
        self.rng = rng
        self.kind = kind
        self.topics = rng.sample(list(READS), rng.randrange(1, 5))
        self.tables = self.new_tables()
        self.link: EventStream | Socket | None = None
        self.last_id: str | None = None
        self.resumed = 0
        self.changes = 0

    def new_tables(self) -> dict[str, Table]:
        return {topic: Table(skips_repeats=self.kind == "ws") for topic in self.topics}

    def connect(self, server: Serving) -> None:
        """Come, or come back with what there is; a board that is not there now is asked for again later."""
        if self.rng.random() < 0.1:
            self.forget()
        key = server.admin_key
        if self.kind == "ws":
            self.link = Socket(server.url, key)
            for topic in self.topics:
                self.link.subscribe(topic, self.tables[topic].last_id)
        else:
            stream = EventStream(server.url, *self.topics, token=key, since=self.last_id).open()
            if stream.status != 200:
                assert stream.status == 404, stream.body()
                stream.close()
                return
            self.link = stream
        self.resumed += self.last_id is not None

    def forget(self) -> None:
        """Begin anew, as a page that is loaded again."""
        self.tables = self.new_tables()
        self.last_id = None

    def subscribe_otherwise(self) -> None:
        """Leave a topic for a while, or come back to it."""
        if not isinstance(self.link, Socket):
            return
        topic = self.rng.choice(self.topics)
        self.link.unsubscribe(topic)
        self.read(self.rng.randrange(5))
        self.link.subscribe(topic, self.tables[topic].last_id)

    def read(self, at_most: int, timeout_s: float = 0.0) -> int:
        """Take some messages in; return how many there were."""
        taken = 0
        while self.link is not None and taken < at_most and (event := self.link.next(timeout_s)) is not None:
            taken += 1
            self.take(event)
        return taken

    def take(self, event: Event) -> None:
        if event.type == "error":  # the board is not there now
            assert event.data["status"] == 404, event
            self.lose()
            return
        if event.type == "end":
            self.lose()
            return
        self.changes += event.type == "change"
        self.tables[event.topic].apply(event)
        self.last_id = event.id

    def lose(self) -> None:
        """Lose the connection, and with it what was not read yet."""
        if self.link is not None:
            self.link.close() if self.rng.random() < 0.3 else self.link.abort()
            self.link = None


class Play:
    """One run."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.rng = random.Random(seed)
        self.folder = folder
        self.server = start(folder, config=CONFIG)
        self.server.wait_until_ready()
        self.admin = self.server.client(self.server.admin_key)
        self.clients = [Client(self.rng, "ws" if number % 2 else "sse") for number in range(CLIENTS)]
        self.steps: list[tuple[Callable[[], None], int]] = [
            (self.score, 40),
            (self.scores, 8),
            (self.remove, 8),
            (self.reset, 3),
            (self.delete, 1),
            (self.profile, 5),
            (self.friends, 3),
            (self.read, 30),
            (self.lose, 10),
            (self.come_back, 25),
            (self.subscribe_otherwise, 8),
        ]
        self.define()

    def close(self) -> None:
        for client in self.clients:
            client.lose()
        self.admin.close()
        if self.server.process.poll() is None:
            self.server.stop(signal.SIGKILL)

    def run(self, steps: int) -> None:
        acts = [act for act, _ in self.steps]
        weights = [weight for _, weight in self.steps]
        killed_at = self.rng.randrange(steps)
        for step in range(1, steps + 1):
            self.rng.choices(acts, weights)[0]()
            if step == killed_at:
                self.kill()
            if step % QUIET_EVERY == 0 or step == steps:
                self.compare()

    # What happens

    def ask(self, method: str, path: str, body: object = None, *statuses: int) -> httpx.Response:
        answer = self.admin.request(method, path, json=body) if body is not None else self.admin.request(method, path)
        assert answer.status_code in (200, *statuses), answer.text
        return answer

    def define(self) -> None:
        self.ask("PUT", "/v1/boards/arcade", BOARD)

    def event(self) -> dict[str, Any]:
        rng = self.rng
        event: dict[str, Any] = {"board": "arcade", "player": rng.choice(PLAYERS), "score": rng.randrange(50)}
        if rng.random() < 0.5:
            event["attributes"] = {"country": rng.choice(COUNTRIES)}
        if rng.random() < 0.1:
            event["metadata"] = {"replay": rng.randrange(3)}
        return event

    def score(self) -> None:
        self.ask("POST", "/v1/scores", self.event(), 404)

    def scores(self) -> None:
        events = [self.event() for _ in range(self.rng.randrange(1, 30))]
        self.ask("POST", "/v1/scores/batch", {"events": events}, 404)

    def remove(self) -> None:
        self.ask("DELETE", f"/v1/boards/arcade/players/{quote(self.rng.choice(PLAYERS))}", None, 404)

    def reset(self) -> None:
        self.ask("POST", "/v1/boards/arcade/reset", self.rng.choice([{}, {"window": "weekly"}]), 404)

    def delete(self) -> None:
        self.ask("DELETE", "/v1/boards/arcade", None, 404)
        if self.rng.random() < 0.7:
            self.read()
        self.define()

    def profile(self) -> None:
        name = self.rng.choice(["Ann", "Bob", None])
        self.ask("PUT", f"/v1/players/{quote(self.rng.choice(PLAYERS))}", {} if name is None else {"name": name})

    def friends(self) -> None:
        listed = self.rng.sample(PLAYERS, self.rng.randrange(8))
        self.ask("PUT", f"/v1/players/{quote(self.rng.choice(PLAYERS[:2]))}/friends", {"players": listed})

    def read(self) -> None:
        for client in self.rng.sample(self.clients, self.rng.randrange(1, CLIENTS)):
            client.read(self.rng.randrange(1, 12))

    def lose(self) -> None:
        self.rng.choice(self.clients).lose()

    def come_back(self) -> None:
        away = [client for client in self.clients if client.link is None]
        if away:
            self.rng.choice(away).connect(self.server)

    def subscribe_otherwise(self) -> None:
        self.rng.choice(self.clients).subscribe_otherwise()

    def kill(self) -> None:
        """Kill the server and start another on the same folder: its clients come back with ids it never gave."""
        port = int(self.server.url.rpartition(":")[2])
        self.server.stop(signal.SIGKILL)
        for client in self.clients:
            client.read(1_000)
            client.lose()
        self.server = start(self.folder, port=port, config=CONFIG)
        self.server.wait_until_ready()

    # What must hold

    def compare(self) -> None:
        """Let everybody read what is left: then they have what the server answers, and keep it."""
        self.define()
        for client in self.clients:
            if client.link is None:
                client.connect(self.server)
        expected = {topic: self.expected(topic) for topic in READS}
        deadline = time.monotonic() + QUIET_S
        for client in self.clients:
            while not self.is_right(client, expected):
                assert time.monotonic() < deadline, self.difference(client, expected)
                client.read(1, timeout_s=STAYS_SO_S)
                if client.link is None:
                    client.connect(self.server)
        for client in self.clients:
            while client.read(100, timeout_s=STAYS_SO_S):
                pass
            assert self.is_right(client, expected), self.difference(client, expected)

    def expected(self, topic: str) -> tuple[dict[str, Any], int]:
        answer = self.ask("GET", READS[topic], None, 404)
        body = answer.json()
        if answer.status_code == 404:  # a player who does not stand there
            assert body["code"] == "player_absent", body
            return {}, self.ask("GET", "/v1/boards/arcade/top").json()["total"]
        return entries_of(body), body["total"]

    def is_right(self, client: Client, expected: dict[str, tuple[dict[str, Any], int]]) -> bool:
        return all((table.entries, table.total) == expected[topic] for topic, table in client.tables.items())

    def difference(self, client: Client, expected: dict[str, tuple[dict[str, Any], int]]) -> str:
        lines = [f"{client.kind}, at {client.last_id}, link {client.link}:"]
        for topic, table in client.tables.items():
            if (table.entries, table.total) != expected[topic]:
                lines += [f"{topic} at {table.last_id}", f"  has {table.entries}, {table.total}"]
                lines += [f"  and not {expected[topic][0]}, {expected[topic][1]}"]
        return "\n".join(lines)


@pytest.fixture
def folder() -> Iterator[Path]:
    with scratch_folder() as scratch:
        yield scratch


def seeds(number: int) -> list[int]:
    """Return new seeds, or the one to play again."""
    if "RANKD_SEED" in os.environ:
        return [int(os.environ["RANKD_SEED"])]
    return [random.randrange(2**32) for _ in range(number)]


@pytest.mark.parametrize(
    ("runs", "steps"),
    [
        pytest.param(LONG_RUNS if LONG else FRESH_SEEDS, LONG_STEPS if LONG else STEPS, id="sample"),
        pytest.param(LONG_RUNS, LONG_STEPS, id="everything", marks=pytest.mark.long),
    ],
)
def test_whoever_believes_every_message_ends_with_the_servers_table(runs: int, steps: int, folder: Path) -> None:
    for seed in seeds(runs):
        sys.stdout.write(f"seed {seed}\n")
        play(seed, steps, folder / str(seed))


def play(seed: int, steps: int, folder: Path) -> None:
    run = Play(seed, folder)
    try:
        run.run(steps)
    except BaseException as error:
        error.add_note(
            f"play it again: RANKD_SEED={seed} .venv/bin/python -m pytest {__file__.rpartition('/tests/')[2]}"
        )
        raise
    finally:
        run.close()
    assert sum(client.resumed for client in run.clients) > 0, "nobody ever came back, so nothing was learnt"
    assert sum(client.changes for client in run.clients) > 0
