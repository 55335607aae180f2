"""Merges the calls of many reads: lookups of players of one instance become one call, whose answer is split again.

    calls → Plan (like calls merged) → Caller.call_all → Plan.split → an answer for each call, as if made alone

The fixed part of a call (reading the shard's positions and the instance's form) takes Redis as long as one player does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rankd.redis.connection.client import FunctionCall
from rankd.redis.read.lookups import BEFORE_PLAYERS, PLAYERS_PER_CALL, READ_PLAYERS

ROWS, CAPTURED, METADATA = 3, 4, 5  # indexes in an answer; None where not requested


class Plan:
    """The merged calls, and where each original call's answer is."""

    def __init__(self, calls: Sequence[FunctionCall]) -> None:
        """Merge calls with equal options for players of one instance of one shard."""
        self._sent: list[list[FunctionCall]] = []
        self._places: list[tuple[int, int]] = []  # by call: index of its merged call, and its first player there
        open_calls: dict[tuple[Any, ...], tuple[int, int]] = {}  # index of the merged call with room, and its players
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
    def calls(self) -> list[FunctionCall]:
        """The merged calls."""
        return [_joined(merged) for merged in self._sent]

    def split(self, answers: Sequence[Any]) -> list[Any]:
        """Return the answer to each original call, in order; an error stands in place of each answer it covers."""
        split_answers = []
        for call, (index, first) in zip(self._calls, self._places, strict=True):
            answer = answers[index]
            if len(self._sent[index]) > 1 and isinstance(answer, list) and len(answer) > ROWS:
                answer, last = [*answer], first + _players(call)
                for place in (ROWS, CAPTURED, METADATA):
                    if answer[place] is not None:
                        answer[place] = answer[place][first:last]
            split_answers.append(answer)
        return split_answers


def _players(call: FunctionCall) -> int:
    return int(call.arguments[BEFORE_PLAYERS - 1])


def _joined(calls: list[FunctionCall]) -> FunctionCall:
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
