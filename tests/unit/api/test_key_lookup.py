"""An API key that another process made holds at once, and unknown keys cost the store a bounded number of look-ups."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from rankd.api.auth import key_lookup
from rankd.api.auth.key_lookup import REFRESHES_PER_S_MAX, UNKNOWN_REMEMBERED_MAX, KeyLookup
from rankd.api.http.eager import run_eagerly
from rankd.clock import SystemClock
from rankd.errors import LedgerUnavailable, Overloaded
from rankd.registry.credentials import KEY_PREFIX
from rankd.registry.sqlite.credentials import SqliteCredentials

from .event_loop import next_turn
from .in_process import InProcess, in_process

DEADLINE_S = 20.0
UNKNOWN = f"Bearer {KEY_PREFIX}0000000000000000_unknown"


def looking_up(refresh: Callable[[], None], test: Callable[[KeyLookup], Awaitable[None]]) -> None:
    """Run a test with look-ups in a store that `refresh` reads."""

    async def run() -> None:
        lookup = KeyLookup(refresh)
        try:
            await asyncio.wait_for(test(lookup), DEADLINE_S)
        finally:
            lookup.stop()

    asyncio.run(run())


def never(digest: bytes) -> bool:
    return False


def test_a_key_that_another_process_made_holds_in_the_first_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_lookup, "REFRESH_EVERY_S", 3_600.0)

    async def test(server: InProcess) -> None:
        with SqliteCredentials(tmp_path, SystemClock()) as other_process:
            _, token = other_process.create("game", ["scores:write"])
        answer = await server.get("/v1/boards", authorization=f"Bearer {token}")
        assert answer.status == 200, answer.body

    in_process(tmp_path, test)


def test_a_revoked_key_is_looked_up_and_refused(tmp_path: Path) -> None:
    async def test(server: InProcess) -> None:
        with SqliteCredentials(tmp_path, SystemClock()) as other_process:
            made, token = other_process.create("game", ["scores:write"])
            other_process.revoke(made.id)
        answer = await server.get("/v1/boards", authorization=f"Bearer {token}")
        assert (answer.status, answer.json()["code"]) == (401, "unauthenticated")

    in_process(tmp_path, test)


def test_a_store_that_cannot_be_read_is_no_reason_to_call_a_key_unknown(tmp_path: Path) -> None:
    async def test(server: InProcess) -> None:
        server.credentials.close()
        answer = await server.get("/v1/boards", authorization=UNKNOWN)
        assert (answer.status, answer.json()["code"]) == (503, "ledger_unavailable")
        assert b"retry-after" in answer.headers

    in_process(tmp_path, test)


def test_floods_of_unknown_keys_share_a_bounded_number_of_look_ups_beside_the_event_loop() -> None:
    refreshed_by: list[threading.Thread] = []

    async def test(lookup: KeyLookup) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        for wave in range(5):
            digests = [f"{wave}:{number}".encode() for number in range(500)]
            assert not any(await asyncio.gather(*(lookup.finds(digest, never) for digest in digests)))
        allowed = 1 + REFRESHES_PER_S_MAX * (loop.time() - began)
        assert 5 <= len(refreshed_by) <= allowed + 1
        assert threading.main_thread() not in refreshed_by
        assert len(lookup._unknown) == UNKNOWN_REMEMBERED_MAX

    looking_up(lambda: refreshed_by.append(threading.current_thread()), test)


def test_a_request_that_has_no_task_yet_may_look_up_a_key() -> None:
    answers: list[bool] = []

    async def request(lookup: KeyLookup) -> None:
        answers.append(await lookup.finds(b"digest", never))

    async def test(lookup: KeyLookup) -> None:
        loop = asyncio.get_running_loop()
        loop.call_soon(lambda: run_eagerly(request(lookup), loop))  # outside of any task
        while not answers:
            await next_turn()
        assert answers == [False]

    looking_up(lambda: None, test)


def test_a_key_that_was_unknown_a_moment_ago_costs_no_look_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_lookup, "REFRESH_EVERY_S", 3_600.0)
    monkeypatch.setattr(key_lookup, "UNKNOWN_REMEMBERED_S", 3_600.0)
    refreshes: list[None] = []

    async def test(lookup: KeyLookup) -> None:
        for _ in range(100):
            assert not await lookup.finds(b"digest", never)
        assert len(refreshes) == 1

    looking_up(lambda: refreshes.append(None), test)


def test_a_negative_answer_is_forgotten_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_lookup, "UNKNOWN_REMEMBERED_S", 0.0)
    answers = iter((False, True))

    async def test(lookup: KeyLookup) -> None:
        assert not await lookup.finds(b"digest", lambda _: next(answers))
        assert await lookup.finds(b"digest", lambda _: next(answers))

    looking_up(lambda: None, test)


def test_more_unknown_keys_than_may_wait_are_sent_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_lookup, "WAITING_MAX", 2)
    monkeypatch.setattr(key_lookup, "WAIT_S_MAX", 0.05)
    may_answer = threading.Event()

    async def test(lookup: KeyLookup) -> None:
        try:
            outcomes = await asyncio.gather(*(lookup.finds(b"%d" % n, never) for n in range(3)), return_exceptions=True)
        finally:
            may_answer.set()
        assert [type(outcome) for outcome in outcomes] == [LedgerUnavailable, LedgerUnavailable, Overloaded]

    looking_up(lambda: (may_answer.wait(DEADLINE_S), None)[1], test)
