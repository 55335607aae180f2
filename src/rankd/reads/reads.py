"""The reading side of the boards as games call it: by the names of boards, windows and scopes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Unpack

from rankd.domain.board import check_board_id
from rankd.domain.definition import TITLE_BYTES_MAX, definition_of
from rankd.domain.fields import read_integer
from rankd.domain.text import check_text
from rankd.errors import Freshness, InvalidValue
from rankd.projection.directory import CURSOR_SEPARATOR, BoardPage
from rankd.reads import answers
from rankd.reads.cursor import read_cursor
from rankd.reads.meaning import Where
from rankd.reads.standings import Standings

BOARDS_LIMIT_MAX = 1_000
CURSOR_BYTES_MAX = 2_048  # an id, and a title that may have grown when its case was folded


class Reads(Standings):
    """Every read of the library; may be called from any thread."""

    def definition(self, board: str) -> dict[str, object]:
        """Return a board's whole definition."""
        return definition_of(self.board(board))

    def definitions(self, search: str | None = None) -> Iterator[dict[str, object]]:
        """Go through the definitions of all boards, each with its `id`; or of those whose id or title begins so."""
        cursor = None
        while True:
            page = self.boards_page(BOARDS_LIMIT_MAX, cursor=cursor, search=search)
            for listed in page.boards:
                yield {"id": listed.board.id, **definition_of(listed.board)}
            if (cursor := page.next) is None:
                return

    def list(self, search: str | None = None) -> Sequence[str]:
        """Return the ids of all boards, or of those whose id or title begins with a text, whatever the case."""
        if search is None:
            return self._applier.directory.ids()
        return [str(definition["id"]) for definition in self.definitions(search)]

    def boards_page(self, limit: int = 100, *, cursor: str | None = None, search: str | None = None) -> BoardPage:
        """Return some of the boards: those behind a cursor, whose id or title begins with a text.

        By id first, then by title. A page may have fewer boards than `limit` and a `next` all the same.
        """
        most = read_integer("limit", limit, 1, BOARDS_LIMIT_MAX)
        start = "" if search is None else check_text("search", search, TITLE_BYTES_MAX, bytes_min=0)
        if cursor is not None:
            try:
                check_board_id(check_text("cursor", cursor, CURSOR_BYTES_MAX).partition(CURSOR_SEPARATOR)[0])
            except InvalidValue:
                raise InvalidValue("cursor", "must be the `next` of an earlier page, unchanged") from None
        return self._applier.directory.page(most, cursor, start)

    def top(
        self,
        board: str,
        limit: int = 10,
        *,
        offset: int = 0,
        cursor: str | None = None,
        **where: Unpack[Where],
    ) -> answers.Page:
        """Return the first entries, those behind an offset, or those behind an earlier page."""
        if cursor is None:
            return self.top_in(self.meant(board, **where), limit, offset)
        if offset != 0:
            raise InvalidValue("offset", "must be left out where a cursor says how to go on")
        after = read_cursor(cursor)
        return self.following_in(self.meant_by_cursor(board, after.instance, where), after, limit)

    def range(self, board: str, first: int, last: int, **where: Unpack[Where]) -> answers.Page:
        """Return the entries from one place to another, both included."""
        return self.range_in(self.meant(board, **where), first, last)

    def rank(self, board: str, player: str, **where: Unpack[Where]) -> answers.Standing | None:
        """Return where a player stands; None for somebody who does not."""
        found = self.rank_in(self.meant(board, **where), player)
        return None if isinstance(found, Freshness) else found

    def around(
        self, board: str, player: str, above: int = 5, below: int = 5, **where: Unpack[Where]
    ) -> answers.Around | None:
        """Return a player with those just above and just below; None for somebody who does not stand there."""
        found = self.around_in(self.meant(board, **where), player, above, below)
        return None if isinstance(found, Freshness) else found

    def ranks(self, board: str, players: Sequence[str], **where: Unpack[Where]) -> answers.Ranks:
        """Return where several players stand, in the order asked, each once."""
        return self.ranks_in(self.meant(board, **where), players)

    def friends(self, board: str, players: Sequence[str], **where: Unpack[Where]) -> answers.Friends:
        """Return those of a group who stand there, in standing order."""
        return self.friends_in(self.meant(board, **where), players)

    def rank_of_score(self, board: str, score: int, *, tiebreak: int = 0, **where: Unpack[Where]) -> answers.Place:
        """Return where a new player would stand who sent this score now."""
        return self.rank_of_score_in(self.meant(board, **where), score, tiebreak)

    def distribution(
        self,
        board: str,
        buckets: int = 50,
        *,
        window: str | None = None,
        scope: str | None = None,
        at_least: str | None = None,
    ) -> answers.Distribution:
        """Return how the scores are spread."""
        return self.distribution_in(self.meant(board, window, scope, at_least=at_least), buckets)
