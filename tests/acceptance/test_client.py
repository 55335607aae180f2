"""The clients against a server of its own process: the answers of the library, and what happens when one is lost."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import json
import socket
import subprocess
import sys
import threading
import time
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import msgspec
import pytest

import rankd
from rankd.client import AsyncClient, Client
from rankd.errors import Forbidden, InvalidValue, RankdError, Unauthenticated, Unavailable

WAIT_S = 60
NUMBER = itertools.count()
MOVING = {"as_of", "position", "next", "sequence", "sender", "origin"}  # what differs between one ledger and another
SERVICE = ("boards:admin", "scores:write", "players:write", "read")
SIGNING_KEY = "arcade-client"


class Served(NamedTuple):
    url: str
    token: str
    player_token: str  # of alice
    signing_secret: str


def run(*arguments: str) -> Any:
    command = [sys.executable, "-m", "rankd", *arguments, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def wait_until_ready(url: str, check: Callable[[], object]) -> None:
    deadline_s, pause = time.monotonic() + WAIT_S, threading.Event()
    with Client(url, retries_max=0) as client:
        while time.monotonic() < deadline_s:
            try:
                client.ready()
                return
            except Unavailable:
                check()
                pause.wait(0.05)
    pytest.fail("the server did not become ready in time")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("served")
    data = ("--data", str(folder / "data"))
    token = run("token", *data, *(f"--scope={scope}" for scope in SERVICE))["token"]
    player_token = run("token", *data, "--player", "alice")["token"]
    secret = run("token", "signing", SIGNING_KEY, *data)["secret"]
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "rankd", "serve", *data, "--port", str(port)]
    log = folder / "said.txt"
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, cwd=folder)
    url = f"http://127.0.0.1:{port}"
    try:
        wait_until_ready(url, lambda: process.poll() is None or pytest.fail(log.read_text()))
        yield Served(url, token, player_token, secret)
    finally:
        process.terminate()
        assert process.wait(WAIT_S) == 0, log.read_text()


class Waited:
    def __init__(self, client: AsyncClient, runner: asyncio.Runner) -> None:
        self._client = client
        self._runner = runner

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            made = method(*args, **kwargs)
            return self._runner.run(collected(made) if inspect.isasyncgen(made) else made)

        return call


async def collected(items: Any) -> list[Any]:
    return [item async for item in items]


@pytest.fixture(params=["Client", "AsyncClient"])
def client(request: pytest.FixtureRequest, served: Served) -> Iterator[Any]:
    if request.param == "Client":
        with Client(served.url, served.token) as client:
            yield client
        return
    with asyncio.Runner() as runner:
        waited = Waited(AsyncClient(served.url, served.token), runner)
        yield waited
        waited.close()


@pytest.fixture
def board() -> str:
    """A board that no other test has."""
    return f"arcade-{next(NUMBER)}"


def without(value: Any) -> Any:
    """Return plain values without what differs between one ledger and another."""
    if isinstance(value, dict):
        return {name: without(item) for name, item in value.items() if name not in MOVING}
    return [without(item) for item in value] if isinstance(value, list | tuple) else value


def outcome(call: Callable[[], Any]) -> Any:
    try:
        answer = call()
    except RankdError as problem:
        return (type(problem).__name__, getattr(problem, "field", None))
    kind = type(answer).__name__ if isinstance(answer, msgspec.Struct) else None  # one sequence is as good as another
    return (kind, without(msgspec.to_builtins(answer)))


def scenario(boards: Any, board: str, now: int) -> Iterator[Any]:
    """Yield what each of many calls answers, in an order that makes sense of them."""
    team, other = f"{board}.guilds", f"{board}.other"
    calls: list[Callable[[], Any]] = [
        lambda: boards.definition(board),
        lambda: boards.top(board),
        lambda: boards.define(team, team={"attribute": "guild", "by": "sum"}, ties="player", global_=True),
        lambda: boards.define(board, keep="best", windows=["all_time", "daily"], scopes=["country"], feeds=[team]),
        lambda: boards.define(board, keep="best", windows=["all_time", "daily"], scopes=["country"], feeds=[team]),
        lambda: boards.define(board, keep="sum", windows=["all_time", "daily"], scopes=["country"], feeds=[team]),
        lambda: boards.define(other, {"keep": "best", "order": "sideways"}),
        lambda: boards.define(other, {"ties": "value", "score_min": 0, "score_max": 100, "global": True}),
        lambda: boards.definition(board),
        lambda: [name for name in boards.list() if name.startswith(f"{board}")],
        lambda: [boards.list(board.upper()), list(boards.definitions(board))],
        lambda: boards.set_player("alice", name="Alice", country="BR", attributes={"guild": "red"}),
        lambda: boards.set_player("a/b %41?#+", name="Zoë"),
        lambda: boards.player("alice"),
        lambda: boards.player("nobody"),
        lambda: boards.submit(board, "alice", 976, at=now, metadata={"car": "red"}, key=f"{board}-1"),
        lambda: boards.submit(board, "alice", 976, at=now, metadata={"car": "red"}, key=f"{board}-1"),
        lambda: boards.submit(board, "alice", 977, at=now, key=f"{board}-1"),
        lambda: boards.submit(board, "alice", 975, at=now),
        lambda: boards.submit(board, "a/b %41?#+", 980, at=now, attributes={"country": "DE", "level": 7}),
        lambda: boards.submit(board, "bob", "965"),
        lambda: boards.submit(board, "bob", 965, at=1),
        lambda: boards.submit("no-such-board", "bob", 965),
        lambda: boards.submit_many(
            board, [{"player": "bob", "score": 965, "at": now}, {"player": "carol", "score": 940, "at": now}], key=board
        ),
        lambda: boards.submit_many(board, players=["dan", "eve"], scores=array("q", [940, 930]), at=now),
        lambda: boards.submit_many(other, [("dan", 5, 1), ("eve", 5, 2), ("fay", 5)]),
        lambda: boards.submit_many(other, [("dan", 5), ("eve", 101)]),
        lambda: boards.submit_many(other, players=["dan", "eve"], scores=[5, 101]),
        lambda: boards.top(board, 3),
        lambda: boards.top(board, 2, offset=1, scope="country:BR", window="daily"),
        lambda: boards.top(board, 0),
        lambda: boards.top(board, window="weekly"),
        lambda: boards.top(board, window="daily:yesterday"),
        lambda: boards.top(board, scope="level:7"),
        lambda: boards.top(board, ranking="fair"),
        lambda: boards.top(board, cursor="nonsense"),
        lambda: boards.top(board, at_least="nonsense"),
        lambda: boards.top(other, ranking="competition"),
        lambda: boards.top(team),
        lambda: boards.range(board, 2, 4),
        lambda: boards.range(board, 4, 2),
        lambda: boards.rank(board, "alice"),
        lambda: boards.rank(board, "a/b %41?#+", scope="country:DE"),
        lambda: boards.rank(board, "dan", ranking="dense"),
        lambda: boards.rank(board, "nobody"),
        lambda: boards.rank("no-such-board", "alice"),
        lambda: boards.around(board, "bob", above=1, below=2),
        lambda: boards.around(board, "nobody"),
        lambda: boards.around(board, "bob", above=101),
        lambda: boards.ranks(board, ["bob", "nobody", "alice", "bob"]),
        lambda: boards.ranks(board, [""]),
        lambda: boards.friends(board, ["bob", "nobody", "alice"]),
        lambda: boards.set_friends("alice", ["bob", "eve", "bob"]),
        lambda: boards.stored_friends("alice"),
        lambda: boards.friends_of(board, "alice"),
        lambda: boards.rank_of_score(board, 950),
        lambda: boards.rank_of_score(other, 5, tiebreak=2),
        lambda: boards.rank_of_score(other, 101),
        lambda: boards.distribution(board, buckets=4),
        lambda: boards.search("ali"),
        lambda: boards.search("zo", 1),
        lambda: boards.remove(board, "eve"),
        lambda: boards.remove(board, "eve"),
        lambda: boards.reset(board, window="daily"),
        lambda: boards.reset(board, window="weekly"),
        lambda: (boards.top(board).total, boards.top(board, window="daily").total),
        lambda: boards.delete(team),
        lambda: boards.delete(board),
        lambda: boards.delete(board),
        lambda: boards.delete(other),
    ]
    for call in calls:
        yield inspect.getsource(call).strip(), outcome(call)


def test_the_same_calls_have_the_same_answers_as_in_the_library(client: Any, board: str, tmp_path: Path) -> None:
    now = time.time_ns() // 1_000_000
    with rankd.open(tmp_path / "data") as boards:
        of_library = list(scenario(boards, board, now))
    of_client = list(scenario(client, board, now))

    for expected, answer in zip(of_library, of_client, strict=True):
        assert answer == expected


def test_events_of_several_boards_count_together(client: Any, board: str) -> None:
    client.define(board)
    client.define(f"{board}.b")
    sent = [{"board": board, "player": "a", "score": 1}, {"board": f"{board}.b", "player": "a", "score": 2}]

    assert client.submit_events(sent).count == 2
    assert (client.rank(board, "a").score, client.rank(f"{board}.b", "a").score) == (1, 2)


def test_an_import_goes_further_back_than_a_score_may(client: Any, board: str) -> None:
    client.define(board)
    long_ago = [{"player": "a", "score": 1, "at": 1_000_000_000_000}]
    with pytest.raises(ValueError, match="import older ones"):
        client.submit_many(board, long_ago)

    assert client.submit_many(board, long_ago, imported=True).count == 1


def test_a_read_can_wait_for_ones_own_write(client: Any, board: str) -> None:
    client.define(board)
    position = client.submit(board, "a", 1).position

    assert client.top(board, at_least=position).total == 1
    assert client.ready()


def test_entries_are_gone_through_page_by_page(client: Any, board: str) -> None:
    client.define(board, ties="player")
    client.submit_many(board, [(f"p{number:02}", number // 3) for number in range(25)])
    whole = client.top(board, 25).entries

    assert list(client.entries(board, 4)) == whole
    assert [len(page.entries) for page in client.pages(board, 10)] == [10, 10, 5]


def test_a_history_shows_what_was_sent(client: Any, board: str) -> None:
    client.define(board)
    for score in (1, 2, 3):
        client.submit(board, "historic", score, metadata={"try": score})
    events = client.history(board, "historic", 2)

    assert [(event.kind, event.board, event.score, event.metadata) for event in events] == [
        ("score", board, 3, {"try": 3}),
        ("score", board, 2, {"try": 2}),
    ]
    assert [event.score for event in client.history(board, "historic", before=events[-1].sequence)] == [1]
    page = client.audit(player="historic", board=board, kind="score", limit=2)
    older = client.audit(player="historic", board=board, kind="score", cursor=page.next)
    assert [(event.old_score, event.new_score) for event in (*page.events, *older.events)] == [
        (2, 3),
        (1, 2),
        (None, 1),
    ]
    with pytest.raises(InvalidValue, match="until: must not be before"):
        client.audit(since=2, until=1)


def test_a_player_submits_with_their_own_token(served: Served, client: Any, board: str) -> None:
    client.define(board, writes="players")
    with Client(served.url, served.player_token) as alice:
        assert alice.submit(board, None, 5).player == "alice"
        with pytest.raises(Forbidden):
            alice.submit(board, "bob", 5)
        with pytest.raises(Forbidden):
            alice.reset(board)


def test_a_token_that_does_not_hold_is_refused(served: Served, client: Any, board: str) -> None:
    client.define(board)
    for token in (None, "rk_nobody_has_this"):
        with Client(served.url, token) as stranger, pytest.raises(Unauthenticated):
            stranger.submit(board, "a", 1)


def test_a_board_that_wants_signatures_gets_them(served: Served, client: Any, board: str) -> None:
    client.define(board, signing=SIGNING_KEY)
    with pytest.raises(Forbidden):
        client.submit(board, "a", 1)
    with pytest.raises(Forbidden):
        client.submit(board, "a", 1, signing_secret="another")

    assert client.submit(board, "a", 1, signing_secret=served.signing_secret).rank == 1
    with Client(served.url, served.token, signing_secret=served.signing_secret) as signing:
        assert signing.submit_many(board, [("b", 2)]).count == 1


class LosingProxy:
    """Passes requests on and answers back, and loses as many of the first answers as a test asks."""

    def __init__(self, url: str) -> None:
        self.to_lose = 0
        self.lost: list[bytes] = []
        self.when_lost: Callable[[], object] = lambda: None
        self._upstream = ("127.0.0.1", int(url.rpartition(":")[2]))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._pass_on)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()

    def _pass_on(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            with client, client.makefile("rb") as incoming:
                request = whole_message(incoming)
                with socket.create_connection(self._upstream) as server, server.makefile("rb") as outgoing:
                    server.sendall(request)
                    answer = whole_message(outgoing)
                if self.to_lose:
                    self.to_lose -= 1
                    self.lost.append(answer)
                    self.when_lost()
                else:
                    client.sendall(answer)


def whole_message(incoming: BinaryIO) -> bytes:
    head, length = [], 0
    while (line := incoming.readline()) not in (b"\r\n", b""):
        head.append(line)
        if line.lower().startswith(b"content-length:"):
            length = int(line.partition(b":")[2])
    return b"".join(head) + b"\r\n" + incoming.read(length)


@pytest.fixture
def proxy(served: Served) -> Iterator[LosingProxy]:
    proxy = LosingProxy(served.url)
    yield proxy
    proxy.close()


@pytest.fixture
def lossy(served: Served, proxy: LosingProxy) -> Iterator[Client]:
    with Client(proxy.url, served.token) as client:
        yield client


def test_a_score_whose_answer_is_lost_counts_once(client: Any, lossy: Client, proxy: LosingProxy, board: str) -> None:
    client.define(board, keep="sum")
    proxy.to_lose = 2
    single = lossy.submit(board, "alice", 100)
    proxy.to_lose = 1
    many = lossy.submit_many(board, [("alice", 10), ("alice", 1)])

    assert [answer.split(b"\r\n")[0].split()[1] for answer in proxy.lost] == [b"200"] * 3
    assert (single.rank, single.score, single.repeated) == (1, 100, True)
    assert (many.count, many.repeated) == (2, True)
    assert client.rank(board, "alice").score == 111


@pytest.mark.parametrize("cleared", [("remove", "alice"), ("reset", "all_time")])
def test_what_clears_a_board_takes_no_later_score_when_its_answer_is_lost(
    client: Any, lossy: Client, proxy: LosingProxy, board: str, cleared: tuple[str, str]
) -> None:
    client.define(board)
    client.submit(board, "alice", 100)
    proxy.to_lose = 1
    proxy.when_lost = lambda: client.submit(board, "alice", 5)
    verb, about = cleared

    assert getattr(lossy, verb)(board, about).changed
    assert client.rank(board, "alice").score == 5


def test_a_deletion_whose_answer_is_lost_is_no_error(
    client: Any, lossy: Client, proxy: LosingProxy, board: str
) -> None:
    client.define(board)
    proxy.to_lose = 1

    assert lossy.delete(board).changed
    assert board not in client.list()
