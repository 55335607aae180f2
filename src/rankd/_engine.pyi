"""The native ranking engine; use rankd.projection.engine."""

from collections.abc import Sequence
from typing import Any

class Engine:
    """Any number of boards over one set of players."""

    def __init__(
        self,
        entry: type[Any],
        standing: type[Any],
        friend: type[Any],
        kept: type[Any],
        change: type[Any],
        verdicts: tuple[Any, ...],
    ) -> None:
        """
        The classes of answers, made with positional arguments, and the verdicts in order.
        """

    def apply(
        self,
        instances: list[tuple[str, int, int, int, int, int]],
        players: Sequence[str],
        score: object,
        tie: object | None,
        instance: object | None,
        player: object | None,
        op: object | None,
        partition: int,
        epoch: int,
        after: int,
        upto: int,
        ranking: int,
    ) -> tuple[int, int, int, memoryview, memoryview, memoryview, memoryview | None, memoryview | None]: ...
    def apply_one(
        self,
        instances: list[tuple[str, int, int, int, int, int]],
        player: str,
        score: int,
        ties: Sequence[int],
        at: int,
        ranking: int,
    ) -> Any:
        """
        One row for each instance, of event `at`; what the first row did, or a verdict.
        """

    def drop(self, name: str) -> bool: ...
    def position(self, partition: int) -> tuple[int, int]: ...
    def names(self, cursor: int, most: int) -> tuple[list[str], int | None]: ...
    def drop_family(self, prefix: str, most: int) -> tuple[int, int]:
        """
        Drops some of the boards whose names begin so; returns how many, and how many stood in them.
        """

    def scopes(self, prefix: str, player: str | None, place: int, most: int) -> tuple[list[str], int | None]:
        """
        The rests of names that begin so, of all boards or of those a player stands in, from a place on.
        """

    def family(self, prefix: str, place: int, most: int) -> tuple[int, int, int, int, int | None]:
        """
        Boards, entries, and the sum of digests (low, high) of some of them, and the place to go on from.
        """

    def total(self, name: str) -> int: ...
    def score(self, name: str, player: str) -> Any: ...
    def scores(self, name: str, players: Sequence[str]) -> list[Any]: ...
    def columns(self, name: str, players: Sequence[str]) -> tuple[memoryview, memoryview, memoryview]:
        """
        Scores, tie fields and, where somebody is not there, 1; of one instant, in request order.
        """

    def rank(self, name: str, player: str, ranking: int) -> Any: ...
    def ranks(self, name: str, players: Sequence[str], ranking: int) -> list[Any]: ...
    def range(self, name: str, first: int, last: int, ranking: int) -> tuple[list[Any], int]: ...
    def following(
        self, name: str, score: int, tie: int, player: str, limit: int, ranking: int
    ) -> tuple[list[Any], int]: ...
    def around(
        self, name: str, player: str, above: int, below: int, ranking: int
    ) -> tuple[list[Any], Any, list[Any]] | None: ...
    def friends(self, name: str, players: Sequence[str], ranking: int) -> list[Any]: ...
    def rank_of_score(self, name: str, score: int, tie: int, ranking: int) -> tuple[int, int]: ...
    def count(self, name: str, low: int, high: int) -> int: ...
    def quantiles(self, name: str, ppm: Sequence[int]) -> list[int]: ...
    def histogram(self, name: str, buckets: int) -> list[tuple[int, int, int]]: ...
    def digest(self, name: str) -> tuple[int, int]: ...
    def memory(self) -> dict[str, int]: ...
    def longest_waits(self) -> dict[str, int]: ...
    def forget_waits(self) -> None: ...
    def check(self) -> None:
        """Raises RuntimeError naming the first invariant that does not hold."""

    def capture(self, name: str) -> None: ...
    def captured(self, name: str, player: str) -> int | None: ...
    def captured_many(self, name: str, players: Sequence[str]) -> memoryview:
        """
        Captured places of one instant, in request order; -1 for those who have none.
        """

    def standing_columns(self, name: str, most: int, key: bytes) -> tuple[memoryview, memoryview]:
        """
        Of the first players in standing order: a hash of each id by a key of 16 bytes, and the score.
        """

    def forget_capture(self, name: str) -> None: ...
    def begin_save(self, undo_bytes_max: int | None) -> tuple[int, list[tuple[int, int, int]]]:
        """
        Returns the save's number, and its positions as (partition, epoch, sequence).
        """

    def write_save(self, number: int, file: int) -> None: ...
    def abandon_save(self, number: int) -> None: ...
    def load(self, file: int) -> None: ...
