"""What only the registry in a file does: its memory is emptied as a whole."""

from __future__ import annotations

from pathlib import Path

from rankd.ledger.database import Database
from rankd.registry.port import Profile
from rankd.registry.sqlite import SqliteRegistry


class Emptied(dict[str, Profile | None]):
    """A memory that another thread empties between a look and the next."""

    def __contains__(self, player: object) -> bool:
        held = super().__contains__(player)
        self.clear()
        return held


def test_a_memory_emptied_by_somebody_else_is_no_missing_profile(tmp_path: Path) -> None:
    database = Database(tmp_path)
    try:
        registry = SqliteRegistry(database, 100, lambda _count: None)
        registry.set_profile(Profile("alice", country="BR"))
        registry._cached = Emptied({"alice": Profile("alice", country="BR")})

        assert registry.attributes("alice") == {"country": "BR"}
    finally:
        database.close()
