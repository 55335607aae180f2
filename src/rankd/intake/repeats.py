"""Requests that come again: recognised by sender and key, answered as the first time, never counted twice.

The key commits with the events. The answer is known only after they were ranked, so it is written with the commit that
follows; a repeat that comes when it is not written gets the same position with the present score and rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from rankd.domain.board import Board
from rankd.errors import KeyReused
from rankd.intake.results import Batched, Changed, Submitted, question_about, submitted_of, token
from rankd.intake.scores import ScoreTask
from rankd.intake.sender import Sender
from rankd.ledger.event import NO_DETAIL
from rankd.ledger.port import Ledger, Request
from rankd.projection.applier import Applier
from rankd.shortening import quote

ANSWERS_WAITING_MAX = 10_000

Kind = TypeVar("Kind", Submitted, Batched, Changed)
Answer = Submitted | Batched | Changed


class Repeats:
    """The requests that came with a key; used by the committing thread alone."""

    def __init__(self, ledger: Ledger, applier: Applier, ttl_ms: int) -> None:
        """`ttl_ms` is how long a repeat is recognised."""
        self._ledger = ledger
        self._applier = applier
        self._ttl_ms = ttl_ms
        self._waiting: dict[tuple[str, str], bytes] = {}

    def find(self, task: ScoreTask, now: int) -> Answer | None:
        """Return the answer to scores that were committed before; None for new ones."""
        request = self._request(task.sender, task.fingerprint, now)
        if request is None:
            return None
        stored = self._stored(request, Submitted) if task.answers else self._stored(request, Batched)
        return stored or self._answer_again(task, request, now)

    def find_change(self, sender: Sender, fingerprint: bytes, now: int) -> Changed | None:
        """Return the answer to another change that was committed before; None for a new one."""
        request = self._request(sender, fingerprint, now)
        if request is None:
            return None
        return self._stored(request, Changed) or Changed(token(request.upto), repeated=True)

    def _request(self, sender: Sender, fingerprint: bytes, now: int) -> Request | None:
        if sender.key is None:
            return None
        request = self._ledger.request(sender.account, sender.key)
        if request is None or request.at + self._ttl_ms <= now:
            return None
        check_same(sender, fingerprint, request.fingerprint)
        return request

    def _stored(self, request: Request, kind: type[Kind]) -> Kind | None:
        stored = request.answer or self._waiting.get((request.sender, request.key))
        if stored is None:
            return None
        return msgspec.structs.replace(msgspec.msgpack.decode(stored, type=kind), repeated=True)

    def _answer_again(self, task: ScoreTask, request: Request, now: int) -> Answer:
        position = token(request.upto)
        if not task.answers:
            return Batched(position, request.upto - request.first + 1, repeated=True)
        event = self._ledger.event(request.first)
        accepted = self._ledger.context(event.context).boards[task.board_id]
        board: Board = self._applier.catalogue.board(task.board_id, accepted.version)
        detail = (event.detail or [None])[0] or NO_DETAIL
        question = question_about(board, accepted.reading(event.at[0]), task.players[0], detail.attributes)
        if question is not None and question.subject is not None:
            standing = self._applier.store.rank(question.instance, question.subject, question.ranking)
            question.answer(standing, standing)
        return msgspec.structs.replace(submitted_of(position, board, task.players[0], question, now), repeated=True)

    def remember(self, sender: Sender, answer: Answer) -> None:
        """Keep an answer until it is written."""
        if sender.key is not None and len(self._waiting) < ANSWERS_WAITING_MAX:
            self._waiting[sender.account, sender.key] = msgspec.msgpack.encode(answer)

    @property
    def waiting(self) -> list[tuple[str, str, bytes]]:
        """The answers to write with the next commit."""
        return [(sender, key, answer) for (sender, key), answer in self._waiting.items()]

    def written(self, answers: Sequence[tuple[str, str, bytes]]) -> None:
        """Forget answers that are on disk."""
        for sender, key, _ in answers:
            self._waiting.pop((sender, key), None)


def check_same(sender: Sender, fingerprint: bytes, first: bytes) -> None:
    """Refuse a request that differs from the one that came first under its key."""
    if fingerprint != first:
        raise KeyReused(f"key: {quote(sender.key)} was used with another request; give each request a key of its own")
