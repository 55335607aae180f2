"""What a topic shows: the body of the matching read, and its entries one by one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from rankd.boards import Boards
from rankd.push.topics import Kind, Topic
from rankd.reads.answers import Answer, Around, Entry, Page
from rankd.reads.meaning import Meant

ENTRIES = 10  # of a top topic
NEIGHBOURS = 10  # on each side of a player, among whom passing and being overtaken are told


class Absent(Answer, frozen=True, kw_only=True):
    """A player who does not stand there, and may yet."""

    player: str
    rank: None = None


class View(NamedTuple):
    """What is shown at one moment."""

    snapshot: Any  # the body of the matching read
    entries: Sequence[Any]
    ahead: frozenset[str] = frozenset()  # of a player's topic: neighbours
    behind: frozenset[str] = frozenset()


def view_of(boards: Boards, topic: Topic, meant: Meant) -> View:
    """Read what a topic shows now."""
    match topic.kind:
        case Kind.TOP:
            page = boards.top_in(meant, ENTRIES)
            return View(page, page.entries)
        case Kind.FRIENDS:
            group = boards.friends_of(topic.board, topic.player)
            return View(group, group.entries)
        case Kind.PLAYER:
            return _player(boards, topic, meant)


def _player(boards: Boards, topic: Topic, meant: Meant) -> View:
    standing = boards.rank_in(meant, topic.player)
    around = boards.around_in(meant, topic.player, NEIGHBOURS, NEIGHBOURS)
    if standing is None or around is None:
        return View(_absent(boards.top_in(meant, 1), topic.player), ())
    return View(standing, (around.player,), _players(around, above=True), _players(around, above=False))


def _players(around: Around, *, above: bool) -> frozenset[str]:
    entries: Sequence[Entry] = around.above if above else around.below
    return frozenset(entry.player for entry in entries)


def _absent(page: Page, player: str) -> Absent:
    return Absent(
        board=page.board,
        window=page.window,
        scope=page.scope,
        total=page.total,
        position=page.position,
        as_of=page.as_of,
        player=player,
    )
