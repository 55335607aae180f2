"""A server of Redis that is away is left alone for a moment, and the others are asked as ever."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from rankd.errors import RanksUnavailable
from rankd.redis.connection.breaker import AWAY_S, FORGOTTEN_S, Breaker
from rankd.redis.connection.client import FunctionCall


class Servers:
    """Keys begin with the name of their server; those that are away do not answer."""

    def __init__(self) -> None:
        self.away: set[str] = set()
        self.is_refusing = False
        self.asked: list[str] = []

    def node_of(self, key: bytes) -> str:
        return key.decode().split(":")[0]

    def call_all(self, calls: Sequence[FunctionCall]) -> list[Any]:
        names = [self.node_of(call.keys[0]) for call in calls]
        self.asked += names
        if self.is_refusing:
            raise RanksUnavailable("a function failed")
        for name in names:
            if name in self.away:
                raise RanksUnavailable(f"{name} refused the connection", away=name)
        return names

    def call_each(self, calls: Sequence[FunctionCall]) -> list[Any]:
        outcomes: list[Any] = []
        for call in calls:
            try:
                outcomes += self.call_all([call])
            except RanksUnavailable as problem:
                outcomes.append(problem)
        return outcomes


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def calls_of(*names: str) -> list[FunctionCall]:
    return [FunctionCall("rankd_read", [f"{name}:board".encode()]) for name in names]


@pytest.fixture
def servers() -> Servers:
    return Servers()


@pytest.fixture
def now() -> Clock:
    return Clock()


@pytest.fixture
def breaker(servers: Servers, now: Clock) -> Breaker:
    return Breaker(servers, now=now)


def fail(breaker: Breaker, *names: str) -> None:
    with pytest.raises(RanksUnavailable):
        breaker.call_all(calls_of(*names))


def test_a_server_that_is_away_is_not_asked_again_for_a_moment(breaker: Breaker, servers: Servers) -> None:
    servers.away = {"one"}
    fail(breaker, "one")
    fail(breaker, "one")
    fail(breaker, "two", "one")
    assert servers.asked == ["one"]


def test_others_are_asked_while_one_is_away(breaker: Breaker, servers: Servers) -> None:
    servers.away = {"one"}
    fail(breaker, "one", "two")
    assert breaker.call_all(calls_of("two", "three")) == ["two", "three"]
    assert breaker.away == ("one",)


def test_after_a_moment_one_call_looks_whether_it_is_back(breaker: Breaker, servers: Servers, now: Clock) -> None:
    servers.away = {"one"}
    fail(breaker, "one")
    now.now += AWAY_S
    fail(breaker, "one")
    fail(breaker, "one")
    assert servers.asked == ["one"] * 2

    servers.away = set()
    now.now += AWAY_S
    assert breaker.call_all(calls_of("one")) == ["one"]
    assert breaker.call_all(calls_of("one")) == ["one"]
    assert not breaker.away


def test_an_answer_that_is_an_error_holds_nobody_off(breaker: Breaker, servers: Servers) -> None:
    servers.is_refusing = True
    fail(breaker, "one")
    assert not breaker.away
    servers.is_refusing = False
    assert breaker.call_all(calls_of("one")) == ["one"]


def test_a_server_that_nobody_asks_for_any_more_is_forgotten(breaker: Breaker, servers: Servers, now: Clock) -> None:
    servers.away = {"one"}
    fail(breaker, "one")
    now.now += AWAY_S + FORGOTTEN_S + 1
    breaker.call_all(calls_of("two"))
    assert not breaker.away


def servers_away(breaker: Breaker, *names: str) -> list[str | None]:
    """What each call is answered with; None where it is refused or fails."""
    return [
        None if isinstance(outcome, RanksUnavailable) else outcome for outcome in breaker.call_each(calls_of(*names))
    ]


def test_of_calls_made_together_only_those_fail_whose_server_is_away(
    breaker: Breaker, servers: Servers, now: Clock
) -> None:
    servers.away = {"one"}
    assert servers_away(breaker, "one", "two", "three", "two") == [None, "two", "three", "two"]
    servers.asked.clear()
    assert servers_away(breaker, "two", "one", "one") == ["two", None, None]
    assert servers.asked == ["two"]

    servers.away = set()
    now.now += AWAY_S
    assert servers_away(breaker, "one", "two") == ["one", "two"]
    assert not breaker.away
