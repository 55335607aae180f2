"""Time marks: records without an event, which say that a partition has passed an instant.

An event that reaches a team board is applied once all partitions have passed its time. One without events would keep
the others waiting, so the lease holder writes a mark into it; when nothing waits, it writes none.
"""

from __future__ import annotations

import threading

from rankd.ledger.kafka.producing import LogProducer, NewRecord
from rankd.ledger.kafka.records import encode_mark


class TimeMarks:
    """The newest time of each partition that this process has read or marked; from any thread."""

    def __init__(self, producer: LogProducer, topic: str, partitions: int) -> None:
        """Nothing was read yet."""
        self._lock = threading.Lock()
        self._producer = producer
        self._topic = topic
        self._passed = [-1] * partitions

    def note_read(self, partition: int, time: int) -> None:
        """Note the newest time of what was read of a partition."""
        with self._lock:
            self._passed[partition] = max(self._passed[partition], time)

    def write(self, awaited: int, newest: int) -> None:
        """Mark the partitions that have not passed an instant; `newest` is the newest time that is known."""
        with self._lock:
            behind = [partition for partition, time in enumerate(self._passed) if time <= awaited]
        if not behind:
            return
        time = max(newest, awaited + 1)
        self._producer.produce(self._topic, [NewRecord(encode_mark(), None, partition) for partition in behind], time)
        for partition in behind:
            self.note_read(partition, time)
