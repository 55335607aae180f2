"""The reads of the rank store as port.py has them, made of those that also say how old their answer is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from rankd.domain.instance import InstanceKey
from rankd.domain.order import Kept, Ranking
from rankd.projection.port import Around, Bucket, Friend, Page, Place, Standing
from rankd.projection.redis.seen import Seen

ORDINAL = Ranking.ORDINAL


class PlainReads(ABC):
    """What is left of each read when nobody asks how old it is; `read_…` of the same name says more."""

    def total(self, instance: InstanceKey) -> int:
        """Return how many players stand in the instance."""
        return self.read_total(instance).result

    def score(self, instance: InstanceKey, player: str) -> Kept | None:
        """Return a player's kept score and tie field."""
        return self.read_score(instance, player).result

    def scores(self, instance: InstanceKey, players: Sequence[str]) -> list[Kept | None]:
        """Return many kept scores, in request order."""
        return self.read_scores(instance, players).result

    def rank(self, instance: InstanceKey, player: str, ranking: Ranking = ORDINAL) -> Standing | None:
        """Return where a player stands."""
        return self.read_rank(instance, player, ranking).result

    def ranks(self, instance: InstanceKey, players: Sequence[str], ranking: Ranking = ORDINAL) -> list[Standing | None]:
        """Return where many players stand, in request order, None for those who are absent."""
        return self.read_ranks(instance, players, ranking).result

    def range(self, instance: InstanceKey, first: int, last: int, ranking: Ranking = ORDINAL) -> Page:
        """Return the places `first` … `last` (from 1, both included), cut at the end."""
        return self.read_range(instance, first, last, ranking).result

    def following(
        self, instance: InstanceKey, after: tuple[Kept, str] | None, limit: int, ranking: Ranking = ORDINAL
    ) -> Page:
        """Return at most `limit` entries that stand behind the sort key of `after`, whether or not it is there."""
        return self.read_following(instance, after, limit, ranking).result

    def around(
        self, instance: InstanceKey, player: str, above: int, below: int, ranking: Ranking = ORDINAL
    ) -> Around | None:
        """Return a player with up to `above` and `below` neighbours; None when the player is absent."""
        return self.read_around(instance, player, above, below, ranking).result

    def friends(self, instance: InstanceKey, players: Sequence[str], ranking: Ranking = ORDINAL) -> list[Friend]:
        """Return those of the players who are in the instance, in standing order, each once."""
        return self.read_friends(instance, players, ranking).result

    def rank_of_score(self, instance: InstanceKey, score: int, tie: int, ranking: Ranking = ORDINAL) -> Place:
        """Return where a new player with this score and tie field would stand, last by id."""
        return self.read_rank_of_score(instance, score, tie, ranking).result

    def count(self, instance: InstanceKey, low: int, high: int) -> int:
        """Return how many players have low ≤ score ≤ high; none when low > high."""
        return self.read_count(instance, low, high).result

    def quantiles(self, instance: InstanceKey, ppm: Sequence[int]) -> list[int] | None:
        """Return the smallest scores that these parts per million of the players do not exceed; None when empty."""
        return self.read_quantiles(instance, ppm).result

    def histogram(self, instance: InstanceKey, buckets: int) -> list[Bucket]:
        """Cut lowest … highest score into at most `buckets` equal ranges and count the players in each."""
        return self.read_histogram(instance, buckets).result

    def captured(self, instance: InstanceKey, player: str) -> int | None:
        """Return the player's place at the instance's last capture."""
        return self.read_captured(instance, player).result

    def digest(self, instance: InstanceKey) -> int:
        """Return the digest of domain/digest.py; 0 when the instance is empty."""
        return self.read_digest(instance).result

    @abstractmethod
    def read_total(self, instance: InstanceKey) -> Seen[int]:
        """Return how many players stand in the instance."""

    @abstractmethod
    def read_score(self, instance: InstanceKey, player: str) -> Seen[Kept | None]:
        """Return a player's kept score and tie field."""

    @abstractmethod
    def read_scores(self, instance: InstanceKey, players: Sequence[str]) -> Seen[list[Kept | None]]:
        """Return many kept scores, in request order."""

    @abstractmethod
    def read_rank(
        self,
        instance: InstanceKey,
        player: str,
        ranking: Ranking = ORDINAL,
        *,
        metadata: bool = False,
        captured: bool = False,
    ) -> Seen[Standing | None]:
        """Return where a player stands."""

    @abstractmethod
    def read_ranks(
        self,
        instance: InstanceKey,
        players: Sequence[str],
        ranking: Ranking = ORDINAL,
        *,
        metadata: bool = False,
        captured: bool = False,
    ) -> Seen[list[Standing | None]]:
        """Return where many players stand, in request order, None for those who are absent."""

    @abstractmethod
    def read_range(
        self, instance: InstanceKey, first: int, last: int, ranking: Ranking = ORDINAL, *, metadata: bool = False
    ) -> Seen[Page]:
        """Return the places `first` … `last` (from 1, both included), cut at the end."""

    @abstractmethod
    def read_following(
        self,
        instance: InstanceKey,
        after: tuple[Kept, str] | None,
        limit: int,
        ranking: Ranking = ORDINAL,
        *,
        metadata: bool = False,
    ) -> Seen[Page]:
        """Return at most `limit` entries that stand behind the sort key of `after`, whether or not it is there."""

    @abstractmethod
    def read_around(
        self,
        instance: InstanceKey,
        player: str,
        above: int,
        below: int,
        ranking: Ranking = ORDINAL,
        *,
        metadata: bool = False,
        captured: bool = False,
    ) -> Seen[Around | None]:
        """Return a player with up to `above` and `below` neighbours; None when the player is absent."""

    @abstractmethod
    def read_friends(
        self, instance: InstanceKey, players: Sequence[str], ranking: Ranking = ORDINAL, *, metadata: bool = False
    ) -> Seen[list[Friend]]:
        """Return those of the players who are in the instance, in standing order, each once."""

    @abstractmethod
    def read_rank_of_score(
        self, instance: InstanceKey, score: int, tie: int, ranking: Ranking = ORDINAL
    ) -> Seen[Place]:
        """Return where a new player with this score and tie field would stand, last by id."""

    @abstractmethod
    def read_count(self, instance: InstanceKey, low: int, high: int) -> Seen[int]:
        """Return how many players have low ≤ score ≤ high; none when low > high."""

    @abstractmethod
    def read_quantiles(self, instance: InstanceKey, ppm: Sequence[int]) -> Seen[list[int] | None]:
        """Return the smallest scores that these parts per million of the players do not exceed; None when empty."""

    @abstractmethod
    def read_histogram(self, instance: InstanceKey, buckets: int) -> Seen[list[Bucket]]:
        """Cut lowest … highest score into at most `buckets` equal ranges and count the players in each."""

    @abstractmethod
    def read_captured(self, instance: InstanceKey, player: str) -> Seen[int | None]:
        """Return the player's place at the instance's last capture."""

    @abstractmethod
    def read_digest(self, instance: InstanceKey) -> Seen[int]:
        """Return the digest of domain/digest.py; 0 when the instance is empty."""
