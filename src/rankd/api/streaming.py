"""The calls behind live connections."""

from __future__ import annotations

import msgspec

from rankd.api.identity import require_identity
from rankd.api.request import Request, Response, Streaming, json_response
from rankd.api.service import Service, encode
from rankd.api.tickets import TICKET_S
from rankd.errors import Overloaded


class Ticket(msgspec.Struct, frozen=True):
    """What a stream can be opened with, once."""

    ticket: str
    expires_in_s: int


async def stream(service: Service, request: Request) -> Response:
    """Open a stream of server-sent events."""
    if service.live is None or service.is_stopping:
        raise Overloaded("the server is about to stop; come again in a moment")
    return Streaming(await service.live.open_sse(request))


def give_ticket(service: Service, request: Request) -> Response:
    """Answer with a ticket."""
    if service.live is None:
        raise Overloaded("live connections are not served yet; come again in a moment")
    ticket = service.live.tickets.give(require_identity(request.identity))
    return json_response(encode(Ticket(ticket, int(TICKET_S))))
