"""
One event inserted in the driver's own SQLite; use rankd.ledger.direct.
"""

class Appender:
    """Inserts events, each in a transaction; used by one thread at a time."""

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

    def close(self) -> None: ...
