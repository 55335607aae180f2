"""Keys on every kind of write, scores of several boards at once, and where a request came from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from tests.committing import commit_together

import rankd
from rankd import Boards, ManualClock
from rankd.api.calls import bodies
from rankd.errors import BoardUnknown, Forbidden, InvalidValue, KeyReused, RankdError
from rankd.intake.sender import Sender
from rankd.ledger.origin import RequestOrigin

NOW = 1_777_896_000_000


@pytest.fixture
def boards(tmp_path: Path) -> Iterator[Boards]:
    with rankd.open(tmp_path / "data", clock=ManualClock(NOW)) as opened:
        opened.define("arcade", keep="sum")
        opened.define("words", keep="sum", score_max=100)
        yield opened


WRITES: dict[str, Callable[[Boards, str], object]] = {
    "define": lambda boards, key: boards.define("chess", title="Chess", key=key),
    "delete": lambda boards, key: boards.delete("words", key=key),
    "remove": lambda boards, key: boards.remove("arcade", "alice", key=key),
    "reset": lambda boards, key: boards.reset("arcade", key=key),
}


@pytest.mark.parametrize("name", WRITES)
def test_a_change_that_comes_again_under_its_key_is_not_made_again(boards: Boards, name: str) -> None:
    boards.submit("arcade", "alice", 5)
    first = WRITES[name](boards, "once")
    boards.submit("arcade", "alice", 7)
    position = boards.position
    again = WRITES[name](boards, "once")

    assert again == rankd.Changed(first.position, first.changed, repeated=True)  # type: ignore[attr-defined]
    assert boards.position == position


def test_a_reset_that_is_repeated_after_a_restart_empties_nothing(tmp_path: Path) -> None:
    clock = ManualClock(NOW)
    with rankd.open(tmp_path / "data", clock=clock) as boards:
        boards.define("arcade")
        boards.submit("arcade", "alice", 5)
        boards.reset("arcade", key="monday")
        boards.submit("arcade", "alice", 7)
    with rankd.open(tmp_path / "data", clock=clock) as boards:
        assert boards.reset("arcade", key="monday").repeated
        assert boards.top("arcade").total == 1


def test_another_change_under_the_same_key_is_refused(boards: Boards) -> None:
    boards.remove("arcade", "alice", key="once")

    with pytest.raises(KeyReused):
        boards.remove("arcade", "bob", key="once")
    with pytest.raises(KeyReused):
        boards.submit("arcade", "bob", 1, key="once")


def test_an_old_profile_that_is_repeated_does_not_replace_a_newer_one(boards: Boards) -> None:
    boards.set_player("alice", name="Alice", key="first")
    boards.set_player("alice", name="Alicia", key="second")
    boards.set_player("alice", name="Alice", key="first")

    assert boards.player("alice") == rankd.Profile("alice", "Alicia")


def test_only_what_is_given_of_a_profile_replaces_it(boards: Boards) -> None:
    boards.set_player("alice", name="Alice", country="BR", attributes={"guild": "owls"})
    stored = boards.set_player("alice", name="Al", only_given=True)

    assert stored == rankd.Profile("alice", "Al", None, "BR", {"guild": "owls"})


def test_friends_that_are_repeated_do_not_replace_newer_ones(boards: Boards) -> None:
    boards.set_friends("alice", ["bob"], key="first")
    boards.set_friends("alice", ["carol"])
    boards.set_friends("alice", ["bob"], key="first")

    assert list(boards.stored_friends("alice")) == ["carol"]


def test_scores_of_several_boards_count_together_and_in_their_order(boards: Boards) -> None:
    boards.define("last", keep="latest")
    boards.define("one", feeds=["last"])
    boards.define("two", feeds=["last"])
    answer = boards.submit_events(
        [
            {"board": "one", "player": "alice", "score": 1},
            {"board": "two", "player": "alice", "score": 2},
            {"board": "one", "player": "alice", "score": 3},
        ]
    )
    kept = boards.rank("last", "alice")

    assert answer.count == 3
    assert kept is not None
    assert kept.score == 3


@pytest.mark.parametrize(
    ("bad", "field"),
    [
        ({"board": "words", "player": "bob", "score": 101}, "events[1].score"),
        ({"board": "words", "player": "", "score": 1}, "events[1].player"),
        ({"board": "words", "player": "bob", "score": 1.0}, "events[1].score"),
        ({"board": "words", "player": "bob", "score": 1, "at": NOW + 60_000}, "events[1].at"),
        ({"board": "words", "player": "bob", "score": 1, "colour": "red"}, "events[1].colour"),
    ],
)
@pytest.mark.parametrize("key", [None, "match-1"])
def test_one_bad_event_refuses_all_and_is_named(
    boards: Boards, bad: dict[str, object], field: str, key: str | None
) -> None:
    with pytest.raises(InvalidValue) as caught:
        boards.submit_events([{"board": "arcade", "player": "alice", "score": 5}, bad], key=key)

    assert caught.value.field == field
    assert boards.top("arcade").total == 0


def test_an_event_of_a_board_that_is_not_there_refuses_all(boards: Boards) -> None:
    with pytest.raises(BoardUnknown, match="nowhere"):
        boards.submit_events(
            [{"board": "arcade", "player": "alice", "score": 5}, {"board": "nowhere", "player": "bob", "score": 5}]
        )
    assert boards.top("arcade").total == 0


def test_scores_of_several_boards_repeated_under_their_key_count_once(boards: Boards) -> None:
    events = [{"board": name, "player": "alice", "score": 5} for name in ("arcade", "words", "arcade")]
    first = boards.submit_events(events, key="match-1")
    again = boards.submit_events(events, key="match-1")
    standing = boards.rank("arcade", "alice")

    assert (again.position, again.count, again.repeated) == (first.position, 3, True)
    assert standing is not None
    assert standing.score == 10
    with pytest.raises(KeyReused):
        boards.submit_events(events[:2], key="match-1")


def test_keys_belong_to_accounts_and_names_stand_in_the_ledger(boards: Boards) -> None:
    alice = Sender("player", "player:alice", "match-1", origin=RequestOrigin("192.0.2.7"))
    bob = Sender("player", "player:bob", "match-1")
    boards.submit("arcade", "alice", 5, sender=alice)
    answer = boards.submit("arcade", "bob", 6, sender=bob)

    assert not answer.repeated
    assert [(event.sender, event.origin) for event in boards.history("alice")] == [("player", "192.0.2.7")]
    assert [(event.sender, event.origin) for event in boards.history("bob")] == [("player", None)]


@pytest.mark.parametrize("key", [None, "match-1"])
def test_a_board_that_asks_for_signatures_is_asked_again_when_scores_are_committed(
    boards: Boards, key: str | None
) -> None:
    boards.define("relayed", signing="relay")
    sent = bodies.Score("relayed", 5, "alice")
    game = Sender("game", "game", key, is_local=False)
    tasks = [
        boards.prepare_score(sent, msgspec.structs.replace(game, signing=signing))
        for signing in (None, "another", "relay")
    ]
    commit_together(boards.enqueue, tasks[:2])
    commit_together(boards.enqueue, tasks[2:])

    assert [type(task.error) for task in tasks] == [Forbidden, Forbidden, type(None)]
    assert "takes submissions signed with relay only" in str(tasks[0].error)
    assert boards.submit("relayed", "bob", 7).rank == 1  # the program itself needs no signature


def test_a_board_that_is_not_signed_cannot_feed_one_that_is(boards: Boards) -> None:
    boards.define("relayed", signing="relay")
    for signing in (None, "another"):
        with pytest.raises(InvalidValue, match="feeds: frame feeds relayed, which takes only submissions signed with"):
            boards.define("frame", feeds=["relayed"], signing=signing)
    with pytest.raises(InvalidValue, match="feeds: arcade feeds relayed"):
        boards.define("arcade", keep="sum", feeds=["relayed"])

    assert boards.define("frame", feeds=["relayed"], signing="relay").changed


def test_every_event_of_a_batch_names_its_source(boards: Boards) -> None:
    sender = Sender("server-1", "server-1", origin=RequestOrigin("2001:db8::1"))
    boards.submit_many("arcade", [("alice", 1), ("bob", 2)], sender=sender)
    boards.submit("arcade", "bob", 3)

    assert [event.origin for event in boards.history("alice")] == ["2001:db8::1"]
    assert [event.origin for event in boards.history("bob")] == [None, "2001:db8::1"]
    assert boards.verify()


def test_a_history_of_one_board_leaves_the_others_out(boards: Boards) -> None:
    boards.submit("arcade", "alice", 1)
    boards.submit("words", "alice", 2)
    boards.submit("arcade", "alice", 3)

    assert [event.score for event in boards.history("alice", board="arcade")] == [3, 1]


def test_an_avatar_is_an_address_on_the_web(boards: Boards) -> None:
    for address in ("javascript:alert(1)", "data:text/html,x", "//example.com/a.png", "https://a b", 'https://a"b'):
        with pytest.raises(RankdError, match="avatar_url"):
            boards.set_player("alice", avatar_url=address)
    boards.set_player("alice", avatar_url="https://example.com/alice.png?size=64")
