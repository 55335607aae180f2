"""The library's verbs by way of a real server, whose clock is still set by hand.

    step → OverHttp (rankd.Client) → loopback → HttpServer, on a thread → App → Boards with a ManualClock

What has no HTTP call (snapshot, settle, verify) goes to the boards directly. Answers that may be kept are asked for
again whenever something is read, as a cache would: see Cache.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Unpack, cast
from urllib.parse import parse_qs, urlsplit

import httpx
import msgspec
import uvloop
from prometheus_client.parser import text_string_to_metric_families

import rankd
from rankd.api.app import App
from rankd.api.auth.authentication import Authenticator
from rankd.api.auth.signing import Signatures
from rankd.api.http.server import HttpServer
from rankd.api.metrics import Metrics, Sources
from rankd.api.service import Service
from rankd.client.exchange import ClientRequest
from rankd.client.replies import ExchangeFailure, Reply
from rankd.clock import SystemClock
from rankd.config.model import Config, ServerConfig
from rankd.domain.position import parse_position
from rankd.reads.answers import Friends, Place, Ranks
from rankd.reads.instance_ref import ReadOptions
from rankd.registry.sqlite.credentials import ADMIN_KEY_FILE, SqliteCredentials, first_admin_key

from .steps import Difference, World

DEADLINE_S = 60.0
URLS_KEPT_MAX = 60
TAGS_KEPT_MAX = 12  # of one URL
ASKED_AGAIN = 8  # kept answers, after each read
BRIEF_MAX_AGE_S = 1
DECAY_STEP_MS = 1_000
NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # never used: it spares each client the reading of certificates


class Served:
    """Boards behind a server that listens on the loopback; a restart is to stop it and to make another."""

    def __init__(self, folder: Path, clock: rankd.ManualClock, scope_values_max: int) -> None:
        """It takes requests when this returns."""
        self.boards = rankd.open(folder, clock=clock, commit_wait_ms=0, scope_values_max=scope_values_max)
        self._folder = folder
        self._app = App(Config())
        self._port = free_port()
        self._loop = uvloop.new_event_loop()
        self._stopping = asyncio.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="served", daemon=True)
        self._thread.start()
        try:
            self._wait_until_ready()
        except BaseException:
            self.stop()
            raise

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def admin_key(self) -> str:
        return (self._folder / ADMIN_KEY_FILE).read_text().strip()

    @property
    def statuses(self) -> Counter[str]:
        """How many requests were answered with each status."""
        samples = [sample for family in self._app.routes.collect() for sample in family.samples]
        requests = [sample for sample in samples if sample.name == "rankd_requests_total"]
        counted: Counter[str] = Counter()
        for sample in requests:
            counted[sample.labels["status"]] += int(sample.value)
        return counted

    def stop(self) -> None:
        """Stop listening and close the boards; whoever called has closed their connections."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stopping.set)
            self._thread.join(DEADLINE_S)
            assert not self._thread.is_alive(), "the server does not stop"
        self.boards.close()
        if self._failure is not None:
            raise self._failure

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + DEADLINE_S
        with httpx.Client(base_url=self.url, verify=NO_TLS) as anybody:
            while self._thread.is_alive() and time.monotonic() < deadline:
                try:
                    if anybody.get("/readyz").status_code == 200:
                        return
                except httpx.TransportError:
                    pass
        raise AssertionError("the server is not ready") from self._failure

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._serve())
        except BaseException as problem:
            self._failure = problem

    async def _serve(self) -> None:
        server = HttpServer(self._app, Config(server=ServerConfig(port=self._port)))
        await server.start()
        with SqliteCredentials(self._folder, SystemClock()) as credentials:
            first_admin_key(self._folder, credentials)
            service = self._service(credentials)
            self._app.start(service)
            await self._stopping.wait()
            await self._loop.run_in_executor(None, service.stop)
            await server.stop()

    def _service(self, credentials: SqliteCredentials) -> Service:
        clock = SystemClock()  # of credentials: runs begin years before their key is made
        authenticator = Authenticator(credentials, None, clock)
        service = Service(self.boards, Config(), authenticator, Signatures(credentials, clock))
        boards = self.boards
        sources = Sources(
            requests_open=lambda: self._app.open,
            figures=boards.figures,
            queue_depth=lambda: service.committer.waiting,
            work_waiting=service.work_waiting,
            streams=lambda: 0,
            topics=lambda: 0,
            boards=lambda: len(boards.list()),
            board_entries=boards.entries_by_board,
            replay_events=lambda: boards.started.replayed,
            replay_seconds=lambda: boards.started.seconds,
            rate_refusals=lambda: self._app.rates.refusals,
        )
        service.exposition = Metrics(rankd.__version__, self._app.routes, service.commits, sources).text
        return service


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


class Said(NamedTuple):
    """An answer as far as a kept one must be like a fresh one."""

    status: int
    body: dict[str, Any]
    as_of: int | None  # kept apart: it moves on while nothing that is ranked changes, as `position` does

    @classmethod
    def of(cls, reply: Reply) -> Said:
        body: dict[str, Any] = msgspec.json.decode(reply.body)
        as_of = body.get("as_of")
        # A problem names its request.
        left_out = ("position", "as_of", "request_id")
        return cls(reply.status, {name: value for name, value in body.items() if name not in left_out}, as_of)

    def is_like(self, other: Said, decays: bool) -> bool:
        if (self.status, self.body) == (other.status, other.body):
            return True
        # A decaying score is less at every instant. Tags go by the second, which is how long any answer may be kept
        # without asking.
        if not decays or self.as_of is None or other.as_of is None:
            return False
        return self.as_of // DECAY_STEP_MS == other.as_of // DECAY_STEP_MS


@dataclass
class Cache:
    """What a cache on the way would keep, and whether it may: a 304 only comes for what is kept as it is now.

    It asks with all the tags it has for a URL, so a tag that comes back must come back with its answer. They outlive
    a restart, as they do in a cache.
    """

    ask: Callable[[str, str | None], Reply]  # a URL, with tags or without
    decays: Callable[[str], bool]  # the board of a URL
    kept: dict[str, dict[str, Said]] = field(default_factory=dict)  # by URL, the oldest first: answers by tag
    saved: int = 0  # answers that did not have to be sent again

    def see(self, url: str, fresh: Reply) -> None:
        """Take a fresh answer, and ask with the tags kept for its URL whether one of them still holds."""
        answer = Said.of(fresh)
        tags = self.kept.pop(url, {})
        if tags:
            self._ask_with(tags, url, answer)
        tag = fresh.headers.get("etag")
        if tag is not None:
            check_max_age(url, fresh)
            before = tags.pop(tag, answer)
            if not before.is_like(answer, self.decays(url)):
                raise Difference(f"{url} has the tag {tag} for\n    {answer}\nand had it for\n    {before}")
            tags[tag] = answer
        if tags:
            self.kept[url] = dict(list(tags.items())[-TAGS_KEPT_MAX:])
        if len(self.kept) > URLS_KEPT_MAX:
            del self.kept[next(iter(self.kept))]

    def look_again(self) -> None:
        """See what was not looked at for the longest time."""
        for url in list(self.kept)[:ASKED_AGAIN]:
            self.see(url, self.ask(url, None))

    def _ask_with(self, tags: dict[str, Said], url: str, answer: Said) -> None:
        reply = self.ask(url, ", ".join(tags))
        is_kept = reply.status == 304
        self.saved += is_kept
        given = tags[reply.headers["etag"]] if is_kept else Said.of(reply)
        if not given.is_like(answer, self.decays(url)):
            how = "is said to be as it was:" if is_kept else "answers who has another tag"
            raise Difference(f"{url} {how}\n    {given}\nand who has none\n    {answer}")


def check_max_age(url: str, fresh: Reply) -> None:
    """Only an answer whose URL means the same instance for ever may be kept for long."""
    age_s = int(fresh.headers["cache-control"].partition("max-age=")[2].partition(",")[0])
    query, window = parse_qs(urlsplit(url).query), msgspec.json.decode(fresh.body)["window"]
    is_named = query.get("window") == [window] or "cursor" in query or window.startswith("period:")
    assert age_s <= BRIEF_MAX_AGE_S or is_named, f"{url} means {window} for now, and may be kept for {age_s} s"


class OverHttp(rankd.Client):
    """A client with what a run needs beside: the calls that HTTP does not have, and the eyes of a cache."""

    def __init__(self, served: Served, cache: Cache) -> None:
        """Ask as an administrator."""
        super().__init__(served.url, served.admin_key, verify=NO_TLS)
        self._served = served
        self._cache = cache

    def close(self) -> None:
        """Stop the server and close its boards, as a restart does and the end of a run."""
        super().close()
        self._served.stop()

    # What has no call

    def settle(self) -> None:
        self._served.boards.settle()

    def snapshot(self) -> None:
        self._served.boards.snapshot()

    def verify(self) -> None:
        self._served.boards.verify()

    # Reads that nobody may keep ask for the last write as well: it is there, so they must answer the same at once

    def ranks(self, board: str, players: Sequence[str], **where: Unpack[ReadOptions]) -> Ranks:
        where["at_least"] = self._served.boards.position
        return super().ranks(board, players, **where)

    def friends(self, board: str, players: Sequence[str], **where: Unpack[ReadOptions]) -> Friends:
        where["at_least"] = self._served.boards.position
        return super().friends(board, players, **where)

    def friends_of(self, board: str, player: str, **where: Unpack[ReadOptions]) -> Friends:
        where["at_least"] = self._served.boards.position
        return super().friends_of(board, player, **where)

    def rank_of_score(self, board: str, score: int, *, tiebreak: int = 0, **where: Unpack[ReadOptions]) -> Place:
        where["at_least"] = self._served.boards.position
        return super().rank_of_score(board, score, tiebreak=tiebreak, **where)

    def _attempt(self, request: ClientRequest) -> Reply | ExchangeFailure:
        """Let the cache see every read that may be kept, or might once."""
        reply = super()._attempt(request)
        if request.method == "GET" and isinstance(reply, Reply):
            url = request.url.removeprefix(self._served.url)
            if "etag" in reply.headers or url in self._cache.kept:
                self._cache.see(url, reply)
            self._cache.look_again()
        return reply


@dataclass
class WorldOverHttp(World):
    """The library behind a server: what a step asks of `boards` goes over HTTP."""

    served: list[Served] = field(default_factory=list)  # one after the other, the last one runs
    anybody: httpx.Client = field(default_factory=lambda: httpx.Client(timeout=DEADLINE_S, verify=NO_TLS))
    cache: Cache = field(init=False)

    def __post_init__(self) -> None:
        self.cache = Cache(self._ask, self._decays)
        super().__post_init__()

    def open(self) -> None:
        self.served.append(Served(self.folder, self.clock, self.oracle.scope_values_max))
        client = OverHttp(self.served[-1], self.cache)
        self.boards = cast(rankd.Boards, client)  # that their verbs are the same is what is tested here

    def close(self) -> None:
        self.boards.close()
        self.anybody.close()

    def check_figures(self) -> None:
        """Compare what the server says of itself with its boards, and see that no request met a fault."""
        boards = self.served[-1].boards
        boards.settle()  # so that nothing is appended meanwhile
        assert self._get("/readyz").json()["position"] == boards.position
        families = text_string_to_metric_families(self._get("/metrics").text)
        figures = {sample.name: sample.value for family in families for sample in family.samples if not sample.labels}
        assert figures["rankd_position"] == parse_position(boards.position).sequence
        assert figures["rankd_boards"] == len(self.oracle.boards)
        statuses = sum((served.statuses for served in self.served), Counter[str]())
        faults = {status: number for status, number in statuses.items() if status >= "500" and status != "503"}
        assert statuses["200"] > 0
        assert not faults, f"a 5xx other than 503 is a bug: {faults}"

    def _get(self, url: str, headers: dict[str, str] | None = None) -> httpx.Response:
        return self.anybody.get(f"{self.served[-1].url}{url}", headers=headers)

    def _ask(self, url: str, tags: str | None) -> Reply:
        response = self._get(url, None if tags is None else {"If-None-Match": tags})
        return Reply(response.status_code, response.headers, response.content)

    def _decays(self, url: str) -> bool:
        life = self.oracle.boards.get(url.split("/")[3])
        return life is not None and bool(life.spec["decay"])
