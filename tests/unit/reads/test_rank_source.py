"""What a read waits for is what its answer then names."""

from __future__ import annotations

from rankd.domain.instance import InstanceKey
from rankd.ledger.event import EventSpan
from rankd.projection.reference import ReferenceStore
from rankd.projection.rows import skip
from rankd.reads.rank_source import EngineRankSource


def test_what_the_store_has_applied_is_not_ranked_before_answers_name_it() -> None:
    store, named = ReferenceStore(), ["0-4~1-2"]
    rank_source = EngineRankSource(store, lambda: named[0])
    skip(store, EventSpan(0, 0, 5))  # while a follower is in the middle of a step
    assert rank_source.has_ranked({0: 4}, None)
    assert not rank_source.has_ranked({0: 5}, None)

    named[0] = "0-5~1-2"
    assert rank_source.has_ranked({0: 5, 1: 2}, None)
    assert rank_source.open(InstanceKey("arcade", "all_time")).position == "0-5~1-2"


def test_reads_between_two_commits_share_a_session_and_later_ones_do_not() -> None:
    named, stale = ["0-4"], [False]
    rank_source = EngineRankSource(ReferenceStore(), lambda: named[0], lambda: stale[0])
    key = InstanceKey("arcade")
    first = rank_source.open(key)
    assert rank_source.open(key) is first
    assert (first.position, first.is_stale) == ("0-4", False)

    named[0] = "0-5"
    assert rank_source.open(key).position == "0-5"
    stale[0] = True
    assert rank_source.open(key).is_stale
    assert (first.position, first.is_stale) == ("0-4", False)  # a read under way keeps what it began with
