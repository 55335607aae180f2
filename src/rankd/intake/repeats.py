"""Repeated requests: recognised by sender and key, answered like the first, never counted twice.

The key commits with the events. The answer is known only after ranking, so a later commit writes it, with others; after
a crash before that, a repeat gets the same position with the current score and rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from rankd.errors import KeyReused
from rankd.intake.results import Accepted, Batched, Changed, Submitted
from rankd.intake.sender import Sender
from rankd.ledger.port import StoredRequest
from rankd.shortening import quote

ANSWERS_WAITING_MAX = 10_000
ANSWERS_AT_ONCE = 32  # so many wait before a commit of other events writes them: each is a page of the log

AnswerType = TypeVar("AnswerType", Submitted, Batched, Changed)
StoredAnswer = Submitted | Batched | Changed


class StoredAnswers:
    """Answers to and from the ledger; only the committing thread uses it."""

    def __init__(self, is_stored: bool) -> None:
        """Without `is_stored` the ledger stores no answers, and none are kept here."""
        self._is_stored = is_stored
        self._waiting: dict[tuple[str, str], bytes] = {}

    def remember(self, sender: Sender, answer: object) -> None:
        """Keep an answer until a commit writes it."""
        is_answer = isinstance(answer, StoredAnswer) and not isinstance(answer, Accepted)
        if self._is_stored and sender.key is not None and is_answer and len(self._waiting) < ANSWERS_WAITING_MAX:
            self._waiting[sender.account, sender.key] = msgspec.msgpack.encode(answer)

    def find(self, request: StoredRequest, kind: type[AnswerType]) -> AnswerType | None:
        """Return a request's answer, marked as repeated; None if it is not stored."""
        stored = request.answer or self._waiting.get((request.sender, request.key))
        if stored is None:
            return None
        return msgspec.structs.replace(msgspec.msgpack.decode(stored, type=kind), repeated=True)

    @property
    def are_due(self) -> bool:
        """Whether enough answers wait to be written with the next commit."""
        return len(self._waiting) >= ANSWERS_AT_ONCE

    @property
    def waiting(self) -> list[tuple[str, str, bytes]]:
        """The answers that no commit has written."""
        return [(sender, key, answer) for (sender, key), answer in self._waiting.items()]

    def written(self, answers: Sequence[tuple[str, str, bytes]]) -> None:
        """Forget answers that a commit has written."""
        for sender, key, _ in answers:
            self._waiting.pop((sender, key), None)


def check_same(sender: Sender, fingerprint: bytes, first: bytes) -> None:
    """Refuse a request that differs from the first one under its key."""
    if fingerprint != first:
        raise KeyReused(f"key: {quote(sender.key)} was used with another request; give each request a key of its own")
