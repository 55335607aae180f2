"""What a read waits for is what its answer then names."""

from __future__ import annotations

from rankd.domain.instance import InstanceKey
from rankd.ledger.event import EventSpan
from rankd.projection.reference import ReferenceStore
from rankd.projection.rows import skip
from rankd.reads.looking import LookHere


def test_what_the_store_has_applied_is_not_ranked_before_answers_name_it() -> None:
    store, named = ReferenceStore(), ["0-4~1-2"]
    looking = LookHere(store, lambda: named[0])
    skip(store, EventSpan(0, 0, 5))  # while a follower is in the middle of a step
    assert looking.has_ranked({0: 4}, None)
    assert not looking.has_ranked({0: 5}, None)

    named[0] = "0-5~1-2"
    assert looking.has_ranked({0: 5, 1: 2}, None)
    assert looking.look(InstanceKey("arcade", "all_time")).position == "0-5~1-2"
