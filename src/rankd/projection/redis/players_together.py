"""Calls of many reads at once: those about players of one instance become a single call, whose answer is split again.

    calls → plan (like calls put together) → Caller.call_all → Plan.split → an answer for each call, as if made alone

What a call does before it comes to its players (looking how far the shard is, and how the instance is written) takes
Redis as long as a player does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rankd.projection.redis.client import Call
from rankd.projection.redis.lookups import BEFORE_PLAYERS, PLAYERS_PER_CALL, READ_PLAYERS

ROWS, CAPTURED, METADATA = 3, 4, 5  # in an answer; None where it was not asked for


class Plan:
    """What is sent for some calls, and whose answer is where."""

    def __init__(self, calls: Sequence[Call]) -> None:
        """Put together what can be: players of one instance of one shard, of whom the same is asked."""
        self._sent: list[list[Call]] = []
        self._places: list[tuple[int, int]] = []  # of each call: in which one that is sent, from which player on
        open_calls: dict[tuple[Any, ...], tuple[int, int]] = {}  # those that take more players, and how many they have
        for call in calls:
            if call.function != READ_PLAYERS:
                self._places.append((len(self._sent), 0))
                self._sent.append([call])
                continue
            like = (call.keys[0], *call.arguments[: BEFORE_PLAYERS - 1])
            index, players = open_calls.get(like, (-1, 0))
            if index < 0 or players + _players(call) > PLAYERS_PER_CALL:
                index, players = len(self._sent), 0
                self._sent.append([])
            self._sent[index].append(call)
            self._places.append((index, players))
            open_calls[like] = (index, players + _players(call))
        self._calls = calls

    @property
    def calls(self) -> list[Call]:
        """What is sent."""
        return [_joined(some) for some in self._sent]

    def split(self, answers: Sequence[Any]) -> list[Any]:
        """Return the answer to each call, in the order they were given; what is none stands in place of each of its."""
        found = []
        for call, (index, first) in zip(self._calls, self._places, strict=True):
            answer = answers[index]
            if len(self._sent[index]) > 1 and isinstance(answer, list) and len(answer) > ROWS:
                answer, last = [*answer], first + _players(call)
                for place in (ROWS, CAPTURED, METADATA):
                    if answer[place] is not None:
                        answer[place] = answer[place][first:last]
            found.append(answer)
        return found


def _players(call: Call) -> int:
    return int(call.arguments[BEFORE_PLAYERS - 1])


def _joined(calls: list[Call]) -> Call:
    if len(calls) == 1:
        return calls[0]
    players: list[bytes | int | str] = []
    buckets: list[bytes | int | str] = []
    for call in calls:
        after = BEFORE_PLAYERS + _players(call)
        players += call.arguments[BEFORE_PLAYERS:after]
        buckets += call.arguments[after:]
    before = calls[0].arguments[: BEFORE_PLAYERS - 1]
    return calls[0]._replace(arguments=(*before, len(players), *players, *buckets))
