"""Events inserted in the driver's own SQLite; use rankd.ledger.direct."""

import array

class Appender:
    """Inserts events; used by one thread at a time."""

    def __init__(self, connection: int, text: str, witness: object) -> None: ...
    def append(
        self,
        before: bytes,
        context_text: bytes,
        sequence: int,
        context: int,
        at: int,
        player: int,
        score: int,
        tiebreak: int,
    ) -> bytes | tuple[int, str]:
        """The seal, or the code and the text of an error."""

    def insert(
        self,
        first: int,
        context: array.array[int],
        at: array.array[int],
        player: array.array[int],
        score: array.array[int],
        tiebreak: array.array[int],
        details: list[bytes] | None,
        seal: bytes,
    ) -> tuple[int, str] | None:
        """
        Insert a commit's events inside a transaction that is open: nothing, or the code and the text of an error.
        """

    def close(self) -> None: ...
