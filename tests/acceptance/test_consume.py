"""Scores that arrive through Kafka: each record counts once, and what is wrong with one is a dead letter."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec
import pytest
from tests.servers.kafka import KafkaBroker, KafkaCluster
from tests.servers.topics import Topics
from tests.servers.waiting import wait_until

import rankd
from rankd.boards import Boards
from rankd.config.model import Config, ConsumeConfig
from rankd.consume.appending import ConsumerFigures, RecordAppender
from rankd.consume.queue import DeadLetterQueue
from rankd.consume.running import ConfiguredConsumer
from rankd.intake.backpressure import Backpressure
from rankd.kafka.dead_letters import CUT_BYTES, DeadLetters
from rankd.ledger.port import SourceMoved

from .serving import serving

JOIN_S = 60.0


class Place:
    """Boards of a folder, and topics that are consumed into them."""

    def __init__(self, boards: Boards, broker: KafkaBroker | KafkaCluster) -> None:
        self.boards = boards
        self.brokers = broker.address
        self.topics = Topics(broker.address)
        self.scores = self.topics.create("scores", 3)
        self.dead = self.topics.name("dead")
        self._url = broker.url
        boards.define("tally", keep="sum", windows=["all_time", "daily"], score_min=0, score_max=1_000_000)

    def consuming(self, **more: object) -> ConfiguredConsumer:
        consume = ConsumeConfig(url=self._url, topics=(self.scores,), dead_letters=self.dead)
        return ConfiguredConsumer(Config(consume=msgspec.structs.replace(consume, **more)))

    @contextmanager
    def consumed(self, **more: object) -> Iterator[ConfiguredConsumer]:
        """Consume in a thread for the block."""
        stop, consuming = threading.Event(), self.consuming(**more)
        thread = threading.Thread(target=consuming.run, args=(self.boards.sources, stop, print))
        thread.start()
        try:
            yield consuming
        finally:
            stop.set()
            thread.join(JOIN_S)
            assert not thread.is_alive()

    @contextmanager
    def queue(self) -> Iterator[DeadLetterQueue]:
        with closing(self.consuming().open_queue(self.boards.sources)) as queue:
            yield queue

    def total(self) -> int:
        """The sum of all kept scores."""
        return sum(entry.score for entry in self.boards.top("tally", 1_000).entries)


@pytest.fixture
def place(tmp_path: Path, kafka: KafkaBroker) -> Iterator[Place]:
    with rankd.open(tmp_path / "data") as boards:
        yield Place(boards, kafka)


def points(player: str, score: int = 1) -> dict[str, object]:
    return {"board": "tally", "player": player, "score": score}


def test_records_become_scores_once_also_when_they_are_read_again(place: Place) -> None:
    place.topics.send(place.scores, (points(f"player-{number % 40}") for number in range(3_000)))
    with place.consumed() as consuming:
        wait_until(lambda: consuming.figures.consumed == 3_000)
    place.topics.send(place.scores, (points(f"player-{number % 40}") for number in range(500)))
    with place.consumed(batch_events_max=7) as consuming:
        wait_until(lambda: consuming.figures.consumed == 500)
        wait_until(lambda: consuming.lag() == 0)

    assert place.total() == 3_500
    assert place.boards.top("tally", 1).total == 40


def test_records_stay_in_kafka_while_ranks_lag_and_count_once_afterwards(place: Place) -> None:
    lag_ms = 5_000.0
    place.boards.sources._writer.backpressure = Backpressure(lambda: lag_ms, 1_000)
    place.topics.send(place.scores, (points(f"player-{number % 40}") for number in range(300)))
    with place.consumed() as consuming:
        wait_until(lambda: place.boards.sources._writer.backpressure.refusals >= 2)
        assert (consuming.figures.consumed, consuming.figures.refused) == (0, 0)
        lag_ms = 0.0
        wait_until(lambda: consuming.figures.consumed == 300)
    assert place.total() == 300


def test_the_key_is_the_player_where_the_value_names_none(place: Place) -> None:
    place.topics.send(place.scores, [("Zoë".encode(), {"board": "tally", "score": 5})])
    with place.consumed() as consuming:
        wait_until(lambda: consuming.figures.consumed == 1)

    assert [entry.player for entry in place.boards.top("tally", 10).entries] == ["Zoë"]


def test_refused_records_become_dead_letters_and_the_others_go_on(place: Place) -> None:
    wrong: list[tuple[object, str]] = [
        (b"not JSON", "malformed_request"),
        (b"[1, 2]", "invalid_value"),
        (None, "malformed_request"),
        ({"board": "nowhere", "player": "ann", "score": 1}, "board_unknown"),
        ({"board": "tally", "player": "ann", "score": 1_000_001}, "invalid_value"),
        ({"board": "tally", "player": "ann", "score": True}, "invalid_value"),
        ({"board": "tally", "score": 1}, "invalid_value"),
        ({"board": "tally", "player": "ann", "score": 1, "attributes": {"country": "x" * 300_000}}, "too_large"),
        ({"board": "tally", "player": "ann", "scores": 1}, "invalid_value"),
        ((b"\xff", {"board": "tally", "score": 1}), "invalid_value"),
    ]
    for number, (record, _) in enumerate(wrong):
        place.topics.send(place.scores, [points(f"good-{number}"), record, points(f"fine-{number}")], partition=1)

    with place.consumed() as consuming:
        wait_until(lambda: consuming.figures.consumed + consuming.figures.refused == 3 * len(wrong))

    assert place.total() == 2 * len(wrong)
    letters = place.topics.read(place.dead, len(wrong))
    headers = [place.topics.headers(letter) for letter in letters]
    assert [header["rankd-reason-code"] for header in headers] == [code for _, code in wrong]
    assert [int(header["rankd-offset"]) for header in headers] == [3 * number + 1 for number in range(len(wrong))]
    assert {header["rankd-topic"] for header in headers} == {place.scores}
    assert {header["rankd-partition"] for header in headers} == {"1"}
    assert letters[0].value() == b"not JSON"
    assert "1000000" in headers[4]["rankd-reason"]


def test_a_refused_record_that_is_too_large_for_a_letter_is_cut_and_blocks_nobody(place: Place) -> None:
    large, larger = random.randbytes(1_010_000), random.randbytes(2_000_000)  # a topic takes 1,048,588 bytes by default
    scores = place.topics.create("large", 1, max_message_bytes="3000000")
    place.topics.send(scores, [points("ann"), large, points("bob"), (b"key", larger), b"small", points("eve")])
    with place.consumed(topics=(scores,)) as consuming:
        wait_until(lambda: consuming.figures.consumed == 3)

    letters = sorted(place.topics.read(place.dead, 3), key=lambda letter: place.topics.headers(letter)["rankd-offset"])
    headers = [place.topics.headers(letter) for letter in letters]
    assert [header["rankd-offset"] for header in headers] == ["1", "3", "4"]
    assert [header["rankd-reason-code"] for header in headers] == ["too_large", "too_large", "malformed_request"]
    assert [letter.value() for letter in letters] == [large, larger[:CUT_BYTES], b"small"]
    assert [header.get("rankd-value-bytes") for header in headers] == [None, "2000000", None]
    assert letters[1].key() == b"key"


def test_dead_letters_are_listed_replayed_once_and_dropped(place: Place) -> None:
    later = [{"board": "later", "player": "ann", "score": 3}, {"board": "later", "player": "bob", "score": 4}]
    place.topics.send(place.scores, [later[0], b"nonsense", later[1]], partition=0)
    with place.consumed() as consuming:
        wait_until(lambda: consuming.figures.refused == 3)

    with place.queue() as queue:
        assert [letter.code for letter in queue.letters(10)] == ["board_unknown", "malformed_request", "board_unknown"]
        assert [letter.record_offset for letter in queue.letters(2)] == [0, 1]

    place.boards.define("later", keep="sum")
    with place.queue() as queue:
        assert queue.replay(10) == 3
        assert (queue.figures.consumed, queue.figures.refused) == (2, 1)
    with place.queue() as queue:
        (left,) = queue.letters(10)
        assert (left.code, left.record_offset, left.value) == ("malformed_request", 1, "nonsense")
        assert queue.drop(10) == 1
    with place.queue() as queue:
        assert queue.letters(10) == []
        assert queue.replay(10) == 0

    assert [(entry.player, entry.score) for entry in place.boards.top("later", 10).entries] == [("bob", 4), ("ann", 3)]


def test_records_that_kafka_deleted_before_they_were_read_are_counted_as_lost(place: Place) -> None:
    place.topics.send(place.scores, [points("ann")] * 10, partition=0)
    with place.consumed() as consuming:
        wait_until(lambda: consuming.figures.consumed == 10)
    place.topics.send(place.scores, [points("ann")] * 10, partition=0)
    place.topics.delete_records(place.scores, 15)

    with place.consumed() as consuming:
        wait_until(lambda: consuming.figures.consumed == 5)

    assert consuming.figures.lost == 5
    assert place.total() == 15


def test_of_two_consumers_of_one_partition_only_the_first_appends_a_record(place: Place) -> None:
    place.topics.send(place.scores, [points("ann")] * 4, partition=0)
    records, partition = place.topics.read(place.scores, 4), (place.scores, 0)
    letters = DeadLetters(place.dead, 60_000, {"bootstrap.servers": place.brokers})
    both = [RecordAppender(place.boards.sources, letters, "rankd", ConsumerFigures()) for _ in range(2)]
    for appender in both:
        appender.begin("cluster", [partition])

    both[0].append(partition, records[:3])
    with pytest.raises(SourceMoved):
        both[1].append(partition, records)
    both[1].begin("cluster", [partition])
    both[1].append(partition, records)

    assert place.total() == 4


def test_brokers_that_are_away_are_waited_for_and_lose_nothing(tmp_path: Path, own_kafka: KafkaBroker) -> None:
    with rankd.open(tmp_path / "data") as boards:
        place = Place(boards, own_kafka)
        place.topics.send(place.scores, [points("ann")] * 50)
        own_kafka.stop()
        with place.consumed() as consuming:
            own_kafka.start()
            wait_until(lambda: consuming.figures.consumed == 50)
            own_kafka.kill()
            own_kafka.start()
            place.topics.send(place.scores, [points("ann")] * 30)
            wait_until(lambda: consuming.figures.consumed == 80)

        assert place.total() == 80


def test_a_leader_that_dies_is_replaced_and_each_record_counts_once(
    tmp_path: Path, kafka_cluster: KafkaCluster
) -> None:
    with rankd.open(tmp_path / "data") as boards:
        place = Place(boards, kafka_cluster)
        with place.consumed(batch_events_max=50) as consuming:
            for number in range(1, 4):
                place.topics.send(place.scores, [points("ann")] * 500, partition=0)
                if number == 2:
                    kafka_cluster.leader(place.scores).kill()
                place.topics.send(place.scores, [points("ann"), b"nonsense"], partition=0)
                wait_until(lambda sent=501 * number: consuming.figures.consumed == sent)  # type: ignore[misc]
            wait_until(lambda: consuming.figures.refused == 3)

        assert place.total() == 1_503
        letters = place.topics.read(place.dead, 3)
        assert len({place.topics.headers(letter)["rankd-offset"] for letter in letters}) == 3


def test_a_server_consumes_beside_its_other_work_and_shows_how_far_it_is(tmp_path: Path, kafka: KafkaBroker) -> None:
    topics = Topics(kafka.address)
    topic = topics.create("served", 2)
    config = (
        f'[consume]\nurl = "{kafka.url}"\ntopics = ["{topic}"]\ndead_letters = "{topics.name("dead")}"\n'
        '[boards.tally]\nkeep = "sum"\n'
    )
    with serving(tmp_path / "data", config=config) as server, server.client() as anybody:
        topics.send(topic, [points("ann"), b"nonsense", *[points("bob", 2)] * 300])
        wait_until(lambda: 'records_total{outcome="appended"} 301.0' in anybody.get("/metrics").text)

        read = anybody.get("/v1/boards/tally/top").json()
        assert [(entry["player"], entry["score"]) for entry in read["entries"]] == [("bob", 600), ("ann", 1)]
        metrics = anybody.get("/metrics").text
        assert 'rankd_consumed_records_total{outcome="refused"} 1.0' in metrics
        assert "rankd_consume_lag_records 0.0" in metrics
        assert server.stop() == 0
