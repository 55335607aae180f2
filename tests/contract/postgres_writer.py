"""A process that appends as an API process does: `python -m tests.contract.postgres_writer url writer appends`.

Prints a line for each append that was acknowledged: its key, and each event's partition, sequence, player and score.
"""

from __future__ import annotations

import json
import random
import sys

from tests.contract.ledger_drafts import AT, GUILDS, control, draft
from tests.contract.postgres_ledgers import opened

from rankd.ledger.event import EventKind
from rankd.ledger.port import DefinitionsChanged, Ledger

PLAYERS = 60
CONTROL_SHARE = 0.05


def run(ledger: Ledger, writer: int, appends: int) -> None:
    """Append scores, now and then a control event, and begin again when somebody else has."""
    rng = random.Random(writer)
    known = ledger.heads().control
    for number in range(appends):
        count = rng.choice([1, 1, 2, 5, 30])
        events = [
            (f"player-{rng.randrange(PLAYERS)}", writer * 1_000_000 + number * 100 + index) for index in range(count)
        ]
        is_ordered = rng.random() < 0.5
        is_control = rng.random() < CONTROL_SHARE
        while True:
            try:
                if is_control:
                    ledger.append_control([control(EventKind.MIDNIGHT, at=AT + number)], known)
                    known += 1
                    break
                given = {"key": f"{writer}-{number}", "at": AT + number, "seen": known}
                chosen = {"context": GUILDS, "ordered": True} if is_ordered else {}
                appended = ledger.append(draft(ledger, *events, **given, **chosen))  # type: ignore[arg-type]
                acknowledged = [(*appended.place(index), *event) for index, event in enumerate(events)]
                sys.stdout.write(json.dumps({"key": given["key"], "events": acknowledged}) + "\n")
                sys.stdout.flush()
                break
            except DefinitionsChanged:
                known = ledger.heads().control


if __name__ == "__main__":
    with opened(sys.argv[1]) as ledger:
        run(ledger, int(sys.argv[2]), int(sys.argv[3]))
