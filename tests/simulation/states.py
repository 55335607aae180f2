"""Two appliers that followed the same events remember the same."""

from __future__ import annotations

from collections.abc import Mapping, Sized
from typing import TypeVar

import msgspec

from rankd.projection.state import State

Table = TypeVar("Table", bound=Sized)


def comparable(state: State) -> object:
    """Return what two states must have in common; values known by hashes, each under a key of its own, are counted.

    A table that events have emptied is as good as one that none has made: that depends on how they were read.
    """
    boards = {
        board_id: (
            msgspec.structs.replace(live, scope_values={}, metadata=_filled(live.metadata), teams=_filled(live.teams)),
            {attribute: len(values) for attribute, values in live.scope_values.items()},
        )
        for board_id, live in state.boards.items()
    }
    return boards, state.versions, state.leaving, state.generation


def _filled(tables: Mapping[str, Table]) -> dict[str, Table]:
    return {text: table for text, table in tables.items() if len(table)}
