"""Every event of a ledger reaches a topic, in order, and notifications say what stands at the top."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random

import pytest
from tests.servers.kafka import KafkaBroker
from tests.servers.waiting import wait_until

from rankd.boards import Boards
from rankd.config.model import Config, LedgerConfig, RanksConfig
from rankd.domain.partition import partition_of
from rankd.node.installation import Installation, installation_of
from rankd.node.shared_stores import SharedStores
from rankd.outbox.running import ConfiguredRelay

from .relaying import PARTITIONS, Outbox, RelayedEvent, once, wait_relayed


class RelayedBoards:
    """An installation with its boards and its outbox."""

    def __init__(self, installation: Installation, boards: Boards, broker: KafkaBroker) -> None:
        self.boards = boards
        self.outbox = Outbox(broker)
        self._installation = installation
        boards.define("tally", keep="sum", windows=["all_time", "daily"], scopes=["country"])

    @contextmanager
    def relayed(self) -> Iterator[ConfiguredRelay]:
        with self.outbox.relayed(self._installation, self.boards) as relay:
            yield relay


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path, kafka: KafkaBroker) -> Iterator[RelayedBoards]:
    url = f"sqlite:{tmp_path / 'data'}"
    if request.param == "postgres":
        url = request.getfixturevalue("postgres_url")
        SharedStores(url).migrate()
    config = Config(ledger=LedgerConfig(url=url), ranks=RanksConfig(folder=str(tmp_path / "node")))
    installation = installation_of(config)
    with installation.open_boards() as boards:
        yield RelayedBoards(installation, boards, kafka)


def submit(boards: Boards, count: int, first: int = 0) -> None:
    """Submit scores of forty players, each with its number as the score."""
    numbers = range(first, first + count)
    boards.submit_many("tally", players=[f"p{number % 40}" for number in numbers], scores=[*numbers])


def scores_by_player(events: list[RelayedEvent]) -> dict[str, list[int]]:
    scores: dict[str, list[int]] = {}
    for event in events:
        if event.value["kind"] == "score":
            scores.setdefault(event.value["player"], []).append(event.value["score"])
    return scores


def test_every_event_comes_once_and_in_order_also_from_a_relay_that_goes_on(place: RelayedBoards) -> None:
    submit(place.boards, 2_000)
    with place.relayed() as relay:
        wait_relayed(relay, 2_001)
        submit(place.boards, 500, 2_000)
        place.boards.remove("tally", "p7")
        wait_relayed(relay, 2_502)
    submit(place.boards, 300, 2_500)
    with place.relayed() as relay:
        wait_relayed(relay, 300)

    events = place.outbox.events()
    assert events == once(events)  # both relays ended well, so that nothing came twice
    assert scores_by_player(events) == {f"p{n}": list(range(n, 2_800, 40)) for n in range(40)}
    kinds = Counter(event.value["kind"] for event in events)
    assert kinds == {"score": 2_800, "remove": 1, "define": PARTITIONS}
    for event in events:
        if event.key is not None:
            assert event.value["player"] == event.key
            assert event.partition == partition_of(event.key, PARTITIONS)
    assert len({event.event_id for event in events if event.key is not None}) == 2_801


def test_a_record_says_what_a_consumer_needs(place: RelayedBoards) -> None:
    place.boards.define("xp", keep="sum")
    place.boards.define("quiz", keep="best", ties="value", scopes=["country"], feeds=["xp"])
    place.boards.submit(
        "quiz", "Zoë", 976, tiebreak=12, attributes={"country": "BR"}, metadata={"level": '4 "Ü"'}, sender="game"
    )
    place.boards.submit("quiz", "bob", -3, sender="game")
    with place.relayed() as relay:
        wait_until(lambda: relay.lag() == 0)

    events_by_key = {event.key: event for event in place.outbox.events() if event.value["board"] == "quiz"}
    assert events_by_key["Zoë"].value == {
        "schema": 1,
        "kind": "score",
        "board": "quiz",
        "version": 1,
        "feeds": ["xp"],
        "sender": "game",
        "player": "Zoë",
        "score": 976,
        "at": place.boards.history("Zoë")[0].at,
        "tiebreak": 12,
        "attributes": {"country": "BR"},
        "metadata": {"level": '4 "Ü"'},
    }
    assert events_by_key["bob"].value["score"] == -3
    assert "tiebreak" not in events_by_key["bob"].value
    assert "metadata" not in events_by_key["bob"].value
    definition = events_by_key[None].value
    assert definition["kind"] == "define"
    assert definition["definition"]["feeds"] == ["xp"]


def test_a_control_event_stands_between_the_same_events_in_every_partition(place: RelayedBoards) -> None:
    submit(place.boards, 400)
    place.boards.reset("tally", "daily")
    submit(place.boards, 400, 400)
    with place.relayed() as relay:
        wait_until(lambda: relay.lag() == 0)

    events = place.outbox.events()
    for partition in range(PARTITIONS):
        values = [event.value for event in events if event.partition == partition]
        (reset,) = [index for index, value in enumerate(values) if value["kind"] == "reset"]
        assert values[reset]["window"] == "daily"
        assert all(value["score"] < 400 for value in values[1:reset])
        assert all(value["score"] >= 400 for value in values[reset + 1 :])
        assert len(values) > 2


def test_a_record_that_is_refused_holds_up_those_behind_it_and_is_not_skipped(
    place: RelayedBoards, caplog: pytest.LogCaptureFixture
) -> None:
    topics, topic = place.outbox.topics, place.outbox.config.topic
    assert topics.create("events", PARTITIONS, max_message_bytes="200000") == topic
    submit(place.boards, 200)
    chosen = Random(7)
    noise = [{"noise": chosen.randbytes(500).hex()} for _ in range(600)]  # which does not shrink below the limit
    place.boards.submit_many("tally", players=["p7"] * 600, scores=[*range(200, 800)], metadata=noise)
    place.boards.submit_many("tally", players=["p7"] * 20_000, scores=[*range(800, 20_800)])  # batches that would pass
    with place.relayed() as relay:
        wait_until(lambda: "raise the topic's max.message.bytes" in caplog.text)
        topics.configure(topic, "max.message.bytes", "2000000")
        wait_until(lambda: relay.lag() == 0)

    scores = scores_by_player(once(place.outbox.events()))
    assert scores["p7"] == sorted(scores["p7"])
    assert sum(map(len, scores.values())) == 20_800


def test_of_two_relays_one_works_and_the_other_takes_over(
    tmp_path: Path, kafka: KafkaBroker, postgres_url: str
) -> None:
    SharedStores(postgres_url).migrate()
    config = Config(ledger=LedgerConfig(url=postgres_url), ranks=RanksConfig(folder=str(tmp_path / "node")))
    installation = installation_of(config)
    with installation.open_boards() as boards:
        place = RelayedBoards(installation, boards, kafka)
        with ExitStack() as second:
            with place.relayed() as first_relay:
                second_relay = second.enter_context(place.outbox.relayed(installation, boards, waits=False))
                submit(boards, 100)
                wait_until(lambda: first_relay.lag() == 0 and first_relay.relayed() >= 100)
                assert (second_relay.lag(), second_relay.relayed()) == (None, 0)
            wait_until(lambda: second_relay.lag() == 0)
            submit(boards, 100, 100)
            wait_until(lambda: second_relay.lag() == 0 and second_relay.relayed() == 100)

    events = place.outbox.events()
    assert events == once(events)
    assert sum(map(len, scores_by_player(events).values())) == 200


def test_notifications_have_the_newest_top_of_each_instance(place: RelayedBoards) -> None:
    with place.relayed() as relay:
        submit(place.boards, 400)
        place.boards.submit("tally", "p39", 10_000, attributes={"country": "BR"})
        wait_until(lambda: "tally@all_time@country:BR" in place.outbox.newest_tops())
        submit(place.boards, 400, 400)
        wait_relayed(relay, 802)

    tops = place.outbox.newest_tops()
    daily = place.boards.top("tally", 10, window="daily")
    assert set(tops) == {
        f"tally@{window}@{scope}" for window in ("all_time", daily.window) for scope in ("global", "country:BR")
    }
    for page in (daily, place.boards.top("tally", 10)):
        value = tops[f"tally@{page.window}@global"]
        assert value is not None
        assert value["total"] == page.total == 40
        assert [(entry["rank"], entry["player"], entry["score"]) for entry in value["entries"]] == [
            (entry.rank, entry.player, entry.score) for entry in page.entries
        ]
        assert value["position"]


def test_a_deleted_board_leaves_no_notification(place: RelayedBoards) -> None:
    with place.relayed() as relay:
        submit(place.boards, 10)
        wait_until(lambda: relay.figures.notified >= 2)
        place.boards.delete("tally")
        wait_until(lambda: not any(place.outbox.newest_tops().values()))
