"""Whoever appends to a shared ledger waits for those who rank: the library, an import, a consumer of topics."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.servers.redis import RedisServer
from tests.servers.waiting import wait_until

from rankd.api.calls.bodies import Score
from rankd.boards import Boards
from rankd.errors import Behind
from rankd.intake.sender import Sender
from rankd.intake.sources import SourceIntake
from rankd.ledger.backlog import HOLD_MS_MAX, Backlog
from rankd.ledger.postgres.ledger import PostgresLedger
from rankd.node.open_appender import open_appender
from rankd.node.open_node import open_node
from rankd.node.open_thin import open_thin
from rankd.node.shared_stores import SharedStores
from rankd.operations.transfer.importing import import_scores

LAG_MAX_MS = 600
CONSUMER = Sender("kafka", "kafka")
OpenNode = Callable[[], Boards]


@pytest.fixture
def ledger_url(postgres_url: str) -> str:
    SharedStores(postgres_url).migrate()
    return postgres_url


@pytest.fixture
def backlog(ledger_url: str) -> Iterator[Backlog]:
    with closing(PostgresLedger(ledger_url)) as ledger:
        yield ledger.backlog


@pytest.fixture
def start_node(ledger_url: str, tmp_path: Path) -> OpenNode:
    return lambda: open_node(SharedStores(ledger_url), tmp_path / "node", lag_max_ms=LAG_MAX_MS)


@pytest.fixture(params=["node", "thin"])
def boards(request: pytest.FixtureRequest, ledger_url: str, start_node: OpenNode) -> Iterator[Boards]:
    """The library on a shared ledger, in a process that ranks and in one that does not."""
    if request.param == "node":
        opened = start_node()
    else:
        redis: RedisServer = request.getfixturevalue("own_redis")
        opened = open_thin(SharedStores(ledger_url), redis.url, lag_max_ms=0)  # there is no projector
    with opened:
        opened.define("arcade", keep="sum")
        yield opened


def is_refused(write: Callable[[], object]) -> bool:
    try:
        write()
    except Behind as refusal:
        return refusal.retry_after_s is not None
    return False


def test_the_library_obeys_a_hold_of_writes(boards: Boards, backlog: Backlog) -> None:
    assert backlog.hold(HOLD_MS_MAX, 0)
    wait_until(lambda: is_refused(lambda: boards.submit("arcade", "alice", 1)))
    assert is_refused(lambda: boards.submit_many("arcade", [("alice", 1), ("bob", 2)]))
    assert is_refused(lambda: boards.remove("arcade", "alice"))
    assert is_refused(lambda: boards.reset("arcade"))
    assert boards.define("arcade", keep="sum", title="Arcade").changed  # so can an operator close a flooded board
    backlog.release()
    wait_until(lambda: not is_refused(lambda: boards.submit_many("arcade", [("alice", 1)])))


def test_an_import_pauses_while_writes_are_held(start_node: OpenNode, backlog: Backlog, tmp_path: Path) -> None:
    scores = tmp_path / "scores.csv"
    scores.write_text("player,score\nalice,1\nbob,2\n")
    with start_node() as boards:
        boards.define("arcade", keep="sum")
        assert backlog.hold(2_000, 0)
        wait_until(lambda: is_refused(lambda: boards.submit("arcade", "carol", 1)))
        assert import_scores(boards, "arcade", scores, destination="here").imported == 2
    assert not backlog.read().is_held


def append(sources: SourceIntake) -> None:
    sources.append([Score(board="arcade", player="alice", score=1)], CONSUMER, [])


def test_a_consumer_waits_until_a_node_has_ranked_what_it_appended(
    ledger_url: str, backlog: Backlog, start_node: OpenNode
) -> None:
    with start_node() as node:
        node.define("arcade", keep="sum")
        with open_appender(SharedStores(ledger_url), lag_max_ms=LAG_MAX_MS) as sources:
            append(sources)
            head = node.position
            wait_until(lambda: node.position != head and node.rank("arcade", "alice") is not None)
    with open_appender(SharedStores(ledger_url), lag_max_ms=LAG_MAX_MS) as sources:
        wait_until(lambda: is_refused(lambda: append(sources)))  # nobody ranks
        with start_node():
            wait_until(lambda: not is_refused(lambda: append(sources)))
            assert backlog.hold(HOLD_MS_MAX, 0)
            wait_until(lambda: is_refused(lambda: append(sources)))
            backlog.release()


def test_a_consumer_of_an_installation_with_redis_waits_for_the_projector(
    ledger_url: str, own_redis: RedisServer
) -> None:
    with open_thin(SharedStores(ledger_url), own_redis.url, lag_max_ms=0) as thin:
        thin.define("arcade", keep="sum")
    with open_appender(SharedStores(ledger_url), ranks_url=own_redis.url, lag_max_ms=LAG_MAX_MS) as sources:
        wait_until(lambda: is_refused(lambda: append(sources)))
