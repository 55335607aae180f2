"""Reads of boards."""

from __future__ import annotations

import msgspec

from rankd.api import bodies
from rankd.api.access import require_own, sees_everybody
from rankd.api.negotiation import JSON, check_media
from rankd.api.request import Request, Response, json_response, read_integer_text
from rankd.api.service import Service, encode
from rankd.errors import Freshness, InvalidValue, PlayerAbsent
from rankd.reads.cursor import read_cursor
from rankd.reads.meaning import Meant, Where
from rankd.shortening import quote

LIGHT_ENTRIES_MAX = 100  # a page of more is made beside the event loop
_players = msgspec.json.Decoder(bodies.Players)


def is_large_page(request: Request) -> bool:
    """Tell whether a page is too large for the event loop."""
    limit = request.query.get("limit")
    return limit is not None and len(limit) > 2


def is_large_range(request: Request) -> bool:
    """Tell whether a range of places is too large for the event loop."""
    return request.integer("to", 0) - request.integer("from", 0) >= LIGHT_ENTRIES_MAX


def always(_request: Request) -> bool:
    """Tell that a call is always too large for the event loop."""
    return True


def top(service: Service, request: Request) -> Response:
    """Answer with the first entries, those behind an offset, or those behind a cursor."""
    boards, query = service.boards, request.query
    limit, offset = request.integer("limit", 10), request.integer("offset", 0)
    cursor = query.get("cursor")
    if cursor is None:
        meant = service.meant(request)
        return service.answer(request, meant, lambda: boards.top_in(meant, limit, offset))
    if offset != 0:
        raise InvalidValue("offset", "must be left out where a cursor says how to go on")
    after = read_cursor(cursor)
    where = Where(window=query.get("window"), scope=query.get("scope"), ranking=query.get("ranking"))
    meant = service.since(request, boards.meant_by_cursor(request.arguments[0], after.instance, where))
    return service.answer(request, meant, lambda: boards.following_in(meant, after, limit))


def range_of(service: Service, request: Request) -> Response:
    """Answer with the entries from one place to another."""
    first, last = request.needed_integer("from"), request.needed_integer("to")
    meant = service.meant(request)
    return service.answer(request, meant, lambda: service.boards.range_in(meant, first, last, ("from", "to")))


def rank(service: Service, request: Request) -> Response:
    """Answer with where a player stands."""
    meant, player = service.meant(request), request.arguments[1]

    def read() -> object:
        standing = service.boards.rank_in(meant, player)
        if isinstance(standing, Freshness):
            raise absent(meant, player, standing)
        return standing

    return service.answer(request, meant, read)


def around(service: Service, request: Request) -> Response:
    """Answer with a player and those just above and below."""
    meant, player = service.meant(request), request.arguments[1]
    above, below = request.integer("above", 5), request.integer("below", 5)

    def read() -> object:
        found = service.boards.around_in(meant, player, above, below)
        if isinstance(found, Freshness):
            raise absent(meant, player, found)
        return found

    return service.answer(request, meant, read)


def absent(meant: Meant, player: str, freshness: Freshness) -> PlayerAbsent:
    """Return the error for a player who does not stand there."""
    return PlayerAbsent(f"player: {quote(player)} does not stand in {meant.key.text}", freshness)


def what_if(service: Service, request: Request) -> Response:
    """Answer with where a score would stand; the moment counts, so nobody may keep it."""
    score = read_integer_text("score", request.arguments[1])
    meant = service.meant(request)
    return json_response(encode(service.boards.rank_of_score_in(meant, score, request.integer("tiebreak", 0))))


def distribution(service: Service, request: Request) -> Response:
    """Answer with how the scores are spread."""
    buckets = request.integer("buckets", 50)
    meant = service.meant(request)
    return service.answer(request, meant, lambda: service.boards.distribution_in(meant, buckets))


async def ranks(service: Service, request: Request) -> Response:
    """Answer with where several players stand."""
    check_media(request, (JSON,))
    body = await service.body(request)

    def read() -> bytes:
        return encode(service.boards.ranks_in(service.meant(request), bodies.decode(_players, body).players))

    return json_response(await service.in_thread(read, request.cost))


async def friends(service: Service, request: Request) -> Response:
    """Answer with a group in standing order."""
    check_media(request, (JSON,))
    body = await service.body(request)

    def read() -> bytes:
        return encode(service.boards.friends_in(service.meant(request), bodies.decode(_players, body).players))

    return json_response(await service.in_thread(read, request.cost))


def friends_of(service: Service, request: Request) -> Response:
    """Answer with a player among their stored friends, as far as whoever asks may see them; in a thread."""
    board, player = request.arguments
    require_own(request.identity, player)
    is_public, boards = service.config.server.public_read, service.boards
    read = boards.friends_of if sees_everybody(request.identity, is_public=is_public) else boards.mutual_friends_of
    query = request.query
    where = Where(window=query.get("window"), scope=query.get("scope"), ranking=query.get("ranking"))
    where["at_least"] = query.get("at_least")  # ranked already, so nothing is waited for
    return json_response(encode(read(board, player, **where)))
