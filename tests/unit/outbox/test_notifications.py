"""Which changes of the first ten are notified, and when: by hand, with a clock that stands still."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import rankd
from rankd import ManualClock
from rankd.boards import Boards
from rankd.node.open_embedded import embedded_of
from rankd.outbox import notifications as module
from rankd.outbox.notifications import INTERVAL_S, UNRANKED_S_MAX, TopNotifications

from .lagging_boards import LaggingBoards

NOON = 1_777_896_000_000  # 2026-05-04
DAY_MS = 86_400_000
Sent = tuple[str, dict[str, Any] | None]


class RelayByHand:
    """Boards, and the notifications of what is relayed by hand."""

    def __init__(self, boards: Boards, clock: ManualClock) -> None:
        self.boards = boards
        self.clock = clock
        self.now_s = 1_000.0
        self.lagging = LaggingBoards(boards)
        self._sent: list[Sent] = []
        self.notifications = TopNotifications(self.lagging, self._send)
        self._read = [0]

    def _send(self, instance: str, value: bytes | None) -> None:
        self._sent.append((instance, None if value is None else msgspec.json.decode(value)))

    def relayed(self) -> None:
        """Read what the ledger has got, as a relay does."""
        ledger = embedded_of(self.boards).ledger
        for part in ledger.read(self._read, 1_000_000):
            self.notifications.touch(ledger.context(part.event_run.context), part.event_run, self.now_s)
            self._read = [part.event_run.span.upto]

    def sent(self, after_s: float = 0.0, *, at_once: bool = False) -> list[Sent]:
        """Relay and publish a while later; return what was sent."""
        self.now_s += after_s
        self.relayed()
        self.notifications.publish(self.now_s, at_once=at_once)
        sent, self._sent = self._sent, []
        self._sent.clear()
        return sent

    def oldest_s(self) -> float | None:
        return self.notifications.oldest_s

    def submit(self, **scores: int) -> None:
        self.boards.submit_many("arcade", players=[*scores], scores=[*scores.values()])


@pytest.fixture
def relay(tmp_path: Path) -> Iterator[RelayByHand]:
    clock = ManualClock(NOON)
    with rankd.open(tmp_path / "data", clock=clock) as boards:
        boards.define("arcade", keep="latest")
        yield RelayByHand(boards, clock)


def changed(sent: Sent) -> tuple[list[str], list[str]]:
    assert sent[1] is not None
    return [entry["player"] for entry in sent[1]["changed"]["set"]], sent[1]["changed"]["gone"]


def test_the_first_notification_of_an_instance_has_all_entries(relay: RelayByHand) -> None:
    relay.submit(ann=30, bob=20)

    ((instance, value),) = relay.sent()

    assert instance == "arcade@all_time@global"
    assert value is not None
    assert value["schema"] == 1
    assert [(entry["rank"], entry["player"], entry["score"]) for entry in value["entries"]] == [
        (1, "ann", 30),
        (2, "bob", 20),
    ]
    assert (value["board"], value["window"], value["scope"], value["total"]) == ("arcade", "all_time", "global", 2)
    assert value["position"] == relay.boards.position
    assert value["as_of"] == NOON
    assert value["changed"]["set"] == value["entries"]
    assert value["changed"]["gone"] == []


def test_of_the_same_ten_players_there_is_one_in_an_interval_and_the_last_state_comes(relay: RelayByHand) -> None:
    relay.submit(ann=30, bob=20)
    assert len(relay.sent()) == 1

    for number in range(10):
        relay.submit(bob=21 + number)
        assert relay.sent(0.04) == []
    (last,) = relay.sent(INTERVAL_S)

    assert changed(last) == (["bob"], [])
    assert last[1] is not None
    assert last[1]["entries"][1]["score"] == 30
    assert relay.sent(INTERVAL_S) == []  # nothing new


def test_another_player_among_the_first_ten_is_notified_at_once(relay: RelayByHand) -> None:
    relay.submit(**{f"p{number}": 100 - number for number in range(12)})
    assert len(relay.sent()) == 1

    relay.submit(p11=95)
    (entered,) = relay.sent(0.01)
    assert changed(entered) == (["p11", *(f"p{number}" for number in range(5, 9))], ["p9"])

    relay.boards.remove("arcade", "p0")
    (left,) = relay.sent(0.01)
    assert changed(left)[1] == ["p0"]
    assert "p9" in changed(left)[0]


def test_what_happens_below_the_first_ten_is_no_notification(relay: RelayByHand) -> None:
    relay.submit(**{f"p{number}": 100 - number for number in range(12)})
    assert len(relay.sent()) == 1

    relay.submit(p11=80, nobody=1)

    assert relay.sent(INTERVAL_S) == []


def test_each_window_and_scope_that_an_event_counts_in_is_an_instance(relay: RelayByHand) -> None:
    relay.boards.define("laps", keep="best", order="asc", windows=["all_time", "daily"], scopes=["country", "car"])
    relay.boards.submit("laps", "ann", 61, attributes={"country": "BR"})
    relay.boards.submit("laps", "bob", 62, attributes={"car": "red"})

    instances = {instance for instance, _ in relay.sent()}

    scopes = ("global", "country:BR", "car:red")
    assert instances == {f"laps@{window}@{scope}" for window in ("all_time", "daily:2026-05-04") for scope in scopes}


def test_boards_that_are_fed_and_boards_of_teams_are_notified_too(relay: RelayByHand) -> None:
    relay.boards.define("guilds", keep="sum", team={"attribute": "guild", "by": "sum"})
    relay.boards.define("words", keep="best", feeds=["guilds"])
    relay.boards.submit("words", "ann", 7, attributes={"guild": "owls"})

    sent = dict(relay.sent())

    assert set(sent) == {"words@all_time@global", "guilds@all_time@global"}
    guilds = sent["guilds@all_time@global"]
    assert guilds is not None
    assert guilds["entries"][0]["player"] == "owls"


def test_a_window_that_has_ended_gets_its_last_state(relay: RelayByHand) -> None:
    relay.boards.define("daily", keep="best", windows=["daily"])
    relay.boards.submit("daily", "ann", 7)
    relay.sent()
    relay.clock.set(NOON + DAY_MS // 2 - 1)
    relay.boards.submit("daily", "ann", 8)
    assert relay.sent(0.01) == []  # too soon
    relay.clock.advance(2)
    relay.boards.submit("daily", "ann", 5)

    sent = dict(relay.sent(INTERVAL_S))

    scores = {instance: value["entries"][0]["score"] for instance, value in sent.items() if value is not None}
    assert scores == {"daily@daily:2026-05-04@global": 8, "daily@daily:2026-05-05@global": 5}


def test_a_reset_empties_and_a_deletion_ends_it(relay: RelayByHand) -> None:
    relay.submit(ann=1)
    relay.sent()
    relay.boards.reset("arcade")
    (empty,) = relay.sent(0.01)
    assert changed(empty) == ([], ["ann"])

    relay.boards.delete("arcade")

    assert relay.sent(0.01) == [("arcade@all_time@global", None)]
    assert relay.sent(INTERVAL_S) == []


def test_what_is_not_ranked_here_yet_is_waited_for(relay: RelayByHand) -> None:
    relay.lagging.is_lagging = True
    relay.submit(ann=1)
    assert relay.sent() == []
    assert relay.oldest_s() == relay.now_s
    since_s = relay.now_s
    assert relay.sent(3.0) == []
    assert relay.oldest_s() == since_s

    relay.lagging.is_lagging = False

    assert len(relay.sent(0.01)) == 1
    assert relay.oldest_s() is None


def test_what_is_never_ranked_here_is_not_waited_for_for_ever(relay: RelayByHand) -> None:
    relay.lagging.is_lagging = True
    relay.submit(ann=1)

    relay.sent()
    relay.sent(UNRANKED_S_MAX)

    assert relay.oldest_s() is None


def test_an_event_waits_until_its_notification_is_sent(relay: RelayByHand) -> None:
    relay.submit(ann=1)
    relay.sent()
    assert relay.oldest_s() is None

    relay.submit(ann=2)
    relay.sent(0.01)
    since_s = relay.now_s
    relay.submit(ann=3)
    relay.sent(0.01)
    assert relay.oldest_s() == since_s

    assert len(relay.sent(at_once=True)) == 1  # a relay that ends
    assert relay.oldest_s() is None


def test_a_bounded_number_of_instances_is_remembered(
    relay: RelayByHand, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "INSTANCES_MAX", 5)
    relay.boards.define("laps", {"keep": "latest", "scopes": ["country"], "global": False})
    for number in range(5):
        relay.boards.submit("laps", "ann", number, attributes={"country": f"c{number}"})
        assert len(relay.sent(INTERVAL_S)) == 1
    relay.boards.submit("laps", "ann", 6, attributes={"country": "c5"})
    assert len(relay.sent(INTERVAL_S)) == 1  # in place of c0, of which nothing is under way

    relay.boards.submit("laps", "ann", 7, attributes={"country": "c0"})
    ((_, value),) = relay.sent(INTERVAL_S)
    assert value is not None
    assert value["changed"]["set"] == value["entries"]
    assert not caplog.records

    relay.boards.submit_events(
        [{"board": "laps", "player": "bob", "score": 1, "attributes": {"country": f"d{n}"}} for n in range(9)]
    )
    assert len(relay.sent(INTERVAL_S)) == 5
    assert "some notifications are left out" in caplog.text


def test_an_import_of_past_years_notifies_of_the_newest_instants(relay: RelayByHand) -> None:
    relay.boards.define("daily", keep="best", windows=["daily"], late_by="3650d")
    days = range(100)
    relay.boards.submit_many(
        "daily", players=["ann"] * 100, scores=[*days], at=[NOON - day * DAY_MS for day in days], imported=True
    )

    sent = [instance for instance, _ in relay.sent()]

    assert len(sent) == module.MINUTES_MAX
    assert "daily@daily:2026-05-04@global" in sent
