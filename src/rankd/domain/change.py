"""Which changes of a definition a board allows; any other needs a new board."""

from __future__ import annotations

from rankd.domain.board import Board
from rankd.domain.definition import NAMES, definition_of
from rankd.errors import DefinitionConflict

# The rest may change for later events (title, description, ranking, retention, archive_keep, archive_top, history,
# late_by, writes, bounds, open, scope_values_max) or grow (windows, periods, scopes, feeds, and keep with them).
_STAYS = (
    "order",
    "ties",
    "tie_resolution",
    "time_zone",
    "week_starts",
    "global",
    "decimals",
    "team",
    "decay",
    "signing",
    "shards",
    "exact_top",
)
_WAY_OUT = "define a new board under another id"


def change(old: Board, new: Board) -> tuple[str, ...]:
    """Return the names of the fields that differ; refuse a change of a fixed field.

    Windows, periods, scopes and feeds may be added, windows only at the end; `keep` may name the added ones.
    """
    if old.id != new.id:
        raise DefinitionConflict("id", f"cannot change from {old.id} to {new.id}; {_WAY_OUT}")
    before, after = definition_of(old), definition_of(new)
    for name in _STAYS:
        if before[name] != after[name]:
            raise DefinitionConflict(name, f"cannot change from {before[name]} to {after[name]}; {_WAY_OUT}")
    _check_growth(old, new)
    _check_keep(old, new)
    return tuple(name for name in NAMES if before[name] != after[name])


def _check_growth(old: Board, new: Board) -> None:
    if new.windows[: len(old.windows)] != old.windows:
        raise DefinitionConflict(
            "windows", f"cannot be taken away, changed or moved; add new ones at the end, or {_WAY_OUT}"
        )
    for name in ("periods", "scopes", "feeds"):
        missing = [item for item in getattr(old, name) if item not in getattr(new, name)]
        if missing:
            lost = getattr(missing[0], "name", missing[0])
            raise DefinitionConflict(name, f"can be added only, and {lost} is missing or changed; {_WAY_OUT}")


def _check_keep(old: Board, new: Board) -> None:
    for name, rule in old.keep.items():
        if new.keep[name] != rule:
            raise DefinitionConflict("keep", f"cannot change from {rule} to {new.keep[name]} in {name}; {_WAY_OUT}")
