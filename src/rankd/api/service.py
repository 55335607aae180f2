"""The parts that every call uses: boards, authentication, limits, and the threads behind the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from time import monotonic, time
from typing import Any, TypeVar

import msgspec

from rankd.api.auth.access import require_past_reader
from rankd.api.auth.authentication import Authenticator
from rankd.api.auth.identity import Identity
from rankd.api.auth.key_lookup import KeyLookup
from rankd.api.auth.rates import Rates
from rankd.api.auth.signing import Signatures
from rankd.api.auth.tickets import Tickets
from rankd.api.calls.call import Call, Cost
from rankd.api.committer import Committer
from rankd.api.http.addresses import limited_as
from rankd.api.http.body_limits import BodyBudget, BodyTimeouts
from rankd.api.http.caching import NO_STORE, Caching, matches
from rankd.api.http.eager import in_task
from rankd.api.http.request import Request, Response
from rankd.api.http.static import StaticBody
from rankd.api.live.connections import Live
from rankd.api.live.position_waiter import EVERY_BOARD, CommitNotifier, PositionWaiter, RankPoller
from rankd.api.live.streams import Streams, problem_data
from rankd.api.metrics import Commits, Scrapes
from rankd.api.reader import ReadDispatcher
from rankd.api.remote import KEPT_CALLS, RemoteReads, not_modified, tag_of
from rankd.api.work_queue import WorkQueue
from rankd.background import ThreadNeeded, require_thread
from rankd.boards import Boards
from rankd.config.model import Config
from rankd.domain.position import parse_positions
from rankd.errors import Overloaded, Unauthenticated
from rankd.intake.queue import Task
from rankd.intake.scores import ScoreTask
from rankd.push.hub import Hub
from rankd.reads.instance_ref import InstanceRef, include, not_ranked
from rankd.reads.past import being_worked_out
from rankd.reads.reads import Reads, at_least_beside_as_of

Result = TypeVar("Result")
THREADS_MAX = {Cost.CHEAP: 4, Cost.DEAR: 2}  # for work that would block the event loop
REMOTE_THREADS_MAX = {Cost.CHEAP: 8, Cost.DEAR: 8}  # where every read waits for another process
WAITING_MAX = 256  # callers that wait for a thread, by cost

Forward = Callable[[Request, dict[str, Any]], Awaitable[Response] | None]  # of a request and its scope
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
        self.committer = Committer(boards.enqueue, config.limits.requests_max, self.commits.observe)
        self.backpressure = boards.backpressure
        self.description = StaticBody(b"")  # set by the application, which knows every call
        self.docs_page = StaticBody(b"")
        self.docs_policy = b""
        self.rates: Rates | None = None
        self.live: Live | None = None  # until it is started
        self.exposition: Callable[[], bytes] = bytes  # set by the application, which knows all sources of metrics
        self.is_stopping = False
        self.forward: Forward | None = None  # on a worker that reads: the answer of the one that writes; None: its own
        self.take_ticket: Callable[[str], Awaitable[Identity]] | None = None
        threads_max = THREADS_MAX if boards.remote is None else REMOTE_THREADS_MAX
        self._queues = {cost: WorkQueue(f"rankd-{cost}", threads_max[cost], WAITING_MAX) for cost in Cost}
        # Not in a queue: metrics must be readable while the queues are full, and one collection at a time costs little.
        self.scrapes = Scrapes(lambda: asyncio.to_thread(self.exposition))
        self._loop = asyncio.get_running_loop()
        self.positions = PositionWaiter()
        self.remote: RemoteReads | None = None
        if boards.remote is None:
            if boards.archive is not None:
                boards.archive.before_find = require_thread
            notifier = CommitNotifier(self.positions, lambda: parse_positions(boards.position))
            boards.watch_commits(notifier.committed)
        else:
            self.remote = RemoteReads(config.ranks.cache_ms)
            # Heavy reads, and reads for which Redis is slow, use the threads of expensive calls: profiles do not wait.
            self.reader = ReadDispatcher(boards.remote, self._queues[Cost.DEAR].run)
            self._poller = RankPoller(self.positions, boards.remote)
        self._key_lookup = KeyLookup(authenticator.refresh)
        self._body_timeouts = BodyTimeouts(config.limits.body_read_ms)
        self._watching = self._loop.create_task(self._body_timeouts.run())
        limits = config.limits
        self.untrusted_bodies = BodyBudget(limits.untrusted_bodies_bytes_max, limits.body_bytes_max)
        self.service_bodies = BodyBudget(limits.bodies_bytes_max, max(limits.body_bytes_max, limits.batch_bytes_max))

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
        """Return the sender, by its credential or by a ticket; opening the stream uses the ticket up.

        An unknown API key is looked up before it is refused.
        """
        ticket = request.query.get("ticket")
        if ticket is not None and self.live is not None:
            tickets = self.live.tickets
            if self.take_ticket is not None and ticket not in tickets:
                tickets.take_over(ticket, await self.take_ticket(ticket))
            return tickets.identify(ticket)
        authorization, authenticator = request.headers.get(b"authorization"), self.authenticator
        try:
            return authenticator.identify(authorization)
        except Unauthenticated:
            digest = authenticator.unknown_key(authorization)
            if digest is None or not await self._key_lookup.finds(digest, authenticator.knows):
                raise
        return authenticator.identify(authorization)

    def stop(self) -> None:
        """Commit the queued writes, finish the running reads and refuse the waiting ones; blocks."""
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

    def body(self, request: Request, bytes_max: int | None = None) -> Awaitable[bytes]:
        """Return a request's body; `bytes_max` overrides the limit for services."""
        usual_max, identity = self.config.limits.body_bytes_max, request.identity
        bytes_max = usual_max if bytes_max is None else bytes_max
        holder = limited_as(request.address) if identity is None else identity.account
        if identity is not None and identity.is_service:
            return request.body(bytes_max, self._body_timeouts, self.service_bodies, holder)
        # Anyone can be a player: their bodies do not use the budget of services.
        return request.body(min(bytes_max, usual_max), self._body_timeouts, self.untrusted_bodies, holder)

    def in_thread(self, work: Callable[[], Result], cost: Cost = Cost.CHEAP) -> Awaitable[Result]:
        """Run work that takes milliseconds, or waits for the disk, in a thread; see `WorkQueue.run`."""
        return self._queues[cost].run(work)

    async def here_or_in_thread(self, work: Callable[[], Result], cost: Cost = Cost.CHEAP) -> Result:
        """Run short work on the event loop; repeat it in a thread if it raises ThreadNeeded."""
        try:
            return work()
        except ThreadNeeded:
            return await self.in_thread(work, cost)

    def write_delay_s(self, identity: Identity | None, events: int = 1) -> float:
        """Return how long a write has to wait while ranks are far behind the ledger; raise Behind to refuse it."""
        return self.backpressure.delay_s(_account(identity), events)

    def count_events(self, identity: Identity | None, events: int) -> None:
        """Count events of a write that was admitted before their number was known."""
        self.backpressure.count(_account(identity), events)

    def commit(self, task: Task) -> asyncio.Future[Any]:
        """Commit scores; the future has the answer once they are durable and ranked."""
        return self.committer.enqueue(task)

    def wrote(self, task: ScoreTask) -> None:
        """Record a write to the boards of a request: cached answers from before it are not used any more."""
        if self.remote is not None:
            for part in task.parts:
                self.remote.wrote(part.board_id)

    def count_scores(self, identity: Identity, address: str, count: int) -> None:
        """Count the scores of a player's batch against the player's limit; the request itself has been counted."""
        if self.rates is not None and count > 1:
            self.rates.take(True, identity.account, identity.is_service, identity.player, address, cost=count - 1)

    def count_read(self, identity: Identity | None, address: str) -> None:
        """Count a WebSocket connection, or a topic on one, as a read of its sender."""
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
        """Prepare a read: append due roll-overs, and wait for the position in `at_least`."""
        board = request.arguments[0]
        if self.boards.is_due(board):
            await self.in_thread(lambda: self.boards.roll_over(board))
        at_least = request.query.get("at_least")
        if at_least is not None and not await self._wait_for(at_least, request.arguments[0]):
            raise not_ranked(at_least)

    async def read_rank(self, work: Callable[[], Result]) -> Result:
        """Read ranks for the answer to a write: together with other reads where they are in another process."""
        return await (self.here_or_in_thread(work) if self.remote is None else self.reader.read(work))

    async def wait_ranked(self, wanted: Mapping[int, int], board: str, wait_ms: int) -> bool:
        """Wait until sequences, by partition, are ranked on a board; False after a timeout."""
        return await self.positions.wait(wanted, EVERY_BOARD if self.remote is None else board, wait_ms)

    async def _wait_for(self, at_least: str, board: str) -> bool:
        wanted, wait_on = parse_positions(at_least), board
        if self.remote is None:
            if self.boards.has_ranked(wanted, board):  # nearly always
                return True
            wait_on = EVERY_BOARD
        await self.here_or_in_thread(lambda: self.boards.board(board))  # refuse an unknown board without a wait
        return await self.positions.wait(wanted, wait_on, self.config.ranks.at_least_wait_ms)

    async def wait_for_ranked(self, position: str) -> None:
        """Wait for the position of an answer of another process, as long as readers do; it is an answer in any case."""
        wanted = parse_positions(position)
        if not self.boards.has_ranked(wanted):
            with suppress(Overloaded):
                await self.positions.wait(wanted, EVERY_BOARD, self.config.ranks.at_least_wait_ms)

    async def read_remotely(self, call: Call, request: Request) -> Response:
        """Answer a read of ranks that another process makes."""
        if self.remote is None:
            raise AssertionError("only where another process ranks")

        def read() -> Response:
            response = call.handler(self, request)
            if not isinstance(response, Response):
                raise AssertionError(f"{call.name} is no plain read")
            return response

        is_heavy = call.is_heavy is not None and call.is_heavy(request)
        if "at_least" in request.query or call.name not in KEPT_CALLS:
            return await (self.in_thread(read, call.cost) if is_heavy else self.reader.read(read))
        begin = self.reader.begin_alone if is_heavy else self.reader.begin
        key = (call.name, request.arguments[0], request.target)
        answer = await self.remote.answer(key, lambda done: begin(read, done))
        return not_modified(answer, request.headers.get(b"if-none-match"))

    async def past(self, request: Request) -> Reads:
        """Return the boards at the instant of a request; Behind while they are being worked out."""
        require_past_reader(request.identity)
        if "at_least" in request.query:
            raise at_least_beside_as_of()
        instant = request.needed_integer("as_of")
        state = self.boards.begin_past(instant)
        if not state.done():
            await in_task()
            waiting = asyncio.wrap_future(state)
            waiting.add_done_callback(lambda done: done.cancelled() or done.exception())  # nobody may wait by then
            await asyncio.wait({waiting}, timeout=self.config.ranks.as_of_wait_ms / 1_000)
            if not waiting.done():
                raise being_worked_out(instant)
        return state.result().reads

    def reads(self, request: Request) -> Reads:
        """Return the boards that a read is about: as they are, or as they were."""
        return self.boards if request.past is None else request.past

    def resolve(self, request: Request) -> InstanceRef:
        """Return the instance that a read is about; its board is the first in the path."""
        query = request.query
        if not query:
            return self.boards.resolve_now(request.arguments[0])
        ref = self.reads(request).resolve_now(
            request.arguments[0], query.get("window"), query.get("scope"), query.get("ranking")
        )
        return self.since(request, ref)

    def since(self, request: Request, ref: InstanceRef) -> InstanceRef:
        """Return an instance with the position that the answer must include."""
        at_least = request.query.get("at_least")
        return ref if at_least is None else include(ref, at_least)

    def answer(self, request: Request, ref: InstanceRef, read: Callable[[], object]) -> Response:
        """Answer a read; with 304 if the client has the current answer."""
        if "at_least" in request.query or request.past is not None:
            return Response(encode(read()), NO_STORE)
        if self.remote is not None:
            answer = read()
            if not isinstance(answer, msgspec.Struct):
                raise AssertionError("a read answers with a struct")
            return Response(encode(answer), self.caching.headers(request, ref, tag_of(answer)))
        tag = self.caching.tag(request, ref)
        headers = self.caching.headers(request, ref, tag)
        known = request.headers.get(b"if-none-match")
        if known is not None and headers is not NO_STORE and matches(known, tag):
            return Response(b"", headers, 304)
        return Response(encode(read()), headers)


def _account(identity: Identity | None) -> str:
    return "nobody" if identity is None else identity.account
