"""A rank store without ranks, for appliers that only follow definitions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rankd.domain.instance import InstanceKey
from rankd.domain.order import Kept, Ranking
from rankd.projection.port import (
    Applied,
    Dropped,
    InstanceTable,
    Position,
    RankedPage,
    RowOutcome,
    UpdateBatch,
    Verdict,
)


class UnrankedStore:
    """Accepts every batch and stays empty."""

    def apply(self, batch: UpdateBatch) -> Applied:
        """Accept a batch."""
        return Applied(Verdict.APPLIED, Position(0, batch.upto))

    def drop(self, _instance: InstanceKey) -> bool:
        """Return False: the store has no instance."""
        return False

    def drop_window(self, _board: str, _window: str, _instances_max: int | None = None) -> Dropped:
        """Return that nothing is left."""
        return Dropped(0, is_all=True)

    def scopes(self, _board: str, _window: str, _player: str | None = None) -> Iterator[str]:
        """Return no scopes."""
        return iter(())

    def capture(self, _instance: InstanceKey) -> None:
        """Do nothing."""

    def forget_capture(self, _instance: InstanceKey) -> None:
        """Do nothing."""

    def apply_one(
        self,
        _table: InstanceTable,
        _player: str,
        _score: int,
        _ties: Sequence[int],
        *,
        at: int,
        ranks: Ranking,
        partition: int,
    ) -> RowOutcome:
        """Refuse: an applier of definitions sends no scores."""
        raise AssertionError(f"event {at} of partition {partition} is ranked nowhere by {ranks}")

    def total(self, _instance: InstanceKey) -> int:
        """Return 0."""
        return 0

    def score(self, _instance: InstanceKey, _player: str) -> Kept | None:
        """Return None: every player is absent."""
        return None

    def scores(self, _instance: InstanceKey, players: Sequence[str]) -> list[Kept | None]:
        """Return None for each player."""
        return [None] * len(players)

    def range(self, _instance: InstanceKey, _first: int, _last: int, _ranking: Ranking = Ranking.ORDINAL) -> RankedPage:
        """Return an empty page."""
        return RankedPage([], 0)

    def following(
        self, _instance: InstanceKey, _after: tuple[Kept, str] | None, _limit: int, _ranking: Ranking = Ranking.ORDINAL
    ) -> RankedPage:
        """Return an empty page."""
        return RankedPage([], 0)
