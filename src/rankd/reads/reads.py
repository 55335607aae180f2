"""The reads of the library, by the names of boards, windows and scopes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Unpack

from rankd.domain.board import check_board_id
from rankd.domain.definition import TITLE_BYTES_MAX, definition_of
from rankd.domain.fields import read_integer
from rankd.domain.text import check_text
from rankd.errors import Freshness, InvalidValue
from rankd.projection.directory import CURSOR_SEPARATOR, DirectoryPage
from rankd.reads import answers
from rankd.reads.course import CourseReads
from rankd.reads.cursor import read_cursor
from rankd.reads.instance_ref import ReadOptions

BOARDS_LIMIT_MAX = 1_000
CURSOR_BYTES_MAX = 2_048  # an id, and a title that may have grown when its case was folded


class Reads(CourseReads):
    """Every read of the library; may be called from any thread."""

    def past(self, instant: int) -> Reads:
        """Return the boards as they were at an instant, in ms since 1970."""
        raise InvalidValue("as_of", f"{instant} is asked of boards that are past already; leave it out")

    def _as_of(self, where: ReadOptions) -> Reads:
        """Return the boards that a read is about, and take `as_of` out of its options."""
        instant = where.pop("as_of", None)
        if instant is None:
            return self
        if where.get("at_least") is not None:
            raise at_least_beside_as_of()
        return self.past(instant)

    def definition(self, board: str, *, as_of: int | None = None) -> dict[str, object]:
        """Return a board's whole definition."""
        return definition_of((self if as_of is None else self.past(as_of)).board(board))

    def definitions(self, search: str | None = None) -> Iterator[dict[str, object]]:
        """Iterate over the definitions of all boards, each with its `id`; `search` is a prefix of the id or title."""
        cursor = None
        while True:
            page = self.boards_page(BOARDS_LIMIT_MAX, cursor=cursor, search=search)
            for listed in page.boards:
                yield {"id": listed.board.id, **definition_of(listed.board)}
            if (cursor := page.next) is None:
                return

    def list(self, search: str | None = None) -> Sequence[str]:
        """Return the ids of all boards, or of those whose id or title begins with `search`, ignoring case."""
        if search is None:
            return self._applier.directory.ids()
        return [str(definition["id"]) for definition in self.definitions(search)]

    def boards_page(self, limit: int = 100, *, cursor: str | None = None, search: str | None = None) -> DirectoryPage:
        """Return a page of boards, after a cursor, whose id or title begins with `search`: by id first, then by title.

        A page may have fewer boards than `limit` and a `next` all the same.
        """
        count = read_integer("limit", limit, 1, BOARDS_LIMIT_MAX)
        prefix = "" if search is None else check_text("search", search, TITLE_BYTES_MAX, bytes_min=0)
        if cursor is not None:
            try:
                check_board_id(check_text("cursor", cursor, CURSOR_BYTES_MAX).partition(CURSOR_SEPARATOR)[0])
            except InvalidValue:
                raise InvalidValue("cursor", "must be the `next` of an earlier page, unchanged") from None
        return self._applier.directory.page(count, cursor, prefix)

    def top(
        self,
        board: str,
        limit: int = 10,
        *,
        offset: int = 0,
        cursor: str | None = None,
        **where: Unpack[ReadOptions],
    ) -> answers.Page:
        """Return the first entries, those after an offset, or those after an earlier page."""
        reads = self._as_of(where)
        if cursor is None:
            return reads.top_in(reads.resolve(board, **where), limit, offset)
        if offset != 0:
            raise InvalidValue("offset", "must be left out beside a cursor")
        after = read_cursor(cursor)
        return reads.following_in(reads.resolve_cursor(board, after.instance, where), after, limit)

    def range(self, board: str, first: int, last: int, **where: Unpack[ReadOptions]) -> answers.Page:
        """Return the entries from one place to another, both inclusive."""
        reads = self._as_of(where)
        return reads.range_in(reads.resolve(board, **where), first, last)

    def rank(self, board: str, player: str, **where: Unpack[ReadOptions]) -> answers.Standing | None:
        """Return a player's standing; None for a player without one."""
        reads = self._as_of(where)
        standing = reads.rank_in(reads.resolve(board, **where), player)
        return None if isinstance(standing, Freshness) else standing

    def around(
        self, board: str, player: str, above: int = 5, below: int = 5, **where: Unpack[ReadOptions]
    ) -> answers.Around | None:
        """Return a player with the neighbours above and below; None for a player without a standing."""
        reads = self._as_of(where)
        around = reads.around_in(reads.resolve(board, **where), player, above, below)
        return None if isinstance(around, Freshness) else around

    def ranks(self, board: str, players: Sequence[str], **where: Unpack[ReadOptions]) -> answers.Ranks:
        """Return the standings of several players, in the order of the request, each once."""
        reads = self._as_of(where)
        return reads.ranks_in(reads.resolve(board, **where), players)

    def friends(self, board: str, players: Sequence[str], **where: Unpack[ReadOptions]) -> answers.Friends:
        """Return the players of a group who have a standing, in standing order."""
        reads = self._as_of(where)
        return reads.friends_in(reads.resolve(board, **where), players)

    def rank_of_score(
        self, board: str, score: int, *, tiebreak: int = 0, **where: Unpack[ReadOptions]
    ) -> answers.Place:
        """Return the rank of a new player who sends this score now."""
        reads = self._as_of(where)
        return reads.rank_of_score_in(reads.resolve(board, **where), score, tiebreak)

    def distribution(self, board: str, buckets: int = 50, **where: Unpack[ReadOptions]) -> answers.Distribution:
        """Return a histogram and quantiles of the scores; they do not depend on `ranking`."""
        reads = self._as_of(where)
        return reads.distribution_in(reads.resolve(board, **where), buckets)


def at_least_beside_as_of() -> InvalidValue:
    """Return the error for a read of the past that asks to wait."""
    return InvalidValue("at_least", "must be left out beside as_of: what was ranked then does not change")
