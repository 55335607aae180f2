"""What becomes of events of a log that were repeated, or whose board changed before they were there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rankd.domain.instance import InstanceKey
from rankd.errors import LedgerDamaged
from rankd.ledger.event import AcceptanceContext, Context, Detail, EventKind
from rankd.ledger.port import KEY_BYTES, REPEATS_KNOWN_MS
from rankd.projection.admission import RefusedEvent
from rankd.projection.catalogue import Catalogue
from rankd.projection.checkpoints import Checkpoints
from rankd.projection.counting import CountingStore
from rankd.projection.follower import Follower
from rankd.projection.merging import Step
from rankd.projection.state import State

from .log_world import START, Log, Place

SUM: dict[str, Any] = {"keep": "sum", "score_max": 100}
READ_EVENTS = 1_000


def define(log: Log, version: int, definition: dict[str, Any], board: str = "arcade") -> None:
    context = Context(EventKind.DEFINE, board, "admin", {board: AcceptanceContext(version)})
    _append_control(log, context, Detail(definition=definition))


def delete(log: Log, version: int, board: str = "arcade") -> None:
    _append_control(log, Context(EventKind.DELETE, board, "admin", {board: AcceptanceContext(version)}), None)


def _append_control(log: Log, context: Context, detail: Detail | None) -> None:
    number = log.number_context(context)
    log.controls.append((number, detail, START))
    for partition in range(log.partitions):
        log.append(partition, Place(number, START, START, number=len(log.controls)))


def score(
    log: Log,
    score: int = 1,
    *,
    time: int = START,
    key: int | None = None,
    fingerprint: int = 1,
    version: int = 1,
    detail: Detail | None = None,
    player: str = "ann",
    gap: int = 0,
    **more: Any,
) -> None:
    context = Context(EventKind.SCORE, "arcade", "game", {"arcade": AcceptanceContext(version)})
    sent = bytes(KEY_BYTES)
    if key is not None:
        sent = (key + 1).to_bytes(16, "little") + (fingerprint << 8).to_bytes(16, "little")
    place = Place(log.number_context(context), time, time, player, score, detail=detail, key=sent, **more)
    log.append(0, place, gap=gap)


class Followed:
    """A follower at the end of a log."""

    def __init__(self, log: Log, follower: Follower[CountingStore] | None = None) -> None:
        self.letters: list[RefusedEvent] = []
        self.follower = follower or Follower(log.port, CountingStore(), State(), Catalogue())
        assert self.follower.admission is not None
        self.admission = self.follower.admission
        self.admission.refused = self.letters.append
        for _ in range(1_000):
            if self.follower.positions == log.heads().sequences:
                return
            self.follower.follow(READ_EVENTS)
        raise AssertionError(f"it stays at {self.follower.positions}")

    def kept(self, player: str = "ann", scope: str = "global") -> int | None:
        standing = self.follower.store.score(InstanceKey("arcade", "all_time", scope), player)
        return None if standing is None else standing.score

    @property
    def codes(self) -> list[str]:
        return [letter.code for letter in self.letters]


@pytest.fixture
def log() -> Log:
    log = Log(1)
    define(log, 1, SUM)
    return log


def test_a_repeat_takes_its_place_and_counts_once(log: Log) -> None:
    for key in (7, 7, 8, 7):
        score(log, 5, key=key)
    score(log, 5)
    score(log, 5)
    followed = Followed(log)
    assert followed.kept() == 20
    assert followed.admission.repeats == 2
    assert followed.follower.positions == (7,)


def test_a_batch_sent_again_after_half_of_it_was_written_is_completed(log: Log) -> None:
    for key in (1, 3):
        score(log, 10, key=key)
    for key in (0, 1, 2, 3):
        score(log, 10, key=key)
    assert Followed(log).kept() == 40


@pytest.mark.parametrize(("later", "kept"), [(REPEATS_KNOWN_MS - 1, 5), (REPEATS_KNOWN_MS, 10)])
def test_a_key_is_known_for_a_day_by_the_time_of_the_partition(log: Log, later: int, kept: int) -> None:
    score(log, 5, key=7)
    score(log, 5, key=7, time=START + later)
    assert Followed(log).kept() == kept


def test_the_time_of_the_partition_counts_where_a_writers_clock_is_behind(log: Log) -> None:
    score(log, 5, key=7)
    score(log, 1, time=START + REPEATS_KNOWN_MS)
    score(log, 5, key=7, time=START + 1)
    assert Followed(log).kept() == 11


def test_a_key_of_another_request_is_a_dead_letter(log: Log) -> None:
    score(log, 5, key=7)
    score(log, 6, key=7, fingerprint=2)
    score(log, 5, key=7)
    followed = Followed(log)
    assert followed.kept() == 5
    (letter,) = followed.letters
    assert (letter.code, letter.event_run.first, letter.event_run.score[0]) == ("key_reused", 3, 6)
    assert letter.context.board == "arcade"


def test_a_late_score_counts_under_the_definition_in_force_or_is_a_dead_letter(log: Log) -> None:
    define(log, 2, {**SUM, "score_max": 9})
    score(log, 9)
    score(log, 10)
    define(log, 3, SUM)
    score(log, 11)
    score(log, 12, version=2)
    define(log, 4, {**SUM, "open": False})
    score(log, 1, version=3)
    followed = Followed(log)
    assert followed.kept() == 32
    assert [(letter.code, letter.event_run.first) for letter in followed.letters] == [
        ("invalid_value", 4),
        ("board_closed", 9),
    ]
    assert "must be from" in followed.letters[0].text


def test_a_late_score_for_a_deleted_board_is_a_dead_letter_and_counts_in_a_new_one(log: Log) -> None:
    delete(log, 1)
    score(log, 10, key=1)
    define(log, 2, {**SUM, "keep": "best"})
    score(log, 11)
    score(log, 12, key=1)
    followed = Followed(log)
    assert followed.codes == ["board_unknown"]
    assert followed.admission.repeats == 1
    assert followed.kept() == 11


def test_a_late_score_counts_in_the_scopes_and_boards_that_were_added(log: Log) -> None:
    define(log, 1, {"keep": "sum"}, board="more")
    define(log, 2, {**SUM, "scopes": ["country"], "feeds": ["more"]})
    score(log, 5, detail=Detail({"country": "BR", "gone": "x"}))
    followed = Followed(log)
    assert followed.kept(scope="country:BR") == 5
    assert followed.follower.store.total(InstanceKey("more", "all_time", "global")) == 1
    assert not followed.letters


def test_a_late_score_without_the_signature_that_its_board_asks_for_now_is_a_dead_letter(log: Log) -> None:
    delete(log, 1)
    define(log, 2, {**SUM, "writes": "players", "signing": "arcade-key"})
    score(log, 5)
    score(log, 5, version=2)
    followed = Followed(log)
    assert (followed.codes, followed.kept()) == (["forbidden"], 5)


def test_a_removal_of_a_late_version_removes(log: Log) -> None:
    score(log, 5)
    define(log, 2, {**SUM, "score_min": 1})
    removal = Context(EventKind.REMOVE, "arcade", "game", {"arcade": AcceptanceContext(1)})
    log.append(0, Place(log.number_context(removal), START, START, "ann"))
    followed = Followed(log)
    assert (followed.kept(), followed.letters) == (None, [])


def test_gaps_between_records_are_passed(log: Log) -> None:
    score(log, 1, gap=3)
    score(log, 2, gap=1)
    define(log, 2, {**SUM, "title": "Arcade"})
    followed = Followed(log)
    assert followed.kept() == 3
    assert followed.follower.positions == (8,)


def test_a_time_that_goes_back_moves_an_event_into_the_window_of_its_partition(log: Log) -> None:
    define(log, 2, {**SUM, "windows": ["all_time", "hourly"]})
    score(log, 1, time=START + 3_600_000, version=2)
    score(log, 2, time=START - 1, version=2)
    score(log, 4, time=START - 1, version=2, is_sent=True)
    store = Followed(log).follower.store
    kept = {
        hour: store.score(InstanceKey("arcade", f"hourly:2026-05-04T{hour}00Z", "global"), "ann")
        for hour in (11, 12, 13)
    }
    assert {hour: standing and standing.score for hour, standing in kept.items()} == {11: 4, 12: None, 13: 3}


def test_a_run_of_fresh_events_passes_as_it_was_read(log: Log) -> None:
    for number in range(5):
        score(log, 1, key=number)
    follower = Follower(log.port, CountingStore(), State(), Catalogue())
    passed: list[Any] = []
    apply = follower.apply
    follower.apply = lambda run: (passed.append(run), apply(run))[1]  # type: ignore[func-returns-value]
    parts = log.read((0,), READ_EVENTS)
    follower.take(parts)
    assert [id(run) for run in passed] == [id(part.event_run) for part in parts]
    assert Step(passed[0]).barrier is None


def test_a_log_that_has_expired_before_the_newest_checkpoint_is_refused(log: Log, tmp_path: Path) -> None:
    score(log, 1)
    checkpoints = Checkpoints(tmp_path)
    checkpoints.begin(log.port, Followed(log).follower).write()
    log.firsts = [3]
    assert checkpoints.newest(log.port, log.heads(), CountingStore.load, Follower) is not None
    log.firsts = [4]
    with pytest.raises(LedgerDamaged, match="begins at event 4, and the newest checkpoint is at event 2"):
        checkpoints.newest(log.port, log.heads(), CountingStore.load, Follower)
    with pytest.raises(LedgerDamaged, match="there is no checkpoint"):
        Follower(log.port, CountingStore(), State(), Catalogue())


def test_a_checkpoint_keeps_keys_and_time(log: Log, tmp_path: Path) -> None:
    score(log, 1, key=7, time=START + 60_000)
    checkpoints = Checkpoints(tmp_path)
    checkpoints.begin(log.port, Followed(log).follower).write()
    score(log, 1, key=7)
    score(log, 2)
    loaded = checkpoints.newest(log.port, log.heads(), CountingStore.load, Follower)
    assert loaded is not None
    followed = Followed(log, loaded)
    assert (followed.kept(), followed.admission.state.times) == (3, [START + 60_000])


@pytest.mark.parametrize(
    "damage", [lambda keys: keys[:-1], lambda keys: keys[:12] + b"x" + keys[13:], lambda _keys: b""]
)
def test_a_checkpoint_with_damaged_keys_is_skipped(log: Log, tmp_path: Path, damage: Any) -> None:
    score(log, 1, key=7)
    checkpoints = Checkpoints(tmp_path)
    checkpoints.begin(log.port, Followed(log).follower).write()
    (path,) = tmp_path.glob("*/keys.rankd")
    path.write_bytes(damage(path.read_bytes()))
    assert checkpoints.newest(log.port, log.heads(), CountingStore.load, Follower) is None
    assert checkpoints.skipped == 1


def test_a_moved_event_reads_the_clock_of_its_board_again(log: Log) -> None:
    define(log, 2, {**SUM, "windows": ["all_time", {"name": "raid", "reset": "0 * * * *"}]})
    for time, player in ((START + 3_600_000, "bob"), (START, "ann")):
        board = AcceptanceContext(2, 0, {"raid": time})
        context = Context(EventKind.SCORE, "arcade", "game", {"arcade": board})
        log.append(0, Place(log.number_context(context), time, time, player, 1))
    store = Followed(log).follower.store
    assert store.total(InstanceKey("arcade", "raid:2026-05-04T1300Z", "global")) == 2
