"""Scopes: who an event is counted among."""

from __future__ import annotations

import pytest

from rankd.domain.definition import define_board
from rankd.domain.scope import ATTRIBUTES_MAX, check_attributes
from rankd.errors import InvalidValue, ScopeUnknown

BOARD = define_board("arcade", {"scopes": ["level", "country"]})
WITHOUT_GLOBAL = define_board("arcade", {"scopes": ["country"], "global": False})


def test_an_event_counts_globally_and_once_for_each_declared_attribute_it_has() -> None:
    assert BOARD.scopes_of({"country": "BR", "level": "7", "car": "red"}) == ["global", "country:BR", "level:7"]


def test_no_value_no_scope() -> None:
    assert BOARD.scopes_of({"country": "BR"}) == ["global", "country:BR"]
    assert BOARD.scopes_of({}) == ["global"]


def test_a_board_without_global_ranks_by_attributes_only() -> None:
    assert WITHOUT_GLOBAL.scopes_of({"country": "BR"}) == ["country:BR"]
    assert WITHOUT_GLOBAL.scopes_of({}) == []


@pytest.mark.parametrize("scope", ["global", "country:BR", "level:7", "country:a:b@c", "country:São Tomé", "country: "])
def test_a_declared_scope_can_be_read_whether_or_not_anybody_stands_in_it(scope: str) -> None:
    assert BOARD.check_scope(scope) == scope


@pytest.mark.parametrize("scope", ["guild:x", "car:red"])
def test_an_undeclared_attribute_is_unknown_and_the_answer_lists_the_declared(scope: str) -> None:
    with pytest.raises(ScopeUnknown, match="it declares country, level"):
        BOARD.check_scope(scope)


def test_global_is_unknown_where_the_board_leaves_it_out() -> None:
    with pytest.raises(ScopeUnknown, match="this board has no global scope; it declares country"):
        WITHOUT_GLOBAL.check_scope("global")


@pytest.mark.parametrize(
    "scope",
    ["", "country", "country:", ":BR", "Country:BR", "country:" + "x" * 65, "country:a\nb", "global:x y\x00", 7, None],
)
def test_nonsense_is_refused(scope: object) -> None:
    with pytest.raises(InvalidValue, match=r"^scope: "):
        BOARD.check_scope(scope)


def test_attributes_become_text_and_those_without_value_are_left_out() -> None:
    assert check_attributes({"country": "BR", "level": 7, "guild": None}) == {"country": "BR", "level": "7"}


@pytest.mark.parametrize("value", ["", "x" * 65, "é" * 33, "a\tb", "\ud800", True, 7.5, ["BR"], 10**30])
def test_an_attribute_that_could_be_no_scope_is_refused_by_name(value: object) -> None:
    with pytest.raises(InvalidValue, match=r"^attributes\.country: must"):
        check_attributes({"country": value})


@pytest.mark.parametrize(
    "attributes", [None, [], "country", {"Country": "BR"}, {"global": "x"}, {"a b": "x"}, {7: "x"}]
)
def test_attributes_are_an_object_of_plain_names(attributes: object) -> None:
    with pytest.raises(InvalidValue, match=r"^attributes: must"):
        check_attributes(attributes)


def test_the_number_of_attributes_is_limited() -> None:
    with pytest.raises(InvalidValue, match=f"at most {ATTRIBUTES_MAX}"):
        check_attributes({f"a{index}": "x" for index in range(ATTRIBUTES_MAX + 1)})
