"""Several machines have one archive: whoever holds the lease writes to a bucket, and everybody reads from it."""

from __future__ import annotations

from pathlib import Path

from tests.archived import manifests
from tests.servers.s3 import S3Server

from rankd import Boards, ManualClock
from rankd.node.open_node import open_node
from rankd.node.shared_stores import SharedStores

MONDAY_NOON = 1_777_896_000_000
DAY_MS = 86_400_000
DAY = "daily:2026-05-04"


def test_what_one_node_archived_another_reads_from_the_bucket(
    postgres_url: str, s3: S3Server, s3_credentials: None, tmp_path: Path
) -> None:
    SharedStores(postgres_url).migrate()
    clock, bucket = ManualClock(MONDAY_NOON), s3.new_bucket()

    def node(number: int) -> Boards:
        return open_node(
            SharedStores(postgres_url),
            tmp_path / f"node-{number}",
            clock=clock,
            archive_url=f"s3://{bucket}/rankd",
            archive_endpoint=s3.endpoint,
        )

    first, second = node(1), node(2)
    try:
        first.define("arcade", windows=["daily"], scopes=["country"], retention="1d")
        first.submit_many("arcade", [("alice", 5), ("bob", 7)])
        first.submit("arcade", "carol", 6, attributes={"country": "BR"})
        clock.advance(3 * DAY_MS)
        for boards in (first, second, first):  # either may hold the lease
            boards.settle()
        assert first.figures().entries == second.figures().entries == 0

        pages = [boards.top("arcade", window=DAY) for boards in (first, second)]
        assert [page.source for page in pages] == ["archive", "archive"]
        assert [[entry.player for entry in page.entries] for page in pages] == [["bob", "carol", "alice"]] * 2
        assert second.top("arcade", window=DAY, scope="country:BR").total == 1
        (manifest,) = manifests(s3.buckets / bucket / "rankd")
        assert (manifest["window"], manifest["entries"]) == (DAY, 4)
    finally:
        second.close()
        first.close()

    third = node(3)  # on an empty folder
    try:
        third.settle()
        assert third.top("arcade", window=DAY).entries == pages[0].entries
    finally:
        third.close()
