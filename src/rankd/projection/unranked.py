"""A store for appliers that only follow definitions."""

from __future__ import annotations

from collections.abc import Sequence

from rankd.domain.instance import InstanceKey
from rankd.domain.order import Kept, Ranking
from rankd.projection.port import Applied, Batch, One, Page, Position, Table, Verdict


class UnrankedStore:
    """Whatever it is sent is taken, and nobody stands anywhere."""

    def apply(self, batch: Batch) -> Applied:
        """Take a batch."""
        return Applied(Verdict.APPLIED, Position(0, batch.upto))

    def drop(self, _instance: InstanceKey) -> bool:
        """Nothing is there."""
        return False

    def capture(self, _instance: InstanceKey) -> None:
        """Nothing is there."""

    def forget_capture(self, _instance: InstanceKey) -> None:
        """Nothing is there."""

    def apply_one(
        self,
        _table: Table,
        _player: str,
        _score: int,
        _ties: Sequence[int],
        *,
        at: int,
        ranks: Ranking,
        partition: int = 0,
    ) -> One:
        """Refuse: nobody sends it scores."""
        raise AssertionError(f"event {at} of partition {partition} is ranked nowhere by {ranks}")

    def total(self, _instance: InstanceKey) -> int:
        """Nobody."""
        return 0

    def score(self, _instance: InstanceKey, _player: str) -> Kept | None:
        """Nobody has any."""
        return None

    def scores(self, _instance: InstanceKey, players: Sequence[str]) -> list[Kept | None]:
        """Nobody has any."""
        return [None] * len(players)

    def range(self, _instance: InstanceKey, _first: int, _last: int, _ranking: Ranking = Ranking.ORDINAL) -> Page:
        """Nobody is there."""
        return Page([], 0)

    def following(
        self, _instance: InstanceKey, _after: tuple[Kept, str] | None, _limit: int, _ranking: Ranking = Ranking.ORDINAL
    ) -> Page:
        """Nobody is there."""
        return Page([], 0)
