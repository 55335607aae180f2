"""Profiles, friends and search."""

from __future__ import annotations

import msgspec

from rankd.api.auth.access import require_own
from rankd.api.auth.identity import require_player_or_service
from rankd.api.calls import bodies
from rankd.api.calls.scores import sender_of
from rankd.api.http.negotiation import check_media
from rankd.api.http.request import Request, Response, json_response
from rankd.api.service import Service, encode
from rankd.domain.player import check_player
from rankd.errors import Forbidden, InvalidValue, PlayerAbsent
from rankd.registry.port import Profile
from rankd.shortening import quote

PLAYERS = "players:write"
SEARCH_LIMIT_DEFAULT = 20
_profile = msgspec.json.Decoder(bodies.ProfileBody)
_players = msgspec.json.Decoder(bodies.Players)


def show_player(service: Service, request: Request) -> Response:
    """Answer with a player's profile; in a thread."""
    profile = service.boards.player(request.arguments[0])
    if profile is None:
        raise PlayerAbsent(f"player: {quote(request.arguments[0])} has no profile")
    return json_response(encode(profile))


async def put_player(service: Service, request: Request) -> Response:
    """Store a profile; a player's own credential sets name and avatar only."""
    check_media(request, ("application/json",))
    player = check_player(request.arguments[0])
    require_player_or_service(request.identity, player, PLAYERS)
    body = await service.body(request)
    sender = sender_of(service, request, request.identity)
    is_own = request.identity is not None and not request.identity.is_service

    def store() -> Profile:
        sent = bodies.decode_object(_profile, body)
        if is_own and (sent.country is not None or sent.attributes is not None):
            raise Forbidden("country, attributes: a player's own credential may not set them; a service may")
        return service.boards.set_player(
            player,
            name=sent.name,
            avatar_url=sent.avatar_url,
            country=sent.country,
            attributes=sent.attributes,
            only_given=is_own,
            sender=sender,
        )

    return json_response(encode(await service.in_thread(store, request.cost)))


def show_friends(service: Service, request: Request) -> Response:
    """Answer with the stored friends of a player; in a thread."""
    player = request.arguments[0]
    require_own(request.identity, player)
    return json_response(encode(bodies.Players(list(service.boards.stored_friends(player)))))


async def put_friends(service: Service, request: Request) -> Response:
    """Store a player's friends."""
    check_media(request, ("application/json",))
    player = check_player(request.arguments[0])
    require_player_or_service(request.identity, player, PLAYERS)
    body = await service.body(request)
    if request.identity is not None:
        service.count_list(request.identity)
    sender = sender_of(service, request, request.identity)

    def store() -> bytes:
        stored = service.boards.set_friends(player, bodies.decode(_players, body).players, sender=sender)
        return encode(bodies.Players([*stored]))

    return json_response(await service.in_thread(store, request.cost))


def search(service: Service, request: Request) -> Response:
    """Answer with players whose id or name begins with `search`; in a thread."""
    start = request.query.get("search")
    if start is None:
        raise InvalidValue("search", "is missing; send the start of an id or a name")
    players = service.boards.search(start, request.integer("limit", SEARCH_LIMIT_DEFAULT))
    return json_response(encode({"players": players}))
