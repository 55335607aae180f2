"""Topics: `top:arcade@weekly@country:BR`, `player:arcade:alice`, `friends:arcade:alice`.

The last field is the rest of the text, so it may be any player id or scope.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from rankd.domain.board import check_board_id
from rankd.domain.player import check_player
from rankd.errors import InvalidValue
from rankd.shortening import quote

TOPIC_BYTES_MAX = 512
_EXAMPLES = "top:arcade, top:arcade@weekly@country:BR, player:arcade:alice or friends:arcade:alice"


class TopicKind(StrEnum):
    """What a topic shows."""

    TOP = "top"  # the first entries of an instance
    PLAYER = "player"  # one player's standing
    FRIENDS = "friends"  # a player among their stored friends


class Topic(NamedTuple):
    """A topic that a client can watch."""

    kind: TopicKind
    board: str
    window: str | None = None
    scope: str | None = None
    player: str = ""
    only_mutual: bool = False  # show only the player and mutual friends: the watcher may see no others

    @property
    def text(self) -> str:
        """Its name, as clients write it.

        >>> parse_topic("top:arcade@weekly@country:BR").text, parse_topic("top:arcade@@country:BR").text
        ('top:arcade@weekly@country:BR', 'top:arcade@@country:BR')
        """
        if self.kind is not TopicKind.TOP:
            return f"{self.kind}:{self.board}:{self.player}"
        if self.scope is not None:
            return f"{self.kind}:{self.board}@{self.window or ''}@{self.scope}"
        return f"{self.kind}:{self.board}" if self.window is None else f"{self.kind}:{self.board}@{self.window}"


def parse_topic(text: object) -> Topic:
    """Parse a topic; `Hub.watch` checks that its board, window and scope exist."""
    if not isinstance(text, str) or len(text.encode(errors="replace")) > TOPIC_BYTES_MAX:
        raise InvalidValue("topic", f"must be text of at most {TOPIC_BYTES_MAX} bytes such as {_EXAMPLES}")
    kind, separator, rest = text.partition(":")
    if not separator or kind not in list(TopicKind):
        raise InvalidValue("topic", f"must be such as {_EXAMPLES}; got {quote(text)}")
    if kind == TopicKind.TOP:
        board, *where = rest.split("@", 2)
        if where and not where[-1]:
            raise InvalidValue("topic", f"must name a window or a scope behind its @; got {quote(text)}")
        window, scope = (*where, None, None)[:2]
        # An empty window between two @ is the board's first.
        return Topic(TopicKind.TOP, check_board_id(board, "topic"), window or None, scope)
    board, separator, player = rest.partition(":")
    if not separator:
        raise InvalidValue("topic", f"must name a player, such as {kind}:arcade:alice; got {quote(text)}")
    return Topic(TopicKind(kind), check_board_id(board, "topic"), player=check_player(player, "topic"))
