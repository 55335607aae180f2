"""Events that were read from a topic of another system: its offsets move on in their commit."""

from __future__ import annotations

import msgspec
import pytest
from tests.contract.ledger_drafts import draft, events_in
from tests.contract.ledger_places import LedgerPlace

from rankd.ledger.port import NOT_READ, Draft, KeysTaken, Ledger, SourceMoved, SourceSpan

pytestmark = pytest.mark.capability("appends_conditionally")

TOPIC = "scores@rankd"


def read_from(ledger: Ledger, *spans: SourceSpan, key: str | None = None) -> Draft:
    """Make a draft of one event with the spans of its sources."""
    return msgspec.structs.replace(draft(ledger, ("alice", 1), key=key), sources=spans)


def test_offsets_move_on_with_the_events_also_for_the_next_who_opens_the_ledger(
    ledger: Ledger, ledger_place: LedgerPlace
) -> None:
    assert (ledger.source_offsets(TOPIC), ledger.sources()) == ({}, [])

    ledger.append(read_from(ledger, SourceSpan(TOPIC, 0, NOT_READ, 7), SourceSpan(TOPIC, 3, NOT_READ, 40)))
    ledger.append(read_from(ledger, SourceSpan(TOPIC, 3, 40, 41)))

    for opened in ledger_place.now_and_reopened(ledger):
        assert opened.source_offsets(TOPIC) == {0: 7, 3: 41}
        assert opened.source_offsets("scores@others") == {}
        assert opened.sources() == [TOPIC]
        assert len(events_in(opened)) == 2


@pytest.mark.parametrize("after", [NOT_READ, 6, 8])
def test_nothing_is_written_where_another_consumer_has_read_on(ledger: Ledger, after: int) -> None:
    ledger.append(read_from(ledger, SourceSpan(TOPIC, 0, NOT_READ, 7)))
    before = ledger.heads()

    with pytest.raises(SourceMoved):
        ledger.append(read_from(ledger, SourceSpan(TOPIC, 1, NOT_READ, 5), SourceSpan(TOPIC, 0, after, 9)))

    assert ledger.heads() == before
    assert ledger.source_offsets(TOPIC) == {0: 7}


def test_a_source_that_was_never_read_is_nowhere_yet(ledger: Ledger) -> None:
    with pytest.raises(SourceMoved):
        ledger.append(read_from(ledger, SourceSpan(TOPIC, 0, 3, 9)))

    assert events_in(ledger) == []


def test_offsets_stay_where_the_events_are_refused(ledger: Ledger) -> None:
    ledger.append(draft(ledger, ("alice", 1), key="taken"))

    with pytest.raises(KeysTaken):
        ledger.append(read_from(ledger, SourceSpan(TOPIC, 0, NOT_READ, 7), key="taken"))

    assert ledger.source_offsets(TOPIC) == {}


def test_records_without_events_move_a_source_on(ledger: Ledger) -> None:
    before = ledger.heads().sequences

    ledger.append(Draft([], 0, 0, sources=[SourceSpan(TOPIC, 0, NOT_READ, 100)]))

    assert ledger.source_offsets(TOPIC) == {0: 100}
    assert ledger.heads().sequences == before
