"""Steady load over HTTP on several API processes: keyed scores, sent until acknowledged, and what they add up to.

A request that was not acknowledged is sent again under its key, to another process; one of several that were is sent
again as well. So in the end each counts once, whatever happened to processes meanwhile.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Sequence
from typing import Any

import httpx
from tests.servers.load_bound import REQUESTS_MAX, LoadBound
from tests.servers.waiting import WAIT_S, join_all, wait_until

from rankd.domain.position import parse_positions, tokens

from .serving import Serving

BOARDS: dict[str, dict[str, Any]] = {
    "clans": {"team": {"attribute": "clan", "by": "sum"}, "keep": "sum"},
    "points": {"keep": "sum", "windows": ["all_time", "weekly"], "scopes": ["country"], "feeds": ["clans"]},
    "cut": {"keep": "sum", "shards": 3},
}
SCORED = ("points", "cut")
PLAYERS = 40
COUNTRIES = ["BR", "JP"]
CLANS = ["red", "blue", "green"]
WRITERS = 2
REPEATED_ONE_IN = 5
PAUSE_S = 0.02  # a load that leaves the processor to those who start beside it
TAKEN = (200, 202)
UNAVAILABLE, BEHIND = 503, 429


class KeyedLoad:
    """Writers and a reader in threads of their own, which go round among the given servers."""

    def __init__(self, servers: Sequence[Serving], admin: str, seed: int, *, knows_repeats: bool = True) -> None:
        """Where the ledger is a log, servers do not know repeats: those that rank do."""
        self._knows_repeats = knows_repeats
        self._servers = list(servers)
        self._admin = admin
        self._seed = seed
        self._lock = threading.Lock()
        self._may_go_on = threading.Event()
        self._idle = threading.Semaphore(0)
        self._stop = threading.Event()
        self._bound = LoadBound(REQUESTS_MAX)
        self._pause = threading.Event()
        self.sums: dict[str, Counter[str]] = {board: Counter() for board in BOARDS}
        self.upto: dict[int, int] = {}  # the positions that were acknowledged
        self.acknowledged = 0
        self.repeats = 0
        self.reads = 0
        self.answers: Counter[str] = Counter()  # that were not as they should be, by status and code
        self.refusals: dict[str, Counter[str]] = {}  # the same, by the address of the server
        self._threads = [threading.Thread(target=self._write, args=(number,)) for number in range(WRITERS)]
        self._threads.append(threading.Thread(target=self._read))
        self._may_go_on.set()
        for thread in self._threads:
            thread.start()

    def use(self, *servers: Serving) -> None:
        """Send to these from now on, and return when nothing is on its way to another."""
        self.pause()
        self._servers = list(servers)
        self.resume()

    def pause(self) -> None:
        """Return when everything that was sent is acknowledged, and nothing more is sent."""
        self._may_go_on.clear()
        for _ in self._threads:
            assert self._idle.acquire(timeout=60), self.answers

    def resume(self) -> None:
        self._may_go_on.set()

    def go_on_for(self, more: int = 80) -> None:
        """Return when so many more were acknowledged."""
        self._bound.renew()
        wanted = self.acknowledged + more
        wait_until(lambda: self.acknowledged >= wanted)

    def close(self) -> None:
        self._stop.set()
        self._may_go_on.set()
        join_all(self._threads)

    def check(self, *servers: Serving) -> None:
        """Fail unless every one of these servers ranks exactly what was acknowledged, and all answer the same."""
        self.pause()
        for board in BOARDS:
            expected = sorted(self.sums[board].items(), key=lambda item: -item[1])
            pages = []
            for server in servers:
                page = self._settled_page(server, board)
                pages.append([page["total"], page["entries"]])
                ranked = [(entry["player"], entry["score"]) for entry in page["entries"]]
                assert sorted(ranked) == sorted(expected), f"{board}, RANKD_SEED={self._seed}"
                assert [score for _, score in ranked] == [score for _, score in expected]
            assert all(page == pages[0] for page in pages), f"{board}, RANKD_SEED={self._seed}"
        self.resume()

    def _settled_page(self, server: Serving, board: str) -> dict[str, Any]:
        pages: list[dict[str, Any]] = []

        def is_there() -> bool:
            page = self._page(server, board)
            pages.extend([] if page is None else [page])
            return page is not None

        wait_until(is_there)
        return pages[0]

    def _page(self, server: Serving, board: str) -> dict[str, Any] | None:
        """Return everybody as of what was acknowledged; None while nobody has ranked that far."""
        with server.client() as client:
            where: dict[str, str | int] = {"at_least": tokens(self.upto), "limit": 100}
            answer = client.get(f"/v1/boards/{board}/top", params=where)
        page: dict[str, Any] = answer.json()
        return page if answer.status_code == httpx.codes.OK and not page["stale"] else None

    # Threads

    def _write(self, writer: int) -> None:
        chosen = random.Random(self._seed + writer)
        clients: dict[str, httpx.Client] = {}
        number = -1
        while self._bound.take() and self._wait_for_a_turn():
            number += 1
            board, player = chosen.choice(SCORED), f"p{chosen.randrange(PLAYERS):02}"
            attributes = {"country": chosen.choice(COUNTRIES), "clan": chosen.choice(CLANS)}
            points = chosen.randrange(1, 1_000)
            score: dict[str, Any] = {"board": board, "player": player, "score": points}
            if board == "points":
                score["attributes"] = attributes
            answer = self._send(clients, score, f"load-{writer}-{number}", number)
            if answer is None:
                break
            with self._lock:
                self.acknowledged += 1
                self.sums[board][player] += points
                if board == "points":
                    self.sums["clans"][attributes["clan"]] += points
                for partition, sequence in parse_positions(answer["position"]).items():
                    self.upto[partition] = max(sequence, self.upto.get(partition, 0))
            if chosen.randrange(REPEATED_ONE_IN) == 0:
                again = self._send(clients, score, f"load-{writer}-{number}", number + 1)
                with self._lock:
                    self.repeats += 1
                    if again is None or (
                        self._knows_repeats and (again["repeated"], again["position"]) != (True, answer["position"])
                    ):
                        self.answers[f"counted twice: {answer} {again}"] += 1
            self._pause.wait(PAUSE_S)
        for client in clients.values():
            client.close()

    def _send(self, clients: dict[str, httpx.Client], score: Any, key: str, turn: int) -> dict[str, Any] | None:
        """Send a score until it is acknowledged; None when it is refused."""
        attempts = LoadBound(REQUESTS_MAX)
        while attempts.take():
            server = self._servers[turn % len(self._servers)]
            turn += 1
            client = clients.get(server.url) or clients.setdefault(server.url, server.client(self._admin))
            try:
                answer = client.post("/v1/scores", json=score, headers={"Idempotency-Key": key})
            except httpx.TransportError as problem:
                self._note(server, type(problem).__name__)
                continue
            if answer.status_code in TAKEN:
                return dict(answer.json())
            self._note(server, f"{answer.status_code} {answer.json()['code']}")
            if answer.status_code == BEHIND:
                self._pause.wait(float(answer.headers["Retry-After"]))
            elif answer.status_code != UNAVAILABLE:
                break
        return None

    def _read(self) -> None:
        clients: dict[str, httpx.Client] = {}
        number = -1
        while self._bound.take() and self._wait_for_a_turn():
            number += 1
            server = self._servers[number % len(self._servers)]
            client = clients.get(server.url) or clients.setdefault(server.url, server.client())
            for path in ("top", f"players/p{number % PLAYERS:02}", "distribution"):
                try:
                    answer = client.get(f"/v1/boards/{SCORED[number % 2]}/{path}")
                except httpx.TransportError as problem:
                    self._note(server, type(problem).__name__)
                    continue
                self.reads += 1
                if answer.status_code not in (200, 404):
                    self._note(server, f"{answer.status_code} {answer.json()['code']}")
            self._pause.wait(PAUSE_S)
        for client in clients.values():
            client.close()

    def _note(self, server: Serving, problem: str) -> None:
        with self._lock:
            self.answers[problem] += 1
            self.refusals.setdefault(server.url, Counter())[problem] += 1

    def _wait_for_a_turn(self) -> bool:
        """Wait while everybody shall; tell whether to go on."""
        if not self._may_go_on.is_set():
            self._idle.release()
            assert self._may_go_on.wait(WAIT_S)
        return not self._stop.is_set()
