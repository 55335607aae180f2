"""What the rules said of one score and say of the next: kept for as long as nothing else is committed."""

from __future__ import annotations

import msgspec

from rankd.domain.board import Board
from rankd.domain.order import Ranking
from rankd.intake.accept import Acceptance
from rankd.projection.placement import Placement
from rankd.projection.port import Table


class Way(msgspec.Struct, frozen=True, gc=False):
    """How a score of one sender on one board goes, within a stretch of time.

    Whoever keeps it forgets it before anything else is committed, so it need not know what can change.
    """

    board: Board
    sender: str
    since: int
    until: int
    context: int
    placement: Placement
    rows: int  # of one event, where all of them have the same tie field; 0 where other boards are fed
    table: Table
    window: str
    ranking: Ranking


def way_of(acceptance: Acceptance, placement: Placement | None, due_at: int) -> Way | None:
    """Return the way of scores like the one that was just applied; None where the next may have other rows.

    `due_at` is when the next roll-over is.
    """
    board = acceptance.board
    if (
        placement is None
        or placement.answered is None
        or board.decay is not None
        or not placement.is_plain(board.score_min, board.score_max)
    ):
        return None
    return Way(
        board=board,
        sender=acceptance.context.sender,
        since=max(acceptance.valid.start, placement.valid_from),
        until=min(acceptance.valid.stop, placement.valid_until, due_at),
        context=acceptance.number,
        placement=placement,
        rows=len(placement.plain_instances) if len(placement.reached) == 1 else 0,
        table=placement.plain_instances,
        window=placement.answered.window,
        ranking=board.ranking,
    )
