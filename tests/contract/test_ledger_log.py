"""What only a log has: events that were compared with nothing, and control events that are copied into partitions."""

from __future__ import annotations

import threading
from array import array
from time import monotonic

import msgspec
import pytest
from confluent_kafka import Producer
from tests.contract.kafka_ledgers import LOG_PARTITIONS, KafkaStorage, OpenLog, log_of, parts_of
from tests.contract.ledger_drafts import (
    ARCADE,
    AT,
    GUILDS,
    PLAYERS,
    WAIT_S,
    control,
    draft,
    everything,
    keyed,
    player_in,
    scores,
)
from tests.servers.load_bound import LoadBound
from tests.servers.waiting import join_all, wait_until

from rankd.errors import LedgerDamaged, LedgerNewer, LedgerUnavailable
from rankd.ledger.event import Context, Detail, EventKind
from rankd.ledger.kafka import KafkaLedger
from rankd.ledger.kafka import control as control_module
from rankd.ledger.kafka.control import ControlKey, ControlRecord, control_item, encode_context_record, encode_record
from rankd.ledger.kafka.control_writing import LEFT_AFTER_S
from rankd.ledger.kafka.records import encode_barrier, encode_mark
from rankd.ledger.port import (
    KEY_BYTES,
    DefinitionsChanged,
    Draft,
    KeysTaken,
    LogColumns,
    Part,
    SourceSpan,
    StoredRequest,
)


@pytest.fixture
def ledger(open_log: OpenLog) -> KafkaLedger:
    return open_log()


def keys_of(part: Part) -> list[bytes]:
    keys = log_of(part).keys or bytes(KEY_BYTES * len(part.event_run))
    return [keys[start : start + KEY_BYTES] for start in range(0, len(keys), KEY_BYTES)]


def control_record(ledger: KafkaLedger, seen: int, *kinds: EventKind, key: str | None = None) -> bytes:
    """Return the record that a process produces first which appends control events."""
    events = [control(kind) for kind in kinds]
    items = [control_item(ledger.number_context(event.context), event.at, event.detail) for event in events]
    request = None if key is None else ControlKey("sender", key, b"fingerprint")
    return encode_record(ControlRecord(seen, AT, items, request))


def numbers_in(ledger: KafkaLedger) -> list[list[int]]:
    """Return the numbers of the control events as they are read, by partition."""
    numbers: list[list[int]] = [[] for _ in range(LOG_PARTITIONS)]
    for part in parts_of(ledger):
        if log_of(part).number:
            numbers[part.partition].append(log_of(part).number)
    return numbers


# Events


def test_events_come_with_their_times_and_whether_they_were_sent_with_one(ledger: KafkaLedger) -> None:
    event_run = scores(ledger, *((PLAYERS[0], number) for number in range(3)), at=AT)
    event_run.at[1] = AT - 5_000

    ledger.append(Draft([event_run], AT, 0))
    ledger.append(draft(ledger, (PLAYERS[0], 9), at=AT - 1_000))  # of a writer whose clock is behind

    (part,) = parts_of(ledger)
    assert list(part.event_run.at) == [AT, AT - 5_000, AT, AT - 1_000]
    assert part.log == LogColumns(array("q", [AT, AT, AT, AT - 1_000]), b"\0\1\0\0", None)


def test_a_request_that_is_sent_again_has_the_keys_it_had(ledger: KafkaLedger) -> None:
    events = [(PLAYERS[0], number) for number in range(3)]
    once, again = draft(ledger, *events, key="k"), draft(ledger, *events, key="k", at=AT + 7)
    other = msgspec.structs.replace(once, requests=[keyed("k", 0, 3)._replace(sender="another")])
    unlike = msgspec.structs.replace(once, requests=[keyed("k", 0, 3, b"another".ljust(16))])
    later = draft(ledger, *events, key="k2")

    for request_draft in (once, again, other, unlike, later):
        ledger.append(request_draft)
    ledger.append(draft(ledger, *events))

    (part,) = parts_of(ledger)
    keys = keys_of(part)
    assert keys[0:3] == keys[3:6]
    digests, fingerprints = [key[:16] for key in keys], [key[16:] for key in keys]
    assert digests[0:3] == digests[9:12]
    assert fingerprints[0] == b"fingerprint".ljust(16, b"\0") != fingerprints[9] == b"another".ljust(16)
    different = [*digests[0:3], *digests[6:9], *digests[12:15]]
    assert len(set(different)) == len({digest[:8] for digest in different}) == 9
    assert keys[15:] == [bytes(KEY_BYTES)] * 3


def test_events_without_a_key_or_an_instant_of_their_own_need_no_columns_for_them(ledger: KafkaLedger) -> None:
    ledger.append(draft(ledger, (PLAYERS[0], 1)))

    (part,) = parts_of(ledger)
    assert part.log == LogColumns(array("q", [AT]), None, None)


def test_a_log_takes_no_events_of_a_source(ledger: KafkaLedger) -> None:
    of_a_source = msgspec.structs.replace(draft(ledger, ("alice", 1)), sources=[SourceSpan("t", 0, -1, 1)])

    with pytest.raises(ValueError, match="source"):
        ledger.append(of_a_source)
    assert parts_of(ledger) == []


def test_offsets_that_are_missing_are_skipped(ledger: KafkaLedger, log_storage: KafkaStorage) -> None:
    player = player_in(1, partitions=LOG_PARTITIONS)
    ledger.append(draft(ledger, (player, 1)))
    producer = Producer({**log_storage.settings, "transactional.id": log_storage.topic, "log_level": 0})
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    producer.produce(log_storage.topic, encode_mark(), partition=1, timestamp=AT)
    producer.commit_transaction(WAIT_S)
    wait_until(lambda: ledger.heads().sequences[1] == 3)  # the end of the transaction takes up an offset
    ledger.append(draft(ledger, (player, 2), (player, 3)))

    for events_max in (1, 2, 100):
        position, sequence_scores = [0] * LOG_PARTITIONS, list[tuple[int, int]]()
        while read := ledger.read(position, events_max):
            for part in read:
                position[part.partition] = part.event_run.first + len(part.event_run) - 1
                sequence_scores += enumerate(part.event_run.score, start=part.event_run.first)
        assert sequence_scores == [(1, 1), (2, 0), (4, 2), (5, 3)]
        assert position == list(ledger.heads().sequences)


# What the topics hold beside


def test_records_of_others_are_refused(ledger: KafkaLedger, log_storage: KafkaStorage) -> None:
    log_storage.topics.send(log_storage.topic, [("alice", b"a score")], partition=0)

    with pytest.raises(LedgerDamaged, match="not written by rankd"):
        parts_of(ledger)


@pytest.mark.parametrize("key", ["alice", None])
def test_records_of_a_newer_version_are_refused(
    ledger: KafkaLedger, log_storage: KafkaStorage, key: str | None
) -> None:
    newer = b"\2" + bytes(40)
    log_storage.topics.send(log_storage.topic, [(key, newer) if key else newer], partition=0)

    with pytest.raises(LedgerNewer, match="upgrade rankd"):
        parts_of(ledger)


def test_a_control_topic_that_a_newer_version_wrote_is_refused(ledger: KafkaLedger, log_storage: KafkaStorage) -> None:
    log_storage.topics.send(log_storage.control_topic, [{"kind": "merge", "of": [1, 2]}])

    for _ in range(2):  # it is not skipped the second time
        with pytest.raises(LedgerNewer, match="upgrade rankd"):
            ledger.controls(0)


def test_topics_that_replace_the_records_times_are_refused(ledger: KafkaLedger, log_storage: KafkaStorage) -> None:
    ledger.append(draft(ledger, (PLAYERS[0], 1)))
    log_storage.topics.configure(log_storage.topic, "message.timestamp.type", "LogAppendTime")
    wait_until(lambda: log_storage.topics.value_of(log_storage.topic, "message.timestamp.type") == "LogAppendTime")

    with pytest.raises(LedgerUnavailable, match=r"message\.timestamp\.type=CreateTime"):
        ledger.append(draft(ledger, (PLAYERS[0], 2)))
    with pytest.raises(LedgerUnavailable, match=r"message\.timestamp\.type=CreateTime"):
        parts_of(ledger)


def test_what_has_expired_is_not_read(ledger: KafkaLedger, log_storage: KafkaStorage, open_log: OpenLog) -> None:
    for number in range(5):
        ledger.append(draft(ledger, *((player, number) for player in PLAYERS)))
    ends = ledger.heads().sequences
    log_storage.topics.delete_records(log_storage.topic, 4, partition=1)

    other = open_log()
    assert other.heads().firsts == (1, 5, 1)
    assert ledger.heads().sequences == ends
    with pytest.raises(LedgerDamaged, match="partition 1 of the ledger's log begins at 5, and 1 is to be read next"):
        other.read([0] * LOG_PARTITIONS, 100)
    with pytest.raises(LedgerDamaged, match="begins at 5, and 4 is to be read next"):
        other.read([0, 3, 0], 100)
    assert [part.event_run.first for part in parts_of(other, [0, 4, 0])] == [1, 5, 1]
    with pytest.raises(LedgerDamaged, match="expired"):
        other.event(1, 4)
    assert other.event(1, 5).first == 5
    assert other.metadata([(1, 4), (1, 5)]) == {}


# Contexts


def test_a_context_may_have_two_numbers(ledger: KafkaLedger, log_storage: KafkaStorage, open_log: OpenLog) -> None:
    log_storage.topics.send(log_storage.control_topic, [encode_context_record(ARCADE)] * 2)
    log_storage.topics.send(log_storage.control_topic, [encode_context_record(GUILDS)])
    late = open_log()

    number = late.number_context(ARCADE)
    assert late.number_context(GUILDS) == number + 2
    assert [ledger.context(number + later) for later in range(3)] == [ARCADE, ARCADE, GUILDS]
    assert ledger.number_context(ARCADE) == number
    for later in range(2):
        event_run = scores(ledger, ("alice", later))
        event_run.context = number + later
        ledger.append(Draft([event_run], AT, 0))
    parts = parts_of(open_log())
    assert [(part.event_run.context, part.event_run.score[0]) for part in parts] == [(number, 0), (number + 1, 1)]


def test_processes_that_number_one_context_at_once_understand_each_other(open_log: OpenLog) -> None:
    ledgers = [open_log() for _ in range(3)]
    contexts = [Context(EventKind.SCORE, f"board-{number}", "local", {}) for number in range(10)]

    def write(ledger: KafkaLedger) -> None:
        for context in contexts:
            ledger.append(draft(ledger, ("alice", 1), context=context))

    threads = [threading.Thread(target=write, args=[ledger]) for ledger in ledgers]
    for thread in threads:
        thread.start()
    join_all(threads)
    for ledger in ledgers:
        read = [ledger.context(part.event_run.context) for part in parts_of(ledger) for _ in part.event_run.score]
        assert sorted(context.board for context in read) == sorted(context.board for context in contexts * 3)


# Control events


def test_a_control_event_counts_once_it_is_in_every_partition(
    ledger: KafkaLedger, log_storage: KafkaStorage, open_log: OpenLog
) -> None:
    """The process died after it had written that there is one."""
    log_storage.topics.send(log_storage.control_topic, [control_record(ledger, 0, EventKind.DEFINE, EventKind.RESET)])

    assert ledger.heads().control == 0
    assert ledger.controls(0) == []
    assert numbers_in(ledger) == [[]] * LOG_PARTITIONS
    began_s = monotonic()
    wait_until(lambda: ledger.tend() is None and ledger.heads().control == 2)  # type: ignore[func-returns-value]
    assert monotonic() - began_s >= LEFT_AFTER_S  # before, it may be that the process is copying them
    assert numbers_in(ledger) == [[1, 2]] * LOG_PARTITIONS
    first, second = open_log().controls(0)
    assert (first.number, first.context.kind, first.sequences) == (1, EventKind.DEFINE, (1, 1, 1))
    assert (second.number, second.context.kind, second.sequences) == (2, EventKind.RESET, (2, 2, 2))
    ledger.tend()
    assert ledger.heads().sequences == (2, 2, 2)


def test_whoever_appends_the_next_one_completes_those_of_a_process_that_died(
    ledger: KafkaLedger, log_storage: KafkaStorage
) -> None:
    log_storage.topics.send(log_storage.control_topic, [control_record(ledger, 0, EventKind.DEFINE, EventKind.RESET)])
    log_storage.topics.send(log_storage.topic, [encode_barrier(1)], partition=1)  # so far it came

    with pytest.raises(DefinitionsChanged):
        ledger.append_control([control()], seen=0)

    assert ledger.heads().control == 2
    (third,) = ledger.append_control([control(EventKind.MIDNIGHT)], seen=2)
    assert (third.number, third.sequences) == (3, (3, 4, 3))
    assert numbers_in(ledger) == [[1, 2, 3], [1, 1, 2, 3], [1, 2, 3]]
    assert [event.number for event in ledger.controls(0)] == [1, 2, 3]


def test_a_control_event_that_is_copied_twice_is_read_as_the_same(
    ledger: KafkaLedger, log_storage: KafkaStorage
) -> None:
    detail = Detail(definition={"keep": "best"})
    ledger.append_control([control(detail=detail)], seen=0)
    for partition in range(LOG_PARTITIONS):
        log_storage.topics.send(log_storage.topic, [encode_barrier(1)], partition=partition)

    parts = parts_of(ledger)
    assert [log_of(part).number for part in parts] == [1] * 2 * LOG_PARTITIONS
    assert {part.event_run.context for part in parts} == {ledger.number_context(control().context)}
    assert [part.event_run.detail for part in parts] == [[detail]] * 2 * LOG_PARTITIONS
    assert ledger.heads().control == len(ledger.controls(0)) == 1


def test_a_copy_of_no_control_event_is_refused(ledger: KafkaLedger, log_storage: KafkaStorage) -> None:
    log_storage.topics.send(log_storage.topic, [encode_barrier(1)], partition=0)

    with pytest.raises(LedgerDamaged, match="control event 1 is missing"):
        parts_of(ledger)


def test_every_process_knows_the_key_of_a_control_event_and_of_a_request_that_changed_nothing(
    ledger: KafkaLedger, open_log: OpenLog
) -> None:
    (written,) = ledger.append_control([control()], seen=0, request=keyed("made", 0, 1), at=AT)
    assert ledger.append_control([], seen=1, request=keyed("nothing", 0, 0), at=AT + 5) == []
    positions = dict(enumerate(written.sequences))

    for checked_ledger in (ledger, open_log()):
        made, nothing = (checked_ledger.request("sender", key) for key in ("made", "nothing"))
        assert made == StoredRequest("sender", "made", b"fingerprint", AT, 1, positions)
        assert nothing == StoredRequest("sender", "nothing", b"fingerprint", AT + 5, 0, positions)
        assert checked_ledger.requests([("sender", "made"), ("other", "made")]) == {("sender", "made"): made}
        for key in ("made", "nothing"):
            with pytest.raises(KeysTaken):
                checked_ledger.append_control([control()], seen=1, request=keyed(key, 0, 1))
        assert checked_ledger.heads().control == 1
        assert checked_ledger.forget_requests(AT + 1, 10) == 1
        assert checked_ledger.request("sender", "made") is None
        assert checked_ledger.request("sender", "nothing") is not None


def test_the_keys_of_the_newest_control_events_are_kept(ledger: KafkaLedger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_module, "REQUESTS_KEPT_MAX", 2)
    for number in range(4):
        ledger.append_control([], seen=0, request=keyed(f"k{number}", 0, 0), at=AT + number)
    assert [ledger.request("sender", f"k{number}") is None for number in range(4)] == [True, True, False, False]


def test_the_key_of_a_void_control_event_was_not_used(ledger: KafkaLedger, log_storage: KafkaStorage) -> None:
    ledger.append_control([control()], seen=0)
    log_storage.topics.send(log_storage.control_topic, [control_record(ledger, 0, EventKind.RESET, key="k")])
    assert ledger.heads().control == 1
    assert ledger.request("sender", "k") is None


def test_the_key_of_a_control_event_that_is_not_copied_yet_is_answered_after_it_is(
    ledger: KafkaLedger, log_storage: KafkaStorage
) -> None:
    log_storage.topics.send(log_storage.control_topic, [control_record(ledger, 0, EventKind.RESET, key="k")])
    ledger.heads()
    assert ledger.request("sender", "k") is None
    with pytest.raises(DefinitionsChanged):  # which copies it
        ledger.append_control([control()], seen=0, request=keyed("k", 0, 1))
    stored = ledger.request("sender", "k")
    assert stored is not None
    assert stored.positions == {0: 1, 1: 1, 2: 1}


@pytest.mark.parametrize("seen", [0, 2, 7])
def test_control_events_of_who_has_not_seen_all_are_void(
    ledger: KafkaLedger, log_storage: KafkaStorage, open_log: OpenLog, seen: int
) -> None:
    """As if the process had been overtaken just before it wrote."""
    written = list(ledger.append_control([control()], seen=0))
    log_storage.topics.send(
        log_storage.control_topic, [control_record(ledger, seen, EventKind.RESET, EventKind.DELETE)]
    )
    with pytest.raises(DefinitionsChanged):
        ledger.append_control([control()], seen=seen)

    written += ledger.append_control([control(EventKind.MIDNIGHT)], seen=1)

    for checked_ledger in (ledger, open_log()):
        assert checked_ledger.controls(0) == written
        assert [event.context.kind for event in written] == [EventKind.DEFINE, EventKind.MIDNIGHT]
        assert numbers_in(checked_ledger) == [[1, 2]] * LOG_PARTITIONS


def test_of_processes_that_append_control_events_at_once_each_sees_all_others(open_log: OpenLog) -> None:
    ledgers = [open_log() for _ in range(3)]
    rounds, won, bound = 8, list[tuple[str, int]](), LoadBound()

    def define(ledger: KafkaLedger, name: str) -> None:
        for number in range(rounds):
            while bound.take():
                try:
                    (event,) = ledger.append_control([control(board=f"{name}-{number}")], len(ledger.controls(0)))
                except DefinitionsChanged:
                    continue
                won.append((event.context.board, event.number))
                break

    threads = [threading.Thread(target=define, args=[ledger, str(index)]) for index, ledger in enumerate(ledgers)]
    for thread in threads:
        thread.start()
    join_all(threads)
    in_order = [board for board, _ in sorted(won, key=lambda event: event[1])]
    assert [number for _, number in sorted(won, key=lambda event: event[1])] == list(range(1, 3 * rounds + 1))
    for ledger in ledgers:
        assert [event.context.board for event in ledger.controls(0)] == in_order
        for numbers in numbers_in(ledger):
            assert list(dict.fromkeys(numbers)) == list(range(1, 3 * rounds + 1))


def test_an_event_accepted_after_a_control_event_stands_behind_it_everywhere(open_log: OpenLog) -> None:
    first_ledger, second_ledger = open_log(), open_log()
    for number in range(5):
        first_ledger.append_control([control(board=f"board-{number}")], seen=number)
        seen = len(second_ledger.controls(0))
        assert seen == number + 1
        second_ledger.append(draft(second_ledger, *((player, seen) for player in PLAYERS)))

    for rows in everything(first_ledger):
        passed = 0
        for row in rows:
            passed += row.kind is EventKind.DEFINE
            assert row.kind is EventKind.DEFINE or row.score == passed
