"""Where a ledger was at an instant: by the time of each commit, and on one side of it in all partitions."""

from __future__ import annotations

import random

import pytest
from tests.contract.ledger_drafts import AT, draft, scores

from rankd.errors import InvalidValue
from rankd.ledger.event import AcceptanceContext, Context, EventKind
from rankd.ledger.port import ControlEvent, Draft, Ledger


def is_refused(ledger: Ledger) -> bool:
    """Return whether it is a log, which refuses."""
    if ledger.capabilities.appends_conditionally:
        return False
    with pytest.raises(InvalidValue, match="as_of"):
        ledger.sequences_at(AT)
    return True


def test_an_empty_ledger_was_always_empty(ledger: Ledger) -> None:
    assert is_refused(ledger) or ledger.sequences_at(AT) == (0,) * ledger.partitions


def test_every_commit_is_before_or_behind_an_instant_as_a_whole(ledger: Ledger) -> None:
    if is_refused(ledger):
        return
    rng = random.Random(7)
    at, seen = AT, 0
    heads = [(0, ledger.heads().sequences)]  # since which instant, what
    for number in range(60):
        at += rng.choice([0, 0, 1, 2, 1_000, 86_400_000])
        if rng.random() < 0.1:
            context = Context(EventKind.MIDNIGHT, "arcade", "rankd", {"arcade": AcceptanceContext(1)})
            ledger.append_control([ControlEvent(context, None, at)], seen, at=at)
            seen += ledger.capabilities.is_sole_writer is False
        else:
            sent = [(f"player-{rng.randrange(40)}", number) for _ in range(rng.randint(1, 30))]
            # What was sent with an earlier time counts by its commit.
            ledger.append(Draft([scores(ledger, *sent, at=at - rng.choice([0, 5_000]))], at, seen))
        heads.append((at, ledger.heads().sequences))
    for instant in sorted({time + shift for time, _ in heads for shift in (-1, 0, 1)}):
        expected = [sequences for time, sequences in heads if time <= instant]
        assert ledger.sequences_at(instant) == (expected[-1] if expected else (0,) * ledger.partitions)


def test_a_time_that_went_back_is_that_of_the_ledger(ledger: Ledger) -> None:
    if is_refused(ledger):
        return
    ledger.append(draft(ledger, ("alice", 1), at=AT + 1_000))
    before = ledger.heads().sequences
    ledger.append(draft(ledger, ("alice", 2), at=AT))
    assert ledger.sequences_at(AT + 999) == (0,) * ledger.partitions
    assert ledger.sequences_at(AT + 1_000) == ledger.heads().sequences != before
