"""What is kept for those who were away: as much as fits, of each topic and of all together."""

from __future__ import annotations

import pytest

from rankd.push import history
from rankd.push.history import HISTORY_BYTES_MAX, HISTORY_MESSAGES_MAX, HistoryBudget, MessageHistory
from rankd.push.messages import Message, Type


def message(offset: int, characters: int = 10) -> Message:
    return Message("top:arcade", Type.CHANGE, offset, {"a": "x" * characters})


def offsets(messages: list[Message] | None) -> list[int] | None:
    return None if messages is None else [push.offset for push in messages]


def test_a_client_gets_what_came_after_the_offset_it_has() -> None:
    kept = MessageHistory(3, HistoryBudget())
    for offset in (5, 8, 9):
        kept.add(message(offset))

    assert [offsets(kept.after(offset)) for offset in (3, 4, 5, 8, 9)] == [[5, 8, 9], [5, 8, 9], [8, 9], [9], []]


def test_nobody_can_go_on_from_before_the_beginning() -> None:
    kept = MessageHistory(3, HistoryBudget())
    kept.add(message(5))

    assert kept.after(2) is None
    assert kept.after(-1) is None


def test_the_oldest_messages_make_room_for_the_newest() -> None:
    kept = MessageHistory(0, HistoryBudget())
    for offset in range(1, HISTORY_MESSAGES_MAX + 11):
        kept.add(message(offset))

    assert kept.after(9) is None
    assert offsets(kept.after(10)) == list(range(11, HISTORY_MESSAGES_MAX + 11))


def test_large_messages_are_kept_for_less_long() -> None:
    kept, room = MessageHistory(0, HistoryBudget()), 8
    for offset in range(1, 21):
        kept.add(message(offset, HISTORY_BYTES_MAX // 3 // room))

    messages = kept.after(19)
    assert offsets(messages) == [20]
    assert kept.after(20 - room) is None


def test_the_newest_message_is_kept_however_large_it_is() -> None:
    room = HistoryBudget()
    kept = MessageHistory(0, room)
    kept.add(message(1))
    kept.add(message(2, 2 * HISTORY_BYTES_MAX))

    assert offsets(kept.after(1)) == [2]
    assert kept.after(0) is None


def test_all_topics_share_one_room_and_give_theirs_back(monkeypatch: pytest.MonkeyPatch) -> None:
    size_bytes = message(1).size_bytes
    monkeypatch.setattr(history, "HISTORIES_BYTES_MAX", 10 * size_bytes)
    room = HistoryBudget()
    first, second = MessageHistory(0, room), MessageHistory(0, room)
    for offset in range(1, 10):
        first.add(message(offset))
    for offset in range(10, 20):
        second.add(message(offset))
    assert room.bytes <= 10 * size_bytes
    assert len(first.after(0) or []) == 9
    assert offsets(second.after(18)) == [19]
    assert second.after(0) is None

    first.forget()
    for offset in range(20, 30):
        second.add(message(offset))
    assert len(second.after(20) or []) == 9
    second.forget()
    assert room.bytes == 0
