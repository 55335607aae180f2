"""Every call of the API, in one table: the router, the limits, /openapi.json and /docs follow from it."""

from __future__ import annotations

from typing import Any

from rankd.api.calls import about, answers, bodies, definitions, live, pages, players, reads, scores
from rankd.api.calls.call import Access, Call, Cost, Parameter
from rankd.boards import HISTORY_LIMIT_MAX
from rankd.domain.instant import AT_MS_END
from rankd.domain.position import POSITION_PATTERN
from rankd.intake.results import Batched, Changed, Submitted
from rankd.ledger.event import EventKind
from rankd.reads.answers import Around, Distribution, Friends, Page, Place, Ranks, Standing
from rankd.reads.audit import LIMIT_DEFAULT as AUDIT_LIMIT_DEFAULT
from rankd.reads.audit import LIMIT_MAX as AUDIT_LIMIT_MAX
from rankd.reads.audit import AuditPage
from rankd.reads.course import LIMIT_DEFAULT as COURSE_LIMIT_DEFAULT
from rankd.reads.course import LIMIT_MAX as COURSE_LIMIT_MAX
from rankd.reads.course import Course
from rankd.reads.reads import BOARDS_LIMIT_MAX
from rankd.reads.standings import LIMIT_MAX, NEIGHBOURS_MAX
from rankd.registry.port import Profile

_TEXT: dict[str, Any] = {"type": "string"}


def _integer(low: int, high: int | None = None, default: int | None = None) -> dict[str, Any]:
    bounds: dict[str, Any] = {"type": "integer", "minimum": low}
    return bounds | ({} if high is None else {"maximum": high}) | ({} if default is None else {"default": default})


WINDOW = Parameter(
    "window",
    {**_TEXT, "example": "all_time"},
    "`weekly`, `weekly:previous`, `weekly:2026-W18`; the board's first by default",
)
SCOPE = Parameter("scope", {**_TEXT, "example": "global"}, "`global`, or `attribute:value` such as `country:BR`")
RANKING = Parameter(
    "ranking",
    {"type": "string", "enum": ["ordinal", "competition", "dense"]},
    "how equal scores are counted: 1234, 1224 or 1223; the board's own by default",
)
AT_LEAST = Parameter(
    "at_least",
    {**_TEXT, "pattern": POSITION_PATTERN},
    "a position that an answer gave: wait until it is ranked",
)
AS_OF = Parameter(
    "as_of",
    _integer(0, AT_MS_END - 1),
    "ms since 1970: the board as it was at that instant; for services and administrators",
)
WHERE = (WINDOW, SCOPE, RANKING, AT_LEAST, AS_OF)
LIMIT = Parameter("limit", _integer(1, LIMIT_MAX, 10), "how many entries")

CALLS: tuple[Call, ...] = (
    # Scores
    Call(
        name="submit",
        method="POST",
        path="/v1/scores",
        access=Access.SCORES,
        handler=scores.submit,
        is_write=True,
        about="Submit one score. It is on disk and ranked when the answer comes.",
        body=bodies.Score,
        answer=Submitted,
    ),
    Call(
        name="submit_many",
        method="POST",
        path="/v1/scores/batch",
        access=Access.SCORES,
        handler=scores.submit_batch,
        is_write=True,
        cost=Cost.DEAR,
        about="Submit many scores, all or none: one bad event refuses the batch and is named by its index.",
        parameters=(
            Parameter(
                "imported",
                {"type": "boolean", "default": False},
                "an administrator's import: `at` may go back as far as windows are open",
            ),
        ),
        body=bodies.Batch,
        answer=Batched,
        media=scores.BATCH_MEDIA,
    ),
    # Reads
    Call(
        name="top",
        method="GET",
        path="/v1/boards/{board}/top",
        access=Access.READ,
        handler=reads.top,
        is_heavy=reads.is_large_page,
        cost=Cost.DEAR,
        about="The first entries, those after an offset, or those after an earlier page's `next`.",
        parameters=(
            LIMIT,
            Parameter("offset", _integer(0, default=0), "how many entries to leave out"),
            Parameter("cursor", _TEXT, "the `next` of an earlier page"),
            *WHERE,
        ),
        answer=Page,
    ),
    Call(
        name="range",
        method="GET",
        path="/v1/boards/{board}/range",
        access=Access.READ,
        handler=reads.range_of,
        is_heavy=reads.is_large_range,
        cost=Cost.DEAR,
        about="The entries from one place to another, both inclusive; at most 1,000.",
        parameters=(
            Parameter("from", {**_integer(1), "example": 1}, "the first place", is_needed=True),
            Parameter("to", {**_integer(1), "example": 10}, "the last place", is_needed=True),
            *WHERE,
        ),
        answer=Page,
    ),
    Call(
        name="rank",
        method="GET",
        path="/v1/boards/{board}/players/{player}",
        access=Access.READ,
        handler=reads.rank,
        about="Where a player stands.",
        parameters=WHERE,
        answer=Standing,
    ),
    Call(
        name="course",
        method="GET",
        path="/v1/boards/{board}/players/{player}/course",
        access=Access.READ,
        handler=reads.course,
        is_heavy=reads.always,
        cost=Cost.DEAR,  # up to a thousand files
        about="Where a player stood at each midnight, on boards with a `history`, and at the end of closed windows.",
        parameters=(
            Parameter("window", {**_TEXT, "example": "all_time"}, "`weekly`: all weeks; `weekly:2026-W18`: that one"),
            SCOPE,
            Parameter("from", _integer(0, AT_MS_END - 1), "the first instant, in ms since 1970"),
            Parameter("to", _integer(0, AT_MS_END - 1), "the last instant"),
            Parameter("limit", _integer(1, COURSE_LIMIT_MAX, COURSE_LIMIT_DEFAULT), "how many midnights, the newest"),
        ),
        answer=Course,
    ),
    Call(
        name="around",
        method="GET",
        path="/v1/boards/{board}/players/{player}/around",
        access=Access.READ,
        handler=reads.around,
        about="A player with the neighbours above and below.",
        parameters=(
            Parameter("above", _integer(0, NEIGHBOURS_MAX, 5), "how many above"),
            Parameter("below", _integer(0, NEIGHBOURS_MAX, 5), "how many below"),
            *WHERE,
        ),
        answer=Around,
    ),
    Call(
        name="ranks",
        method="POST",
        path="/v1/boards/{board}/ranks",
        access=Access.READ,
        handler=reads.ranks,
        about="The standings of several players, in the order of the request; at most 1,000.",
        parameters=WHERE,
        body=bodies.Players,
        answer=Ranks,
    ),
    Call(
        name="friends",
        method="POST",
        path="/v1/boards/{board}/friends",
        access=Access.READ,
        handler=reads.friends,
        about="A group in standing order: the rank within the group and the global one.",
        parameters=WHERE,
        body=bodies.Players,
        answer=Friends,
    ),
    Call(
        name="friends_of",
        method="GET",
        path="/v1/boards/{board}/players/{player}/friends",
        access=Access.OWN,
        handler=reads.friends_of,
        is_heavy=reads.always,
        cost=Cost.DEAR,  # mutual friends take up to a thousand lists
        about="A player among their stored friends; to a player's token on a private server, among mutual ones.",
        parameters=WHERE,
        answer=Friends,
    ),
    Call(
        name="rank_of_score",
        method="GET",
        path="/v1/boards/{board}/scores/{score}",
        access=Access.READ,
        handler=reads.what_if,
        about="The rank of a new player who sends this score now.",
        parameters=(
            Parameter("tiebreak", _integer(0, 2**40 - 1, 0), "on boards whose ties are by value"),
            *WHERE,
        ),
        answer=Place,
    ),
    Call(
        name="distribution",
        method="GET",
        path="/v1/boards/{board}/distribution",
        access=Access.READ,
        handler=reads.distribution,
        is_heavy=reads.always,
        cost=Cost.DEAR,
        about="How the scores are spread: equal ranges and quantiles.",
        parameters=(Parameter("buckets", _integer(1, 1_000, 50), "how many ranges"), *WHERE),
        answer=Distribution,
    ),
    # Boards
    Call(
        name="list",
        method="GET",
        path="/v1/boards",
        access=Access.READ,
        handler=definitions.list_boards,
        is_heavy=reads.always,
        cost=Cost.DEAR,
        about="Boards with their definitions, a page at a time: by id or, in a search, by id first and then by title. A"
        " page may hold fewer than `limit` boards; it is the last when `next` is null.",
        parameters=(
            Parameter(
                "limit", _integer(1, BOARDS_LIMIT_MAX, definitions.LIST_LIMIT_DEFAULT), "how many boards at most"
            ),
            Parameter("cursor", _TEXT, "the `next` of an earlier page"),
            Parameter("search", {**_TEXT, "example": "arc"}, "the start of an id or a title, whatever the case"),
        ),
        answer=answers.BoardList,
    ),
    Call(
        name="definition",
        method="GET",
        path="/v1/boards/{board}",
        access=Access.READ,
        handler=definitions.show_board,
        about="A board's whole definition.",
        parameters=(AS_OF,),
        answer=dict[str, Any],
    ),
    Call(
        name="define",
        method="PUT",
        path="/v1/boards/{board}",
        access=Access.ADMIN,
        handler=definitions.put_board,
        is_write=True,
        about="Define a board or change it; the same definition again changes nothing.",
        body=dict[str, Any],
        answer=Changed,
    ),
    Call(
        name="delete",
        method="DELETE",
        path="/v1/boards/{board}",
        access=Access.ADMIN,
        handler=definitions.delete_board,
        is_write=True,
        cost=Cost.DEAR,
        about="Delete a board with all its scores.",
        answer=Changed,
    ),
    Call(
        name="reset",
        method="POST",
        path="/v1/boards/{board}/reset",
        access=Access.ADMIN,
        handler=definitions.reset_board,
        is_write=True,
        cost=Cost.DEAR,
        about="Empty the current instances of one window, or of all.",
        body=bodies.Reset,
        answer=Changed,
    ),
    Call(
        name="remove",
        method="DELETE",
        path="/v1/boards/{board}/players/{player}",
        access=Access.ADMIN,
        handler=definitions.remove_player,
        is_write=True,
        about="Take a player out of every instance of a board: an event, not an erasure of history.",
        answer=Changed,
    ),
    Call(
        name="history",
        method="GET",
        path="/v1/boards/{board}/players/{player}/events",
        access=Access.ADMIN,
        handler=definitions.events,
        is_heavy=reads.always,
        cost=Cost.DEAR,
        about="A player's submissions to a board, the newest first: sender, time, and address if that is recorded.",
        parameters=(
            Parameter("limit", _integer(1, HISTORY_LIMIT_MAX, 100), "how many events"),
            Parameter("before", _integer(1), "the `next` of an earlier answer"),
        ),
        answer=answers.Events,
    ),
    Call(
        name="audit",
        method="GET",
        path="/v1/audit",
        access=Access.ADMIN,
        handler=definitions.audit,
        is_heavy=reads.always,
        cost=Cost.DEAR,
        about="Who did what, the newest first: events with their senders, from where they came if that is recorded, and"
        " the scores before and after. A page may hold fewer than `limit` events, or none: the last one has no `next`.",
        parameters=(
            Parameter("player", _TEXT, "events about this player"),
            Parameter("board", _TEXT, "events of this board, which may be deleted by now"),
            Parameter("kind", {"type": "string", "enum": [*EventKind]}, "events of one kind"),
            Parameter("sender", _TEXT, "events of this sender"),
            Parameter("from", _integer(0, AT_MS_END - 1), "committed then or later, in ms since 1970"),
            Parameter("to", _integer(0, AT_MS_END - 1), "committed then or before"),
            Parameter("limit", _integer(1, AUDIT_LIMIT_MAX, AUDIT_LIMIT_DEFAULT), "how many events"),
            Parameter("cursor", _TEXT, "the `next` of an earlier page"),
        ),
        answer=AuditPage,
    ),
    # Players
    Call(
        name="search",
        method="GET",
        path="/v1/players",
        access=Access.READ,
        handler=players.search,
        is_heavy=reads.always,
        cost=Cost.DEAR,
        about="Players whose id or name begins with a text.",
        parameters=(
            Parameter(
                "search", {**_TEXT, "minLength": 1, "example": "ali"}, "the start of an id or a name", is_needed=True
            ),
            Parameter("limit", _integer(1, 100, 20), "how many players"),
        ),
        answer=answers.PlayerList,
    ),
    Call(
        name="player",
        method="GET",
        path="/v1/players/{player}",
        access=Access.READ,
        handler=players.show_player,
        is_heavy=reads.always,
        about="A player's profile.",
        answer=Profile,
    ),
    Call(
        name="set_player",
        method="PUT",
        path="/v1/players/{player}",
        access=Access.OWN,
        handler=players.put_player,
        is_write=True,
        about="Replace a player's profile.",
        body=bodies.ProfileBody,
        answer=Profile,
    ),
    Call(
        name="stored_friends",
        method="GET",
        path="/v1/players/{player}/friends",
        access=Access.OWN,
        handler=players.show_friends,
        is_heavy=reads.always,
        about="The friends stored for a player.",
        answer=bodies.Players,
    ),
    Call(
        name="set_friends",
        method="PUT",
        path="/v1/players/{player}/friends",
        access=Access.OWN,
        handler=players.put_friends,
        is_write=True,
        about="Replace a player's stored friends.",
        body=bodies.Players,
        answer=bodies.Players,
    ),
    # Live
    Call(
        name="stream",
        method="GET",
        path="/v1/stream",
        access=Access.READ,
        handler=live.stream,
        about="Server-sent events: a snapshot of each topic, then what changes.",
        parameters=(
            Parameter(
                "topic",
                {**_TEXT, "example": "top:arcade"},
                "`top:{board}[@{window}[@{scope}]]`, `player:{board}:{player}`, `friends:{board}:{player}`",
                is_needed=True,
            ),
            Parameter("interval_ms", _integer(500, 60_000), "rest at least so long between two messages"),
            Parameter("ticket", _TEXT, "in place of a credential, for browsers"),
        ),
        repeated=("topic",),
        answer_media="text/event-stream",
    ),
    Call(
        name="ticket",
        method="POST",
        path="/v1/stream/tickets",
        access=Access.OWN,
        handler=live.give_ticket,
        about="A ticket that opens one stream within 60 s, for browsers that cannot send a credential with it.",
        answer=live.Ticket,
    ),
    *about.SERVER_CALLS,
    *pages.PAGES,
)
