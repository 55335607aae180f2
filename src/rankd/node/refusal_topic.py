"""The topic of dead letters, for events of a Kafka ledger that its followers refuse."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rankd.config.model import ConsumeConfig
from rankd.kafka.dead_letters import DeadLetters, RefusedPlace
from rankd.node.refused_events import submission_of
from rankd.projection.admission import RefusedEvent


class RefusalTopic:
    """Sends refused events as dead letters; one thread uses it. Nothing is connected before the first."""

    def __init__(self, ledger_topic: str, consume: ConsumeConfig, settings: Mapping[str, str]) -> None:
        """`settings` are those of the ledger's brokers."""
        self._ledger_topic = ledger_topic
        self._consume = consume
        self._settings = settings
        self._dead_letters: DeadLetters | None = None

    def send(self, events: Sequence[RefusedEvent]) -> None:
        """Send events with the reasons, and return when they are on stable storage."""
        if self._dead_letters is None:
            consume = self._consume
            self._dead_letters = DeadLetters(consume.dead_letters, consume.dead_letters_retention_ms, self._settings)
        self._dead_letters.send([self._place_of(event).letter() for event in events])

    def _place_of(self, event: RefusedEvent) -> RefusedPlace:
        run = event.event_run
        offset = run.first - 1  # sequences begin with 1
        return RefusedPlace(
            self._ledger_topic, run.partition, offset, run.players[0], submission_of(event), event.code, event.text
        )
