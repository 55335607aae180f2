"""The view of a topic: the body of the matching read, and its entries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from msgspec import UNSET

from rankd.boards import Boards
from rankd.errors import Freshness
from rankd.push.topics import Topic, TopicKind
from rankd.reads.answers import Answer, Entry, Page, Standing
from rankd.reads.instance_ref import InstanceRef

ENTRIES = 10  # of a top topic
NEIGHBOURS = 10  # on each side of a player, for `passed` and `overtaken_by`


class AbsentPlayer(Answer, frozen=True, kw_only=True):
    """A player without an entry in the instance; a later score may add one."""

    player: str
    rank: None = None


class View(NamedTuple):
    """What a topic shows at one moment."""

    snapshot: Any  # the body of the matching read
    entries: Sequence[Any]  # of the snapshot
    ahead: frozenset[str] = frozenset()  # of a player's topic: neighbours
    behind: frozenset[str] = frozenset()

    @property
    def instance(self) -> tuple[str, str]:
        """The window and the scope."""
        return self.snapshot.window, self.snapshot.scope


def view_of(boards: Boards, topic: Topic, ref: InstanceRef) -> View:
    """Read the view of a topic."""
    match topic.kind:
        case TopicKind.TOP:
            page = boards.top_in(ref, ENTRIES)
            return View(page, page.entries)
        case TopicKind.FRIENDS:
            read = boards.mutual_friends_of if topic.only_mutual else boards.friends_of
            group = read(topic.board, topic.player)
            return View(group, group.entries)
        case TopicKind.PLAYER:
            return _player(boards, topic, ref)


def _player(boards: Boards, topic: Topic, ref: InstanceRef) -> View:
    around = boards.around_in(ref, topic.player, NEIGHBOURS, NEIGHBOURS)
    standing = boards.rank_in(ref, topic.player)
    if isinstance(standing, Freshness):
        return View(_absent(boards.top_in(ref, 1), topic.player), ())
    if isinstance(around, Freshness):
        return View(standing, (_entry(standing),))
    ahead, behind = _players(around.above), _players(around.below)
    if topic.only_mutual:
        friends = frozenset(boards.mutual_friends(topic.player))
        ahead, behind = ahead & friends, behind & friends
    return View(standing, (_entry(standing),), ahead, behind)


def _entry(standing: Standing) -> Entry:
    """Return the standing as an entry; a second read could be of another moment."""
    return Entry(
        standing.rank,
        standing.player,
        standing.score,
        standing.reached_at,
        standing.tiebreak,
        standing.name,
        standing.avatar_url,
        standing.country,
        standing.metadata,
        None if standing.rank_min is UNSET else standing.rank_min,
        None if standing.rank_max is UNSET else standing.rank_max,
    )


def _players(entries: Sequence[Entry]) -> frozenset[str]:
    return frozenset(entry.player for entry in entries)


def _absent(page: Page, player: str) -> AbsentPlayer:
    return AbsentPlayer(
        board=page.board,
        window=page.window,
        scope=page.scope,
        total=page.total,
        position=page.position,
        as_of=page.as_of,
        stale=page.stale,
        player=player,
    )
