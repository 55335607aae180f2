"""What errors repeat of a text is short, however long it was."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from tests.timing import BUSY_MACHINE

from rankd.domain.cron import check_cron
from rankd.domain.fields import nearest, read_object
from rankd.domain.player import check_player
from rankd.domain.text import check_text
from rankd.domain.zone import check_time_zone
from rankd.errors import DefinitionConflict, InvalidValue, MalformedBatch, RankdError, RanksUnavailable
from rankd.shortening import (
    CUT,
    FIELD_CHARACTERS_MAX,
    MESSAGE_CHARACTERS_MAX,
    NAME_CHARACTERS_MAX,
    NAMES_LISTED_MAX,
    list_names,
    shorten,
)

LONG = "http://" * 150_000
BATCH_CHARACTERS = 16_000_000  # as many as a batch may bring
PROCESSOR_S_MAX = 0.1 * BUSY_MACHINE


@pytest.mark.parametrize("length", [0, 1, NAME_CHARACTERS_MAX - 1, NAME_CHARACTERS_MAX])
def test_what_is_short_enough_stays(length: int) -> None:
    assert shorten("a" * length) == "a" * length


def test_what_is_too_long_ends_in_an_ellipsis() -> None:
    assert shorten("a" * (NAME_CHARACTERS_MAX + 1)) == "a" * (NAME_CHARACTERS_MAX - 1) + CUT


def test_twenty_names_are_listed_and_the_others_are_counted() -> None:
    names = [f"n{number}" for number in range(NAMES_LISTED_MAX)]

    assert list_names(names) == ", ".join(names)
    assert list_names([*names, "last"]) == ", ".join(names) + " and 1 more"
    assert list_names([]) == ""
    assert list_names([LONG]) == shorten(LONG)


def test_every_error_is_cut_when_it_is_made() -> None:
    for error in (
        RankdError(LONG),
        RankdError("short", public_message=LONG),
        RanksUnavailable(LONG, public_message=LONG),
        InvalidValue(LONG, LONG),
        InvalidValue("score", LONG),
        DefinitionConflict(LONG, LONG),
        MalformedBatch(7, LONG),
    ):
        assert len(str(error)) <= MESSAGE_CHARACTERS_MAX
        assert len(error.public_message) <= MESSAGE_CHARACTERS_MAX
        assert CUT in (str(error) + error.public_message)


def test_a_long_field_leaves_room_for_what_is_wrong_with_it() -> None:
    refused = InvalidValue(LONG, "must be text")

    assert len(refused.field) == FIELD_CHARACTERS_MAX
    assert str(refused).endswith(f"{CUT}: must be text")


@pytest.mark.timed
@pytest.mark.parametrize("piece", ["http://", "_", "score_", "\x00"])
def test_a_name_is_cut_before_it_is_compared(piece: str) -> None:
    name = piece * (BATCH_CHARACTERS // len(piece))
    known = [f"period:season-{number}" for number in range(1_000)]
    began_s = time.thread_time()
    hint = nearest(name, known)
    with pytest.raises(InvalidValue) as refused:
        read_object("keep", {name: 1}, known, "")

    assert time.thread_time() - began_s < 5 * PROCESSOR_S_MAX  # two thousand comparisons
    assert hint.endswith("and 980 more") or hint.startswith("did you mean")
    assert len(refused.value.field) <= len("keep.") + NAME_CHARACTERS_MAX


CHECKS: dict[str, Callable[[str], object]] = {
    "time zone": lambda text: check_time_zone("time_zone", text),
    "cron expression": lambda text: check_cron("reset", text),
    "title": lambda text: check_text("title", text, 256),
    "player": check_player,
}


@pytest.mark.timed
@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
@pytest.mark.parametrize("piece", ["http://", "a/", "a ", "a", "e\u0301"])
def test_a_long_value_is_refused_for_its_length_before_it_is_looked_at(
    check: Callable[[str], object], piece: str
) -> None:
    text = piece * (BATCH_CHARACTERS // len(piece)) + "a"
    began_s = time.thread_time()
    with pytest.raises(InvalidValue):
        check(text)

    assert time.thread_time() - began_s < PROCESSOR_S_MAX
