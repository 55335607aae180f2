"""Checkpoints of older versions are not loaded; those of this one bring everything back."""

from __future__ import annotations

from pathlib import Path

import rankd
from rankd.projection.checkpoints import FORMAT

MAGIC_BYTES, VERSION_BYTES = 8, 4
SCORE_MAX = 100


def rewrite_as_version_1(folder: Path) -> None:
    """Say of the newest state that the version before wrote it."""
    path = max((folder / "snapshots").iterdir()) / "state.rankd"
    written = path.read_bytes()
    path.write_bytes(written[:MAGIC_BYTES] + (FORMAT - 1).to_bytes(VERSION_BYTES, "little") + written[12:])


def standing_of(boards: rankd.Boards, board: str, player: str) -> rankd.Standing:
    standing = boards.rank(board, player)
    assert standing is not None
    return standing


def test_a_checkpoint_of_an_older_version_is_passed_over_and_the_ledger_replayed(tmp_path: Path) -> None:
    with rankd.open(tmp_path) as boards:
        boards.define("guilds", score_max=SCORE_MAX, keep="latest", team={"attribute": "guild", "by": "sum"})
        boards.submit("guilds", "ann", 70, attributes={"guild": "reds"})
        boards.submit("guilds", "bob", 60, attributes={"guild": "reds"})
        boards.snapshot()
    rewrite_as_version_1(tmp_path)
    with rankd.open(tmp_path) as boards:
        assert (boards.started.snapshot, boards.started.replayed) == (None, 3)
        boards.submit("guilds", "bob", 25, attributes={"guild": "reds"})

        assert standing_of(boards, "guilds", "reds").score == 95  # 130 - 60 + 25: what was above the bound is not lost
        boards.verify()


def test_metadata_is_found_again_after_a_restart(tmp_path: Path) -> None:
    players = [f"p{number}" for number in range(3_000)]
    with rankd.open(tmp_path) as boards:
        boards.define("arcade", windows=["all_time", "daily"], scopes=["country"])
        boards.submit_many(
            "arcade",
            players=players,
            scores=list(range(len(players))),
            attributes={"country": ["BR", "FR"] * 1_500},
            metadata=[{"n": number} if number % 3 else None for number in range(len(players))],
        )
        boards.snapshot()
    with rankd.open(tmp_path) as boards:
        assert boards.started.replayed == 0
        for scope in ("global", "country:FR"):
            top = boards.top("arcade", 9, scope=scope).entries
            assert [entry.metadata for entry in top] == [
                {"n": entry.score} if entry.score % 3 else None for entry in top
            ]
        boards.remove("arcade", "p2999")
        boards.submit("arcade", "p2999", 5_000)

        assert standing_of(boards, "arcade", "p2999").metadata is None
