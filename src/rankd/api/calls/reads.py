"""Reads of boards."""

from __future__ import annotations

import msgspec

from rankd.api.auth.access import require_own, sees_everybody
from rankd.api.calls import bodies
from rankd.api.http.negotiation import JSON, check_media
from rankd.api.http.request import Request, Response, json_response, read_integer_text
from rankd.api.service import Service, encode
from rankd.domain.instant import AT_MS_END, check_at
from rankd.errors import Freshness, InvalidValue, PlayerAbsent
from rankd.reads.course import LIMIT_DEFAULT, CourseSpan
from rankd.reads.cursor import read_cursor
from rankd.reads.instance_ref import InstanceRef, ReadOptions
from rankd.shortening import quote

LIGHT_ENTRIES_MAX = 100  # a larger page is made in a thread
_players = msgspec.json.Decoder(bodies.Players)


def is_large_page(request: Request) -> bool:
    """Tell whether a page is too large for the event loop."""
    limit = request.query.get("limit")
    return limit is not None and len(limit) > 2


def is_large_range(request: Request) -> bool:
    """Tell whether a range is too large for the event loop."""
    return request.integer("to", 0) - request.integer("from", 0) >= LIGHT_ENTRIES_MAX


def always(_request: Request) -> bool:
    """Mark a call that is always too slow for the event loop."""
    return True


def top(service: Service, request: Request) -> Response:
    """Answer with the first entries, those after an offset, or those after a cursor."""
    boards, query = service.reads(request), request.query
    limit, offset = request.integer("limit", 10), request.integer("offset", 0)
    cursor = query.get("cursor")
    if cursor is None:
        ref = service.resolve(request)
        return service.answer(request, ref, lambda: boards.top_in(ref, limit, offset))
    if offset != 0:
        raise InvalidValue("offset", "must be left out beside a cursor")
    after = read_cursor(cursor)
    where = ReadOptions(window=query.get("window"), scope=query.get("scope"), ranking=query.get("ranking"))
    ref = service.since(request, boards.resolve_cursor(request.arguments[0], after.instance, where))
    return service.answer(request, ref, lambda: boards.following_in(ref, after, limit))


def range_of(service: Service, request: Request) -> Response:
    """Answer with the entries from one place to another."""
    first, last = request.needed_integer("from"), request.needed_integer("to")
    ref = service.resolve(request)
    return service.answer(request, ref, lambda: service.reads(request).range_in(ref, first, last, ("from", "to")))


def rank(service: Service, request: Request) -> Response:
    """Answer with a player's standing."""
    ref, player = service.resolve(request), request.arguments[1]

    def read() -> object:
        standing = service.reads(request).rank_in(ref, player)
        if isinstance(standing, Freshness):
            raise absent(ref, player, standing)
        return standing

    return service.answer(request, ref, read)


def around(service: Service, request: Request) -> Response:
    """Answer with a player and the neighbours above and below."""
    ref, player = service.resolve(request), request.arguments[1]
    above, below = request.integer("above", 5), request.integer("below", 5)

    def read() -> object:
        around = service.reads(request).around_in(ref, player, above, below)
        if isinstance(around, Freshness):
            raise absent(ref, player, around)
        return around

    return service.answer(request, ref, read)


def course(service: Service, request: Request) -> Response:
    """Answer with a player's course; in a thread."""
    board, player = request.arguments
    since, until = request.integer("from", 0), request.integer("to", AT_MS_END - 1)
    span = CourseSpan(check_at(since, "from"), check_at(until, "to"))
    if span.until < span.since:
        raise InvalidValue("to", "must not be before from")
    query = request.query
    answer = service.boards.course_in(
        board,
        player,
        span,
        window=query.get("window"),
        scope=query.get("scope"),
        limit=request.integer("limit", LIMIT_DEFAULT),
    )
    return json_response(encode(answer))


def absent(ref: InstanceRef, player: str, freshness: Freshness) -> PlayerAbsent:
    """Return the error for a player without a standing."""
    return PlayerAbsent(f"player: {quote(player)} does not stand in {ref.key.text}", freshness)


def what_if(service: Service, request: Request) -> Response:
    """Answer with the rank of a score; it depends on the moment, so it is not cached."""
    score = read_integer_text("score", request.arguments[1])
    ref = service.resolve(request)
    return json_response(encode(service.reads(request).rank_of_score_in(ref, score, request.integer("tiebreak", 0))))


def distribution(service: Service, request: Request) -> Response:
    """Answer with a histogram and quantiles of the scores."""
    buckets = request.integer("buckets", 50)
    ref = service.resolve(request)
    return service.answer(request, ref, lambda: service.reads(request).distribution_in(ref, buckets))


async def ranks(service: Service, request: Request) -> Response:
    """Answer with the standings of several players."""
    check_media(request, (JSON,))
    body = await service.body(request)

    def read() -> bytes:
        players = bodies.decode(_players, body).players
        return encode(service.reads(request).ranks_in(service.resolve(request), players))

    return json_response(await service.in_thread(read, request.cost))


async def friends(service: Service, request: Request) -> Response:
    """Answer with a group in standing order."""
    check_media(request, (JSON,))
    body = await service.body(request)

    def read() -> bytes:
        players = bodies.decode(_players, body).players
        return encode(service.reads(request).friends_in(service.resolve(request), players))

    return json_response(await service.in_thread(read, request.cost))


def friends_of(service: Service, request: Request) -> Response:
    """Answer with a player among their stored friends, as far as the sender may see them; in a thread."""
    board, player = request.arguments
    require_own(request.identity, player)
    is_public, boards = service.config.server.public_read, service.boards
    read = boards.friends_of if sees_everybody(request.identity, is_public=is_public) else boards.mutual_friends_of
    query = request.query
    where = ReadOptions(window=query.get("window"), scope=query.get("scope"), ranking=query.get("ranking"))
    where["at_least"] = query.get("at_least")  # ranked already: no wait
    if request.past is not None:
        where["as_of"] = request.needed_integer("as_of")  # worked out already
    return json_response(encode(read(board, player, **where)))
