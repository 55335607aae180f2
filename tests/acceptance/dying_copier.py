"""`rankd serve` that is killed in the middle of copying its first control event: one partition of the log has it."""

from __future__ import annotations

import os
import signal

from rankd.cli.main import main
from rankd.ledger.kafka.control_writing import ControlWriter
from rankd.ledger.kafka.producing import NewRecord
from rankd.ledger.kafka.records import encode_barrier


def _copy_one_and_die(writer: ControlWriter) -> None:
    state = writer._topic.state
    writer._producer.produce(writer._events_topic, [NewRecord(encode_barrier(state.copied + 1))], state.at)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    ControlWriter._copy = _copy_one_and_die  # type: ignore[method-assign, assignment]
    main()
