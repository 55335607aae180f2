"""A commit to a log that was drafted while definitions changed is drafted again: nobody else would refuse it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from rankd.ledger.port import DefinitionsChanged
from rankd.node.ranks import EngineRanks


def ranks_of(*, is_log: bool, controls: int, is_changing: bool = False) -> EngineRanks:
    ranks = object.__new__(EngineRanks)
    ranks._ranks_commits = not is_log
    ranks.follower = cast(Any, SimpleNamespace(controls=controls, is_changing=is_changing))
    return ranks


def test_what_was_drafted_by_the_newest_definitions_is_appended() -> None:
    ranks_of(is_log=True, controls=3).check_as_of(3)


@pytest.mark.parametrize("is_changing", [False, True])
def test_what_was_drafted_before_or_during_a_change_is_not(is_changing: bool) -> None:
    with pytest.raises(DefinitionsChanged):
        ranks_of(is_log=True, controls=3 if is_changing else 4, is_changing=is_changing).check_as_of(3)


def test_other_ledgers_compare_for_themselves() -> None:
    ranks_of(is_log=False, controls=4).check_as_of(3)
