"""What bodies hold: until their request ends, and no sender so much that others are refused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rankd.api.http.body_limits import HOLDERS_MIN, UNCOUNTED_BYTES_MAX
from rankd.config.model import Config, LimitsConfig
from rankd.registry.credentials import Scope

from .in_process import InProcess, Reply, in_process

KIB = 1024
LIMITS = LimitsConfig(
    body_bytes_max=64 * KIB,
    batch_bytes_max=128 * KIB,
    untrusted_bodies_bytes_max=256 * KIB,
    bodies_bytes_max=512 * KIB,
    player_writes_per_s=0,
)
CONFIG = Config(limits=LIMITS)


class Sender:
    """A request whose body comes in pieces, as far as it is let through."""

    def __init__(self, app: InProcess, key: str, pieces: list[bytes], *, target: str = "/v1/scores/batch") -> None:
        self._app = app
        self._pieces = pieces
        self._end: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.has_sent = asyncio.Event()
        self.reply: asyncio.Task[Reply] = asyncio.ensure_future(
            app.ask("POST", target, self._receive, authorization=f"Bearer {key}")
        )

    async def _receive(self) -> dict[str, Any]:
        if len(self._pieces) > 1:
            return {"type": "http.request", "body": self._pieces.pop(0), "more_body": True}
        self.has_sent.set()
        await self._end
        return {"type": "http.request", "body": self._pieces.pop(), "more_body": False}

    async def finish(self) -> Reply:
        self._end.set_result(None)
        return await self.reply


async def sent(sender: Sender) -> Sender:
    """Wait until all but the last piece was taken, or refused."""
    waiting = asyncio.ensure_future(sender.has_sent.wait())
    await asyncio.wait([waiting, sender.reply], return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    return sender


def key_of(app: InProcess, name: str, player: str | None = None) -> str:
    scopes = [] if player is not None else list(Scope)
    return app.credentials.create(name, scopes=scopes, player=player)[1]


def batch(size: int) -> bytes:
    scores = msgspec.json.encode({"events": [{"board": "arcade", "player": "alice", "score": 5}]})
    return scores + b" " * (size - len(scores))


@pytest.mark.parametrize("pieces", [1, 2])
def test_a_body_is_held_until_its_request_ends(tmp_path: Path, pieces: int, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(app: InProcess) -> None:
        app.boards.define("arcade")
        held: list[int] = []
        commit: Callable[..., Any] = app.service.commit

        async def observed_commit(task: Any) -> object:
            held.append(app.service.service_bodies.held_bytes)
            return await commit(task)

        monkeypatch.setattr(app.service, "commit", observed_commit)
        body = batch(UNCOUNTED_BYTES_MAX + pieces)
        half = len(body) // pieces
        sender = Sender(app, key_of(app, "game"), [body[:half], body[half:]] if pieces == 2 else [body])
        assert (await (await sent(sender)).finish()).status == 200
        assert held == [len(body)]
        assert app.service.service_bodies.held_bytes == 0
        assert app.service.service_bodies.by_holder == {}

    in_process(tmp_path, test, CONFIG)


def test_players_leave_services_their_budget_and_each_other_theirs(tmp_path: Path) -> None:
    async def test(app: InProcess) -> None:
        app.boards.define("arcade", writes="players")
        mallory, alice = key_of(app, "mallory", "mallory"), key_of(app, "alice", "alice")
        share = LIMITS.untrusted_bodies_bytes_max // HOLDERS_MIN
        slow = [await sent(Sender(app, mallory, [b" " * (share // 2 - 2), b"{}"])) for _ in range(2)]
        refused = await Sender(app, mallory, [b" " * KIB, b"{}"]).reply
        assert (refused.status, refused.json()["code"]) == (503, "overloaded")
        assert "this sender" in refused.json()["detail"]
        assert app.service.service_bodies.held_bytes == 0
        assert (await (await sent(Sender(app, alice, [b" " * KIB, batch(KIB)]))).finish()).status == 200
        for sender in slow:
            assert (await sender.finish()).status == 422
        assert app.service.untrusted_bodies.by_holder == {}

    in_process(tmp_path, test, CONFIG)


def test_a_service_may_send_longer_batches_than_a_player(tmp_path: Path) -> None:
    async def test(app: InProcess) -> None:
        app.boards.define("arcade", writes="players")
        body = batch(LIMITS.body_bytes_max + 1)
        pieces = [body[:-1], body[-1:]]
        service = await sent(Sender(app, key_of(app, "game"), list(pieces)))
        assert (await service.finish()).status == 200
        player = await sent(Sender(app, key_of(app, "alice", "alice"), list(pieces)))
        assert (await player.finish()).status == 413

    in_process(tmp_path, test, CONFIG)


def test_a_request_that_is_dropped_holds_nothing(tmp_path: Path) -> None:
    async def test(app: InProcess) -> None:
        sender = await sent(Sender(app, key_of(app, "game"), [b" " * KIB, b"{}"]))
        assert app.service.service_bodies.held_bytes == KIB
        sender.reply.cancel()
        await asyncio.wait([sender.reply])
        assert app.service.service_bodies.by_holder == {}

    in_process(tmp_path, test, CONFIG)
