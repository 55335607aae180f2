"""What every call needs: the boards, who may do what, and the way from the event loop to the disk and back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic, perf_counter, time
from typing import TypeVar

import msgspec

from rankd.api.addresses import limited_as
from rankd.api.authentication import Authenticator
from rankd.api.body_limits import BodyBudget, BodyTimeouts
from rankd.api.caching import NO_STORE, Caching, matches
from rankd.api.calls import Call, Cost
from rankd.api.committer import Committer
from rankd.api.identity import Identity
from rankd.api.key_lookup import KeyLookup
from rankd.api.live import Live
from rankd.api.metrics import Commits, Scrapes
from rankd.api.position_waiter import EVERY_BOARD, CommitNotifier, PositionWaiter, RankPoller
from rankd.api.rates import Rates
from rankd.api.reader import Reader
from rankd.api.remote import KEPT_CALLS, RemoteReads, not_modified, tag_of
from rankd.api.request import Request, Response
from rankd.api.signing import Signatures
from rankd.api.static import StaticBody
from rankd.api.streams import Streams, problem_data
from rankd.api.tickets import Tickets
from rankd.api.work_queue import WorkQueue
from rankd.background import ThreadNeeded
from rankd.boards import Boards
from rankd.config.model import Config
from rankd.domain.position import parse_positions
from rankd.errors import Unauthenticated
from rankd.intake.queue import Task
from rankd.intake.scores import ScoreTask
from rankd.push.hub import Hub
from rankd.reads.meaning import Meant, not_ranked

Result = TypeVar("Result")
THREADS_MAX = {Cost.CHEAP: 4, Cost.DEAR: 2}  # for what would hold the event loop up
REMOTE_THREADS_MAX = {Cost.CHEAP: 8, Cost.DEAR: 8}  # where every read waits for another process
WAITING_MAX = 256  # for a thread of one kind

encode = msgspec.json.Encoder().encode


class Service:
    """The boards as the API's handlers use them; on the event loop, unless a method says otherwise."""

    def __init__(
        self,
        boards: Boards,
        config: Config,
        authenticator: Authenticator,
        signatures: Signatures,
    ) -> None:
        """The boards have caught up with their ledger."""
        self.boards = boards
        self.config = config
        self.authenticator = authenticator
        self.signatures = signatures
        self.caching = Caching(boards, is_public=config.server.public_read)
        self.commits = Commits()
        self.committer = Committer(self._commit, config.limits.requests_max)
        self.description = StaticBody(b"")  # of every call, set by whoever knows them
        self.docs_page = StaticBody(b"")
        self.docs_policy = b""
        self.rates: Rates | None = None
        self.live: Live | None = None  # until it is started
        self.exposition: Callable[[], bytes] = bytes  # of all figures, set by whoever knows where they are
        self.is_stopping = False
        threads_max = THREADS_MAX if boards.remote is None else REMOTE_THREADS_MAX
        self._queues = {cost: WorkQueue(f"rankd-{cost}", threads_max[cost], WAITING_MAX) for cost in Cost}
        # In no queue: figures are wanted most when those are full, and one collection at a time costs little.
        self.scrapes = Scrapes(lambda: asyncio.to_thread(self.exposition))
        self._loop = asyncio.get_running_loop()
        self.positions = PositionWaiter()
        self.remote: RemoteReads | None = None
        if boards.remote is None:
            notifier = CommitNotifier(self.positions, lambda: parse_positions(boards.position))
            boards.watch_commits(notifier.committed)
        else:
            self.remote = RemoteReads(config.ranks.cache_ms)
            # Alone are heavy reads, and those that Redis keeps waiting: neither may keep profiles waiting.
            self.reader = Reader(boards.remote, self._queues[Cost.DEAR].run)
            self._poller = RankPoller(self.positions, boards.remote)
        self._key_lookup = KeyLookup(authenticator.refresh)
        self._body_timeouts = BodyTimeouts(config.limits.body_read_ms)
        self._watching = self._loop.create_task(self._body_timeouts.run())
        limits = config.limits
        self.untrusted_bodies = BodyBudget(limits.untrusted_bodies_bytes_max, limits.body_bytes_max)
        self.service_bodies = BodyBudget(limits.bodies_bytes_max, max(limits.body_bytes_max, limits.batch_bytes_max))

    def _commit(self, tasks: list[Task]) -> None:
        began = perf_counter()
        self.boards.commit(tasks)
        self.commits.observe(sum(task.events for task in tasks), perf_counter() - began)

    def go_live(self) -> Live:
        """Begin to serve live connections."""
        push = self.config.push
        hub = Hub(self.boards, push.push_interval_ms, self.in_thread, self.here_or_in_thread, problem_data)
        streams = Streams(
            push.streams_max, push.streams_per_address_max, time, is_revoked=self.authenticator.is_revoked
        )
        self.live = Live(
            hub,
            streams,
            Tickets(monotonic, self.authenticator.check),
            self.count_read,
            public_read=self.config.server.public_read,
            interval_ms=push.push_interval_ms,
        )
        self.live.start()
        return self.live

    async def identify(self, request: Request) -> Identity | None:
        """Return who asks, by a credential or by a ticket, which is used when its stream is opened.

        An unknown API key is looked up before it is refused.
        """
        ticket = request.query.get("ticket")
        if ticket is not None and self.live is not None:
            return self.live.tickets.identify(ticket)
        authorization, authenticator = request.headers.get(b"authorization"), self.authenticator
        try:
            return authenticator.identify(authorization)
        except Unauthenticated:
            digest = authenticator.unknown_key(authorization)
            if digest is None or not await self._key_lookup.finds(digest, authenticator.knows):
                raise
        return authenticator.identify(authorization)

    def stop(self) -> None:
        """Commit what was handed in, finish the reads that have begun and refuse those that wait; blocks."""
        self._loop.call_soon_threadsafe(self._watching.cancel)
        self._loop.call_soon_threadsafe(self._key_lookup.stop)
        self._loop.call_soon_threadsafe(self.positions.stop)
        self.committer.stop()
        if self.remote is not None:
            self._poller.stop()
            self.reader.stop()
        for work_queue in self._queues.values():
            work_queue.stop()

    def work_waiting(self) -> dict[str, int]:
        """Return how many requests wait for a thread, by their cost."""
        return {cost.value: work_queue.waiting for cost, work_queue in self._queues.items()}

    async def body(self, request: Request, bytes_max: int | None = None) -> bytes:
        """Return a request's body; `bytes_max` is a limit for services, where it is another one."""
        usual_max, identity = self.config.limits.body_bytes_max, request.identity
        bytes_max = usual_max if bytes_max is None else bytes_max
        holder = limited_as(request.address) if identity is None else identity.account
        if identity is not None and identity.is_service:
            return await request.body(bytes_max, self._body_timeouts, self.service_bodies, holder)
        # Anybody may be a player: what players send takes nothing from services.
        return await request.body(min(bytes_max, usual_max), self._body_timeouts, self.untrusted_bodies, holder)

    async def in_thread(self, work: Callable[[], Result], cost: Cost = Cost.CHEAP) -> Result:
        """Do what takes milliseconds, or waits for the disk, beside the event loop; see `WorkQueue.run`."""
        return await self._queues[cost].run(work)

    async def here_or_in_thread(self, work: Callable[[], Result], cost: Cost = Cost.CHEAP) -> Result:
        """Do what takes microseconds on the event loop; in a thread where it turns out to wait for another process."""
        try:
            return work()
        except ThreadNeeded:
            return await self.in_thread(work, cost)

    async def commit(self, task: Task) -> object:
        """Commit scores and return the answer, once they are durable and ranked."""
        return await self.committer.hand_in(task)

    def wrote(self, task: ScoreTask) -> None:
        """Note that the boards of a request were written to: whoever wrote does not read what was read before."""
        if self.remote is not None:
            for part in task.parts:
                self.remote.wrote(part.board_id)

    def count_scores(self, identity: Identity, address: str, count: int) -> None:
        """Count the scores of a player's batch against the player's limit; the request itself has been counted."""
        if self.rates is not None and count > 1:
            self.rates.take(True, identity.account, identity.is_service, identity.player, address, cost=count - 1)

    def count_read(self, identity: Identity | None, address: str) -> None:
        """Count what is no request of its own and reads all the same: a WebSocket connection, and each topic on it."""
        if self.rates is None:
            return
        if identity is None:
            self.rates.take(False, None, False, None, address)
        else:
            self.rates.take(False, identity.account, identity.is_service, identity.player, address)

    def count_list(self, identity: Identity) -> None:
        """Count a list of friends against the limit of the player who stores it; services have none."""
        if self.rates is not None and identity.player is not None:
            self.rates.take_list(identity.player)

    async def catch_up(self, request: Request) -> None:
        """Do what must come before a read: roll-overs that are due, and the position it asks for."""
        if self.boards.is_due():
            await self.in_thread(self.boards.roll_over)
        at_least = request.query.get("at_least")
        if at_least is not None and not await self._wait_for(at_least, request.arguments[0]):
            raise not_ranked(at_least)

    async def _wait_for(self, at_least: str, board: str) -> bool:
        wanted, wait_on = parse_positions(at_least), board
        if self.remote is None:
            if self.boards.has_ranked(wanted, board):  # as nearly everything is that an answer spoke of
                return True
            wait_on = EVERY_BOARD
        await self.here_or_in_thread(lambda: self.boards.board(board))  # nobody waits for one that does not exist
        return await self.positions.wait(wanted, wait_on, self.config.ranks.at_least_wait_ms)

    async def read_remotely(self, call: Call, request: Request) -> Response:
        """Answer a read of ranks that are in another process."""
        if self.remote is None:
            raise AssertionError("only where ranks are elsewhere")

        def read() -> Response:
            found = call.handler(self, request)
            if not isinstance(found, Response):
                raise AssertionError(f"{call.name} is no plain read")
            return found

        is_heavy = call.is_heavy is not None and call.is_heavy(request)
        if "at_least" in request.query or call.name not in KEPT_CALLS:
            return await (self.in_thread(read, call.cost) if is_heavy else self.reader.read(read))
        begin = self.reader.begin_alone if is_heavy else self.reader.begin
        key = (call.name, request.arguments[0], request.target)
        answer = await self.remote.answer(key, lambda done: begin(read, done))
        return not_modified(answer, request.headers.get(b"if-none-match"))

    def meant(self, request: Request) -> Meant:
        """Return the instance that a read is about; its board is the first in the path."""
        query = request.query
        if not query:
            return self.boards.meant_now(request.arguments[0])
        meant = self.boards.meant_now(
            request.arguments[0], query.get("window"), query.get("scope"), query.get("ranking")
        )
        return self.since(request, meant)

    def since(self, request: Request, meant: Meant) -> Meant:
        """Return what a read is about, to be answered from nothing before the position it asks for."""
        at_least = request.query.get("at_least")
        return meant if at_least is None else meant._replace(since=parse_positions(at_least))

    def answer(self, request: Request, meant: Meant, read: Callable[[], object]) -> Response:
        """Answer a read, or say that the client has the answer already."""
        if "at_least" in request.query:
            return Response(encode(read()), NO_STORE)
        if self.remote is not None:
            found = read()
            if not isinstance(found, msgspec.Struct):
                raise AssertionError("a read answers with a struct")
            return Response(encode(found), self.caching.headers(request, meant, tag_of(found)))
        tag = self.caching.tag(request, meant)
        headers = self.caching.headers(request, meant, tag)
        known = request.headers.get(b"if-none-match")
        if known is not None and headers is not NO_STORE and matches(known, tag):
            return Response(b"", headers, 304)
        return Response(encode(read()), headers)
