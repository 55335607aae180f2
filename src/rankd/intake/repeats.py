"""Requests that come again: recognised by sender and key, answered as the first time, never counted twice.

The key commits with the events. The answer is known only after they were ranked, so it is written with the commit that
follows; a repeat that comes when it is not written gets the same position with the present score and rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from rankd.errors import KeyReused
from rankd.intake.results import Accepted, Batched, Changed, Submitted
from rankd.intake.sender import Sender
from rankd.ledger.port import Request
from rankd.shortening import quote

ANSWERS_WAITING_MAX = 10_000

Kind = TypeVar("Kind", Submitted, Batched, Changed)
Answer = Submitted | Batched | Changed


class StoredAnswers:
    """Answers on their way to the ledger, and back from it; used by the committing thread alone."""

    def __init__(self, is_stored: bool) -> None:
        """Where the ledger stores none, none are remembered."""
        self._is_stored = is_stored
        self._waiting: dict[tuple[str, str], bytes] = {}

    def remember(self, sender: Sender, answer: object) -> None:
        """Keep an answer until it is written."""
        is_answer = isinstance(answer, Answer) and not isinstance(answer, Accepted)
        if self._is_stored and sender.key is not None and is_answer and len(self._waiting) < ANSWERS_WAITING_MAX:
            self._waiting[sender.account, sender.key] = msgspec.msgpack.encode(answer)

    def find(self, request: Request, kind: type[Kind]) -> Kind | None:
        """Return the answer that a request was given, marked as repeated; None where it is not known."""
        stored = request.answer or self._waiting.get((request.sender, request.key))
        if stored is None:
            return None
        return msgspec.structs.replace(msgspec.msgpack.decode(stored, type=kind), repeated=True)

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
