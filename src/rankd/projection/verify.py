"""Verification: replay the ledger into the reference store and compare its ranks with the engine's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import msgspec

from rankd.domain.board import Board
from rankd.domain.instance import InstanceKey
from rankd.errors import VerificationFailed
from rankd.ledger.event import Scored
from rankd.ledger.port import Ledger
from rankd.projection.catalogue import Catalogue
from rankd.projection.follower import Follower
from rankd.projection.port import RankStore
from rankd.projection.reference import ReferenceStore
from rankd.projection.state import BoardState, State

VERIFY_EVENTS = 50_000  # in one read


class Report(msgspec.Struct, frozen=True):
    """The counts of what was compared."""

    events: int
    instances: int
    entries: int


def digests(store: RankStore) -> dict[str, tuple[int, int]]:
    """Return digest and total of every instance that has an entry."""
    digests_by_key = {}
    for key in store.instances():
        if total := store.total(key):
            digests_by_key[key.text] = (store.digest(key), total)
    return digests_by_key


def verify(
    ledger: Ledger,
    ranked: Mapping[str, tuple[int, int]],
    upto: Sequence[int],
    progress: Callable[[int], None],
    check_places: Callable[[RankStore, Board, BoardState, InstanceKey, Scored], None] | None = None,
) -> Report:
    """Compare a follower's digests at its positions with those of a replay up to there.

    `check_places` is called where places of a board are recorded.
    """
    follower = Follower(ledger, ReferenceStore(), State(), Catalogue())
    if check_places is not None:
        follower.applier.record_places = partial(check_places, follower.store)
    while follower.positions != tuple(upto):
        follower.follow(VERIFY_EVENTS, upto)
        progress(follower.events)
    follower.applier.let_go_all()
    _compare(ranked, digests(follower.store))
    return Report(sum(upto), len(ranked), sum(total for _, total in ranked.values()))


def _compare(ranked: Mapping[str, tuple[int, int]], recomputed: Mapping[str, tuple[int, int]]) -> None:
    for text in sorted({*ranked, *recomputed}):
        if ranked.get(text) != recomputed.get(text):
            raise VerificationFailed(_difference(text, ranked.get(text), recomputed.get(text)))


def _difference(text: str, ranked: tuple[int, int] | None, recomputed: tuple[int, int] | None) -> str:
    key = InstanceKey.parse(text)
    has, should = (0 if ranked is None else ranked[1]), (0 if recomputed is None else recomputed[1])
    what = f"{has} players stand there and {should} should" if has != should else "scores or their order differ"
    return (
        f"{key.board} in {key.window}, {key.scope!r}: {what}; open the boards again without checkpoints to rebuild them"
    )
