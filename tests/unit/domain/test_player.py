"""A player's id is any short text, kept to the byte."""

from __future__ import annotations

import pytest

from rankd.domain.player import check_player
from rankd.errors import InvalidValue


@pytest.mark.parametrize(
    "player",
    ["a", "alice", "a b", "...", "@", "a/b", "a:b", "Zoë", "e\u0301", "名前", "🎮", "\u2028", "x" * 128, "é" * 64, " "],
)
def test_an_id_of_1_to_128_bytes_is_taken_as_it_is(player: str) -> None:
    assert check_player(player) is player


def test_ids_are_never_normalised_so_two_spellings_are_two_players() -> None:
    assert check_player("\u00e9") != check_player("e\u0301")


@pytest.mark.parametrize("player", ["", "x" * 129, "é" * 65, "名" * 43])
def test_an_id_is_measured_in_bytes_of_utf_8(player: str) -> None:
    with pytest.raises(InvalidValue, match="player: must be 1 to 128 bytes of UTF-8"):
        check_player(player)


@pytest.mark.parametrize("control", ["\x00", "\n", "\x1f", "\x7f", "\x80", "\x85", "\x9f"])
def test_control_characters_of_all_three_ranges_are_refused_and_named(control: str) -> None:
    with pytest.raises(InvalidValue, match=f"control characters; U\\+{ord(control):04X} stands at 1"):
        check_player(f"a{control}b")


@pytest.mark.parametrize("player", ["\ud800", "a\udfff"])
def test_a_lone_surrogate_is_refused_since_it_has_no_utf_8(player: str) -> None:
    with pytest.raises(InvalidValue, match="lone surrogate"):
        check_player(player)


@pytest.mark.parametrize("player", [".", ".."])
def test_dot_and_dot_dot_are_refused_since_they_mean_folders_in_a_path(player: str) -> None:
    with pytest.raises(InvalidValue, match="must not be"):
        check_player(player)


@pytest.mark.parametrize("player", [None, 7, b"alice", ["alice"]])
def test_an_id_that_is_no_text_is_refused_under_its_fields_name(player: object) -> None:
    with pytest.raises(InvalidValue, match=r"events\[3\].player: must be text") as caught:
        check_player(player, "events[3].player")
    assert caught.value.field == "events[3].player"
