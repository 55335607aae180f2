"""The error tree is drawn as it is, and each error says what happened and where."""

from __future__ import annotations

import inspect
import re

import pytest

from rankd import errors
from rankd.errors import (
    ArchiveUnusable,
    DefinitionConflict,
    EngineBroken,
    FolderLocked,
    InvalidValue,
    KafkaUnusable,
    LedgerUnreadable,
    MalformedBatch,
    NotFound,
    RankdError,
    RanksUnusable,
    Refused,
    SnapshotUnreadable,
    SnapshotUnwritten,
    Unavailable,
    VerificationFailed,
    WindowGone,
)

CLASSES = [item for item in vars(errors).values() if inspect.isclass(item) and issubclass(item, RankdError)]
DRAWN = re.compile(r"^ {4}([│├└─ ]*)([A-Z]\w+)(?: .*?)??(?: {2,}([a-z_]+))?$", re.MULTILINE)


def drawn() -> list[tuple[str, str | None, str]]:
    """The tree at the top of errors.py as (error, its parent, the code beside it)."""
    lines, above = [], {}
    for branch, name, code in DRAWN.findall(errors.__doc__ or ""):
        depth = len(branch) // 4
        above[depth] = name
        lines.append((name, above[depth - 1] if depth else None, code))
    return lines


def test_the_drawn_tree_is_that_of_the_classes() -> None:
    assert {(name, parent) for name, parent, _ in drawn()} == {
        (error.__name__, None if error is RankdError else error.__bases__[0].__name__) for error in CLASSES
    }


def test_the_codes_drawn_are_those_of_the_classes() -> None:
    written = {name: code for name, _, code in drawn() if code}
    leaves = [error for error in CLASSES if not error.__subclasses__()]

    assert written == {error.__name__: error.code for error in leaves}


def test_each_error_has_a_code_of_its_own() -> None:
    codes = [error.code for error in CLASSES]

    assert len(set(codes)) == len(codes)
    assert all(re.fullmatch(r"[a-z]+(_[a-z]+)*", code) for code in codes)


def test_each_error_says_what_it_means() -> None:
    assert not [error.__name__ for error in CLASSES if not (error.__doc__ or "").endswith(".")]


@pytest.mark.parametrize("error", [InvalidValue, DefinitionConflict])
def test_a_refused_field_is_named(error: type[InvalidValue] | type[DefinitionConflict]) -> None:
    refusal = error("score_max", "must be at least score_min")

    assert str(refusal) == "score_max: must be at least score_min"
    assert (refusal.field, refusal.problem) == ("score_max", "must be at least score_min")


def test_a_malformed_batch_names_its_row() -> None:
    refusal = MalformedBatch(7, "player 9 is not in a table of 3")

    assert str(refusal) == "row 7: player 9 is not in a table of 3"
    assert refusal.row == 7


def test_a_batch_that_is_malformed_as_a_whole_names_no_row() -> None:
    refusal = MalformedBatch(None, "upto 1 must not be less than after 2")

    assert str(refusal) == "upto 1 must not be less than after 2"
    assert refusal.row is None


@pytest.mark.parametrize(
    ("error", "familiar"), [(InvalidValue, ValueError), (MalformedBatch, ValueError), (WindowGone, LookupError)]
)
def test_errors_are_caught_by_the_names_python_has_for_them(error: type[RankdError], familiar: type[Exception]) -> None:
    assert issubclass(error, familiar)


def test_what_a_caller_can_repair_differs_from_what_is_missing_what_can_wait_and_what_is_broken() -> None:
    broken = (
        ArchiveUnusable,
        FolderLocked,
        KafkaUnusable,
        LedgerUnreadable,
        RanksUnusable,
        VerificationFailed,
        EngineBroken,
        SnapshotUnreadable,
    )
    families = (Refused, NotFound, Unavailable, SnapshotUnwritten, *broken)

    assert all(
        sum(issubclass(error, family) for family in families) == 1 for error in CLASSES if error is not RankdError
    )
