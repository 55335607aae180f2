"""What is stored with an event when it is accepted: versions and clocks, shared by as many events as possible."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from rankd import Boards, ManualClock
from rankd.domain.board import Board
from rankd.domain.definition import define_board
from rankd.errors import InvalidValue
from rankd.intake.accept import Acceptances
from rankd.ledger.event import Context, EventKind
from rankd.node.open_embedded import embedded_of

if TYPE_CHECKING:
    from tests.unit.conftest import OpenBoards

MINUTE_MS = 60_000
HOUR_MS = 3_600_000


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1_000)


class Accepting:
    """Acceptances of boards that are defined by hand, with the contexts that were numbered."""

    def __init__(self, **definitions: dict[str, object]) -> None:
        self.boards: dict[str, Board] = {
            name: define_board(name, definition) for name, definition in definitions.items()
        }
        self.versions = dict.fromkeys(definitions, 1)
        self.contexts: list[Context] = []
        self.acceptances = Acceptances(lambda: self.boards, self.versions.__getitem__, self._number)

    def _number(self, context: Context) -> int:
        if context not in self.contexts:
            self.contexts.append(context)
        return self.contexts.index(context) + 1

    def at(self, at: int, board: str = "arcade", kind: EventKind = EventKind.SCORE, sender: str = "local") -> Context:
        return self.acceptances.at(self.boards[board], sender, kind, at).context


@pytest.mark.parametrize(
    ("change", "before_s", "after_s"),
    [("2026-03-29T01:00", 3_600, 7_200), ("2026-10-25T01:00", 7_200, 3_600)],
)
def test_the_offset_changes_with_the_clock_to_the_millisecond(change: str, before_s: int, after_s: int) -> None:
    accepting = Accepting(arcade={"time_zone": "Europe/Berlin"})
    for offset_ms in (-HOUR_MS, -MINUTE_MS, -1):
        assert accepting.at(ms(change) + offset_ms).boards["arcade"].utc_offset_s == before_s
    for offset_ms in (0, 1, MINUTE_MS, HOUR_MS):
        assert accepting.at(ms(change) + offset_ms).boards["arcade"].utc_offset_s == after_s
    assert len(accepting.contexts) == 2


def test_an_odd_offset_is_stored_to_the_second() -> None:
    accepting = Accepting(arcade={"time_zone": "Africa/Monrovia"})
    change = ms("1972-01-07T01:00")  # the hour that the clock's change cut ends here
    offsets = [accepting.at(change + offset_ms).boards["arcade"].utc_offset_s for offset_ms in (-HOUR_MS, -1, 0)]
    assert offsets == [-2_670, -2_670, 0]


def test_a_cron_window_names_its_reset_to_the_millisecond() -> None:
    accepting = Accepting(arcade={"windows": [{"name": "raid", "reset": "7 18 * * *"}]})
    reset = ms("2026-05-04T18:07")

    assert accepting.at(reset - 1).boards["arcade"].resets == {"raid": reset - 24 * HOUR_MS}
    assert accepting.at(reset).boards["arcade"].resets == {"raid": reset}


def test_a_whole_day_of_events_shares_one_context() -> None:
    accepting = Accepting(arcade={"windows": ["all_time", "weekly", "daily", "hourly"]})
    for minute in range(0, 24 * 60, 7):
        accepting.at(ms("2026-05-04") + minute * MINUTE_MS)
    assert len(accepting.contexts) == 1


def test_senders_and_kinds_have_contexts_of_their_own() -> None:
    accepting = Accepting(arcade={})
    now = ms("2026-05-04")
    accepting.at(now)
    accepting.at(now, sender="server-2")
    accepting.at(now, kind=EventKind.REMOVE)
    assert [(context.kind, context.sender) for context in accepting.contexts] == [
        (EventKind.SCORE, "local"),
        (EventKind.SCORE, "server-2"),
        (EventKind.REMOVE, "local"),
    ]


def test_scores_reach_the_open_boards_that_are_fed_and_other_kinds_do_not() -> None:
    accepting = Accepting(
        arcade={"feeds": ["xp", "shut"]}, xp={"time_zone": "Asia/Tokyo", "scopes": ["country"]}, shut={"open": False}
    )
    now = ms("2026-05-04")

    assert list(accepting.at(now).boards) == ["arcade", "xp"]
    assert accepting.at(now).boards["xp"].utc_offset_s == 9 * 3_600
    assert list(accepting.at(now, kind=EventKind.RESET).boards) == ["arcade"]
    acceptance = accepting.acceptances.at(accepting.boards["arcade"], "local", EventKind.SCORE, now)
    assert acceptance.attributes == ("country",)


def test_a_changed_definition_is_noticed_once_the_cache_is_empty() -> None:
    accepting = Accepting(arcade={})
    now = ms("2026-05-04")
    assert accepting.at(now).boards["arcade"].version == 1
    accepting.versions["arcade"] = 2
    accepting.boards["arcade"] = define_board("arcade", {"title": "Arcade"})
    accepting.acceptances.forget()
    assert accepting.at(now).boards["arcade"].version == 2


def contexts(boards: Boards) -> list[Context]:
    ledger = embedded_of(boards).writer._ledger
    return [
        ledger.context(event_run.context) for _, event_run, *_ in ledger.read([0], 1_000) for _ in range(len(event_run))
    ]


def test_each_event_names_the_definition_it_was_accepted_under(boards: Boards) -> None:
    boards.define("xp")
    boards.define("arcade", feeds=["xp"])
    boards.submit("arcade", "alice", 1)
    boards.define("xp", title="XP")
    boards.submit("arcade", "alice", 2)
    boards.define("arcade", feeds=["xp"], score_max=10)
    boards.submit("arcade", "alice", 3)

    versions = [
        (context.boards["arcade"].version, context.boards["xp"].version)
        for context in contexts(boards)
        if context.kind is EventKind.SCORE
    ]
    assert versions == [(1, 1), (1, 2), (2, 2)]
    boards.verify()


def test_a_batch_over_a_change_of_the_clock_is_cut_there(boards: Boards, clock: ManualClock) -> None:
    change = ms("2026-10-25T01:00")
    boards.define("arcade", windows=["hourly", "daily"], time_zone="Europe/Berlin", late_by="2h")
    clock.set(change + 1_000)
    boards.submit_many(
        "arcade", players=["before", "after", "late"], scores=[1, 2, 3], at=[change - 1, change, change - 2]
    )
    hours = {
        f"hourly:2026-10-25T0{hour}00Z": boards.top("arcade", window=f"hourly:2026-10-25T0{hour}00Z") for hour in (0, 1)
    }

    assert {name: [entry.player for entry in page.entries] for name, page in hours.items()} == {
        "hourly:2026-10-25T0000Z": ["late", "before"],
        "hourly:2026-10-25T0100Z": ["after"],
    }
    offsets = [context.boards["arcade"].utc_offset_s for context in contexts(boards) if context.kind is EventKind.SCORE]
    assert offsets == [7_200, 3_600, 7_200]
    boards.verify()


def test_attributes_are_resolved_when_the_event_is_accepted(boards: Boards) -> None:
    boards.define("arcade", scopes=["country", "level"])
    boards.set_player("alice", country="BR", attributes={"level": 7, "unused": "x"})
    boards.submit("arcade", "alice", 5, attributes={"level": 8})
    boards.set_player("alice", country="PT")
    boards.submit("arcade", "alice", 6)

    totals = {
        scope: boards.top("arcade", scope=scope).total for scope in ("country:BR", "country:PT", "level:7", "level:8")
    }
    assert totals == {"country:BR": 1, "country:PT": 1, "level:7": 0, "level:8": 1}
    boards.verify()


def test_an_attribute_has_at_most_so_many_values_on_a_board(open_boards: OpenBoards) -> None:
    boards = open_boards(scope_values_max=2)
    boards.define("arcade", scopes=["country"])
    for country in ("BR", "PT", "BR"):
        boards.submit("arcade", "alice", 1, attributes={"country": country})
    with pytest.raises(InvalidValue, match=r"attributes\.country: .*2 values"):
        boards.submit("arcade", "alice", 1, attributes={"country": "DE"})
    boards.submit("arcade", "alice", 1, attributes={"country": "PT", "other": "DE"})
    boards.close()

    again = open_boards(scope_values_max=2)
    with pytest.raises(InvalidValue):
        again.submit("arcade", "alice", 1, attributes={"country": "DE"})


def submitted_from(boards: Boards, *countries: str) -> None:
    for country in countries:
        boards.submit("arcade", "alice", 1, attributes={"country": country})


def test_a_board_may_have_more_values_than_the_setting_says_or_fewer(open_boards: OpenBoards) -> None:
    boards = open_boards(scope_values_max=2)
    boards.define("arcade", scopes=["country"], scope_values_max=3)
    submitted_from(boards, "BR", "PT", "DE")
    with pytest.raises(InvalidValue, match=r"attributes\.country: has 3 values .* 3 is the most .* scope_values_max"):
        submitted_from(boards, "AR")

    boards.define("arcade", scopes=["country"], scope_values_max=4)
    submitted_from(boards, "AR")
    boards.define("arcade", scopes=["country"])
    with pytest.raises(InvalidValue, match=r"has 4 values .* 2 is the most"):
        submitted_from(boards, "UY")


def test_a_limit_below_what_there_is_refuses_new_values_only(boards: Boards) -> None:
    boards.define("arcade", scopes=["country"])
    submitted_from(boards, "BR", "PT", "DE")
    boards.define("arcade", scopes=["country"], scope_values_max=1)

    submitted_from(boards, "DE", "BR")
    with pytest.raises(InvalidValue, match=r"has 3 values .* 1 is the most"):
        submitted_from(boards, "AR")


def test_values_stay_known_when_their_windows_have_left_and_after_a_restart(
    open_boards: OpenBoards, clock: ManualClock
) -> None:
    boards = open_boards()
    boards.define("arcade", windows=["daily"], scopes=["country"], retention="1h", scope_values_max=2)
    submitted_from(boards, "BR", "PT")
    clock.advance(48 * HOUR_MS)
    boards.settle()
    assert boards.figures().entries == 0
    for _ in range(2):
        submitted_from(boards, "PT", "BR")
        with pytest.raises(InvalidValue, match=r"has 2 values"):
            submitted_from(boards, "DE")
        boards.close()
        boards = open_boards()


def test_the_values_of_one_request_count_together(boards: Boards) -> None:
    boards.define("arcade", scopes=["country"], scope_values_max=2)
    rows = [{"player": "ann", "score": 1, "attributes": {"country": country}} for country in ("BR", "PT", "BR", "DE")]
    with pytest.raises(InvalidValue, match=r"has 2 values"):
        boards.submit_many("arcade", rows)
    boards.submit_many("arcade", rows[:3])
