"""What a topic's name means."""

from __future__ import annotations

import pytest

from rankd.errors import InvalidValue
from rankd.push.topics import TOPIC_BYTES_MAX, Topic, TopicKind, parse_topic

EXPECTED = {
    "top:arcade": Topic(TopicKind.TOP, "arcade"),
    "top:arcade@weekly": Topic(TopicKind.TOP, "arcade", "weekly"),
    "top:arcade@weekly:2026-W18": Topic(TopicKind.TOP, "arcade", "weekly:2026-W18"),
    "top:arcade@weekly@country:BR": Topic(TopicKind.TOP, "arcade", "weekly", "country:BR"),
    "top:arcade@weekly@clan:a@b@c": Topic(TopicKind.TOP, "arcade", "weekly", "clan:a@b@c"),
    "top:arcade@@country:BR": Topic(TopicKind.TOP, "arcade", None, "country:BR"),
    "player:arcade:alice": Topic(TopicKind.PLAYER, "arcade", player="alice"),
    "player:arcade:a:b@c": Topic(TopicKind.PLAYER, "arcade", player="a:b@c"),
    "friends:arcade::": Topic(TopicKind.FRIENDS, "arcade", player=":"),
}


@pytest.mark.parametrize("text", EXPECTED)
def test_the_last_field_is_the_rest_of_the_text(text: str) -> None:
    assert parse_topic(text) == EXPECTED[text]


@pytest.mark.parametrize("text", EXPECTED)
def test_a_topic_is_called_what_it_was_called(text: str) -> None:
    assert parse_topic(text).text == text


def test_a_scope_of_the_first_window_is_not_taken_for_a_window() -> None:
    assert parse_topic("top:arcade@@weekly:2026-W18").text != parse_topic("top:arcade@weekly:2026-W18").text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "top",
        "top:",
        "bottom:arcade",
        "Top:arcade",
        "top:Ar cade",
        "top:arcade@",
        "top:arcade@weekly@",
        "top:arcade@@",
        "player:arcade",
        "player:arcade:",
        "player::alice",
        "friends:arcade:a\x00b",
        "player:arcade:" + "a" * TOPIC_BYTES_MAX,
        "top:\ud800",
        None,
        5,
        ["top:arcade"],
    ],
)
def test_what_means_nothing_is_refused_with_examples(text: object) -> None:
    with pytest.raises(InvalidValue) as refused:
        parse_topic(text)

    assert refused.value.field == "topic"
