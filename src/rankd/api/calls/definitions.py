"""Definitions of boards, and an administrator's operations."""

from __future__ import annotations

import asyncio

import msgspec

from rankd.api.calls import bodies
from rankd.api.calls.scores import sender_of
from rankd.api.http.negotiation import check_media
from rankd.api.http.request import Request, Response, json_response
from rankd.api.service import Service, encode
from rankd.domain.definition import definition_of
from rankd.domain.instant import check_at
from rankd.errors import InvalidValue
from rankd.intake.results import Changed
from rankd.reads.audit import LIMIT_DEFAULT as AUDIT_LIMIT_DEFAULT

_definition = msgspec.json.Decoder(dict[str, object])
_reset = msgspec.json.Decoder(bodies.Reset)
HISTORY_LIMIT_DEFAULT = 100
LIST_LIMIT_DEFAULT = 100
LIST_BYTES_MAX = 128 * 1024  # a page ends with the board that exceeds it: compressing more blocks the event loop


def list_boards(service: Service, request: Request) -> Response:
    """Answer with a page of definitions; in a thread."""
    query = request.query
    limit = request.integer("limit", LIST_LIMIT_DEFAULT)
    page = service.boards.boards_page(limit, cursor=query.get("cursor"), search=query.get("search"))
    following, encoded, size = page.next, list[bytes](), 0
    for listed in page.boards:
        encoded.append(encode({"id": listed.board.id, **definition_of(listed.board)}))
        size += len(encoded[-1])
        if size >= LIST_BYTES_MAX and listed is not page.boards[-1]:
            following = listed.cursor
            break
    return json_response(b'{"boards":[%s],"next":%s}' % (b",".join(encoded), encode(following)))


def show_board(service: Service, request: Request) -> Response:
    """Answer with a board's definition."""
    board = service.reads(request).board(request.arguments[0])
    return json_response(encode({"id": board.id, **definition_of(board)}))


async def put_board(service: Service, request: Request) -> Response:
    """Define a board or change it."""
    check_media(request, ("application/json",))
    body = await service.body(request)
    board = request.arguments[0]
    sender = sender_of(service, request, request.identity)

    def define() -> Changed:
        definition = bodies.decode(_definition, body)
        if definition.pop("id", board) != board:
            raise InvalidValue("id", "must be the board in the path; send that one, or leave it out")
        return service.boards.define(board, definition, sender=sender)

    return json_response(encode(await service.in_thread(define, request.cost)))


async def delete_board(service: Service, request: Request) -> Response:
    """Delete a board with all its scores."""
    sender = sender_of(service, request, request.identity)
    board = request.arguments[0]
    changed = await service.in_thread(lambda: service.boards.delete(board, sender=sender), request.cost)
    return json_response(encode(changed))


async def remove_player(service: Service, request: Request) -> Response:
    """Remove a player from a board."""
    board, player = request.arguments
    if delay_s := service.write_delay_s(request.identity):
        await asyncio.sleep(delay_s)
    sender = sender_of(service, request, request.identity)
    changed = await service.in_thread(lambda: service.boards.remove(board, player, sender=sender), request.cost)
    return json_response(encode(changed))


async def reset_board(service: Service, request: Request) -> Response:
    """Empty a board's current instances."""
    check_media(request, ("application/json",))
    body = await service.body(request)
    if delay_s := service.write_delay_s(request.identity):
        await asyncio.sleep(delay_s)
    sender = sender_of(service, request, request.identity)

    def reset() -> Changed:
        window = bodies.decode(_reset, body).window if body.strip() else None
        return service.boards.reset(request.arguments[0], window, sender=sender)

    return json_response(encode(await service.in_thread(reset, request.cost)))


def audit(service: Service, request: Request) -> Response:
    """Answer with who did what, the newest first; in a thread."""
    query = request.query
    since, until = (check_at(request.needed_integer(name), name) if name in query else None for name in ("from", "to"))
    if since is not None and until is not None and until < since:
        raise InvalidValue("to", "must not be before from")
    page = service.boards.audit(
        player=query.get("player"),
        board=query.get("board"),
        kind=query.get("kind"),
        sender=query.get("sender"),
        since=since,
        until=until,
        limit=request.integer("limit", AUDIT_LIMIT_DEFAULT),
        cursor=query.get("cursor"),
    )
    return json_response(encode(page))


def events(service: Service, request: Request) -> Response:
    """Answer with a player's submissions to a board, the newest first; in a thread."""
    board, player = request.arguments
    service.boards.board(board)
    limit = request.integer("limit", HISTORY_LIMIT_DEFAULT)
    before = request.needed_integer("before") if "before" in request.query else None
    events = service.boards.history(player, limit, before=before, board=board)
    following = events[-1].sequence if len(events) == limit else None
    return json_response(encode({"events": events, "next": following}))
