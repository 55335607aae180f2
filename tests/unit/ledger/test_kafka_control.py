"""The control topic: every process that reads it judges its records alike."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rankd.ledger.event import Context, EventKind
from rankd.ledger.kafka.control import (
    ControlRecord,
    ControlState,
    CopiedRecord,
    control_item,
    encode_context_record,
    encode_ledger,
    encode_record,
)

AT = 1_777_896_000_000
CONTEXT = Context(EventKind.RESET, "arcade", "admin", {})


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(1, 3)), max_size=30))
def test_a_control_record_counts_where_it_has_seen_all_before_it(records: list[tuple[int, int]]) -> None:
    state, expected = ControlState(), list[int]()
    state.add(0, encode_context_record(CONTEXT))
    for offset, (seen, events) in enumerate(records, start=1):
        items = [control_item(1, AT + offset, None)] * events
        is_valid = seen == len(expected)
        state.add(offset, encode_record(ControlRecord(seen, AT + offset, items)))
        if is_valid:
            expected += [AT + offset] * events
        assert state.last_of(offset) == (len(expected) if is_valid else None)
        assert state.count == len(expected)
    assert [event.at for event in state.events(0, state.count)] == expected
    assert [event.number for event in state.events(0, state.count)] == list(range(1, len(expected) + 1))
    assert state.barrier(state.count + 1) is state.barrier(0) is None


def test_the_first_copy_of_a_control_event_has_its_places() -> None:
    state = ControlState()
    state.add(0, encode_context_record(CONTEXT))
    state.add(1, encode_record(ControlRecord(0, AT, [control_item(1, AT, None)] * 3)))
    state.add(2, encode_record(CopiedRecord(2, [[5, 6], [7, 8]])))
    assert state.copied == 2
    state.add(3, encode_record(CopiedRecord(1, [[9, 9]])))  # of a process that was slow
    assert state.copied == 2
    state.add(4, encode_record(CopiedRecord(3, [[9, 9], [9, 9], [10, 11]])))

    assert state.copied == 3
    assert [event.sequences for event in state.events(0, 3)] == [(5, 6), (7, 8), (10, 11)]


def test_the_first_ledger_and_the_first_number_of_a_context_count() -> None:
    state = ControlState()
    state.add(0, encode_ledger("one", 8))
    state.add(1, encode_ledger("other", 4))
    state.add(2, encode_context_record(CONTEXT))
    state.add(3, encode_context_record(CONTEXT))

    assert state.ledger is not None
    assert (state.ledger.identity, state.ledger.partitions) == ("one", 8)
    assert state.number_of(CONTEXT) == 3
    assert state.context(3) == state.context(4) == CONTEXT
