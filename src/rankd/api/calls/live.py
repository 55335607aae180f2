"""The calls that open live connections."""

from __future__ import annotations

import msgspec

from rankd.api.auth.identity import require_identity
from rankd.api.auth.tickets import TICKET_S
from rankd.api.http.request import Request, Response, Streaming, json_response
from rankd.api.service import Service, encode
from rankd.errors import Overloaded


class Ticket(msgspec.Struct, frozen=True):
    """A one-time credential for a stream."""

    ticket: str
    expires_in_s: int


async def stream(service: Service, request: Request) -> Response:
    """Open a stream of server-sent events."""
    if service.live is None or service.is_stopping:
        raise Overloaded("the server is stopping; reconnect in a moment")
    return Streaming(await service.live.open_sse(request))


def give_ticket(service: Service, request: Request) -> Response:
    """Answer with a ticket."""
    if service.live is None:
        raise Overloaded("the server is starting; try again in a moment")
    ticket = service.live.tickets.give(require_identity(request.identity))
    return json_response(encode(Ticket(ticket, int(TICKET_S))))
