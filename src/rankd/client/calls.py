"""Every operation as a request: the names, parameters and results of the library.

Each function checks its arguments as the library does and returns a ClientCall; the drivers make methods of these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar, Unpack

import msgspec

from rankd.client.call import ClientCall, encode, key_for, listed, secret_bytes, target
from rankd.client.events import (
    EventBatch,
    Row,
    event,
    events_of_columns,
    events_of_mappings,
    events_of_rows,
    field_of_columns,
    field_of_rows,
)
from rankd.domain.board import check_board_id
from rankd.domain.order import SCORE_MAX_POSSIBLE, SCORE_MIN_POSSIBLE
from rankd.domain.player import check_player
from rankd.domain.scope import check_attributes
from rankd.domain.score import check_score
from rankd.domain.text import check_text
from rankd.errors import InvalidValue
from rankd.intake.results import Batched, Changed, Submitted
from rankd.intake.sender import SENDER_BYTES_MAX
from rankd.ledger.port import PastEvent
from rankd.reads.answers import Around, Distribution, Friends, Page, Place, Ranks, Standing
from rankd.reads.audit import AuditPage, check_kind, read_mark
from rankd.reads.course import Course
from rankd.reads.instance_ref import ReadOptions
from rankd.registry.port import Profile

T = TypeVar("T")


class BoardPage(msgspec.Struct):
    """A page of boards, and the cursor of the next one."""

    boards: list[dict[str, object]]
    next: str | None = None


class _Players(msgspec.Struct):
    players: list[str]


class _Profiles(msgspec.Struct):
    players: list[Profile]


class _Events(msgspec.Struct):
    events: list[PastEvent]


class _Ready(msgspec.Struct):
    position: str | None = None


_boards = msgspec.json.Decoder(BoardPage).decode
_definition = msgspec.json.Decoder(dict[str, object]).decode
_changed = msgspec.json.Decoder(Changed).decode
_submitted = msgspec.json.Decoder(Submitted).decode
_ACCEPTED = b'"status":"accepted"'  # where a projector ranks
_batched = msgspec.json.Decoder(Batched).decode
_page = msgspec.json.Decoder(Page).decode
_standing = msgspec.json.Decoder(Standing).decode
_course = msgspec.json.Decoder(Course).decode
_around = msgspec.json.Decoder(Around).decode
_ranks = msgspec.json.Decoder(Ranks).decode
_friends = msgspec.json.Decoder(Friends).decode
_place = msgspec.json.Decoder(Place).decode
_distribution = msgspec.json.Decoder(Distribution).decode
_profile = msgspec.json.Decoder(Profile).decode
_players = msgspec.json.Decoder(_Players).decode
_profiles = msgspec.json.Decoder(_Profiles).decode
_audit = msgspec.json.Decoder(AuditPage).decode
_events = msgspec.json.Decoder(_Events).decode
_ready = msgspec.json.Decoder(_Ready).decode


def _none() -> None:
    return None


# Definitions


def define(
    board: str, definition: Mapping[str, object] | None = None, /, *, key: str | None = None, **options: object
) -> ClientCall[Changed]:
    """Define a board or change it, by keywords or by a mapping; the same definition again changes nothing."""
    if definition is not None and options:
        raise InvalidValue("definition", "must be given as a mapping or as keywords, not both")
    mapping = options if definition is None else definition
    if not isinstance(mapping, Mapping):
        raise InvalidValue("definition", f'must be an object such as {{"keep": "best"}}; got {type(mapping).__name__}')
    named = {"global" if name == "global_" else name: value for name, value in mapping.items()}
    return ClientCall(
        method="PUT",
        target=target("boards", check_board_id(board)),
        decode=_changed,
        body=encode("definition", named),
        key=key_for(key),
    )


def definition(board: str, *, as_of: int | None = None) -> ClientCall[dict[str, object]]:
    """Return a board's whole definition."""

    def decode(body: bytes) -> dict[str, object]:
        return {name: value for name, value in _definition(body).items() if name != "id"}

    path = target("boards", check_board_id(board), query={"as_of": as_of})
    return ClientCall(method="GET", target=path, decode=decode)


def boards_page(search: str | None = None, cursor: str | None = None) -> ClientCall[BoardPage]:
    """Return a page of boards whose id or title begins with `search`, after a cursor."""
    return ClientCall(method="GET", target=target("boards", query={"search": search, "cursor": cursor}), decode=_boards)


def delete(board: str, *, key: str | None = None) -> ClientCall[Changed]:
    """Delete a board with all its scores; defined again, it starts empty."""
    return ClientCall(
        method="DELETE", target=target("boards", check_board_id(board)), decode=_changed, key=key_for(key)
    )


# Scores


def submit(
    board: str,
    player: str | None,
    score: int,
    *,
    tiebreak: int | None = None,
    at: int | None = None,
    attributes: Mapping[str, object] | None = None,
    metadata: Mapping[str, object] | None = None,
    key: str | None = None,
    signing_secret: str | bytes | None = None,
) -> ClientCall[Submitted]:
    """Submit one score; it is durable and ranked on the server when this returns.

    `player` may be None where the token is a player's own and the board accepts unsigned scores.
    """
    sent = event(
        check_board_id(board),
        player,
        score,
        tiebreak=tiebreak,
        at=at,
        attributes=attributes,
        metadata=metadata,
    )
    decode = partial(_submitted_or_accepted, board=board, player=player or "")
    return _scores(target("scores"), encode("score", sent), decode, key, signing_secret)


def _submitted_or_accepted(body: bytes, *, board: str, player: str) -> Submitted:
    """Decode the answer to one score; of one that is not ranked in time, only its position is known."""
    if _ACCEPTED not in body:
        return _submitted(body)
    accepted = msgspec.json.decode(body)
    return Submitted(
        accepted["position"],
        board,
        player,
        window=None,
        score=None,
        previous_score=None,
        changed=False,
        rank=None,
        previous_rank=None,
        repeated=accepted.get("repeated", False),
    )


def submit_many(
    board: str,
    rows: Iterable[Row] | None = None,
    *,
    players: Sequence[str] | None = None,
    scores: Sequence[int] | None = None,
    tiebreaks: Sequence[int] | None = None,
    at: int | Sequence[int] | None = None,
    attributes: Mapping[str, object] | Sequence[Mapping[str, object] | None] | None = None,
    metadata: Sequence[Mapping[str, object] | None] | None = None,
    key: str | None = None,
    imported: bool = False,
    signing_secret: str | bytes | None = None,
) -> ClientCall[Batched]:
    """Submit many scores of a board, all or none: rows of (player, score) or of mappings, or columns of one length."""
    name = check_board_id(board)
    if rows is None:
        events = events_of_columns(
            name, players, scores, tiebreaks=tiebreaks, at=at, attributes=attributes, metadata=metadata
        )
    else:
        if any(values is not None for values in (players, scores, tiebreaks, at, attributes, metadata)):
            raise InvalidValue("rows", "must be left out beside columns; send either rows or columns")
        events = events_of_rows(name, rows)
    call = _scores(_batch(imported), encode("rows", EventBatch(events)), _batched, key, signing_secret)
    return replace(call, rename_field=field_of_columns if rows is None else field_of_rows)


def submit_events(
    events: Iterable[Mapping[str, object]],
    *,
    key: str | None = None,
    imported: bool = False,
    signing_secret: str | bytes | None = None,
) -> ClientCall[Batched]:
    """Submit scores of several boards, all or none; each is a mapping with `board`, `player` and `score`.

    `imported` is for an administrator: `at` may go back as far as windows are open.
    """
    batch = EventBatch(events_of_mappings(events))
    return _scores(_batch(imported), encode("events", batch), _batched, key, signing_secret)


def _batch(imported: bool) -> str:
    return target("scores", "batch", query={"imported": "true" if imported else None})


def _scores(
    where: str, body: bytes, decode: Callable[[bytes], T], key: str | None, secret: str | bytes | None
) -> ClientCall[T]:
    return ClientCall(
        method="POST",
        target=where,
        decode=decode,
        body=body,
        key=key_for(key),
        is_signable=True,
        signing_secret=secret_bytes(secret),
    )


def remove(board: str, player: str, *, key: str | None = None) -> ClientCall[Changed]:
    """Remove a player from every instance of a board; a later score starts anew."""
    where = target("boards", check_board_id(board), "players", check_player(player))
    return ClientCall(method="DELETE", target=where, decode=_changed, key=key_for(key))


def reset(board: str, window: str | None = None, *, key: str | None = None) -> ClientCall[Changed]:
    """Empty the current instances of one window, or of every window."""
    return ClientCall(
        method="POST",
        target=target("boards", check_board_id(board), "reset"),
        decode=_changed,
        body=encode("window", {} if window is None else {"window": window}),
        key=key_for(key),
    )


# Reads


def top(
    board: str, limit: int = 10, *, offset: int = 0, cursor: str | None = None, **where: Unpack[ReadOptions]
) -> ClientCall[Page]:
    """Return the first entries, those after an offset, or those after an earlier page."""
    query = {"limit": limit, "offset": offset or None, "cursor": cursor, **where}
    return ClientCall(method="GET", target=target("boards", check_board_id(board), "top", query=query), decode=_page)


def page_after(page: Page, limit: int, where: ReadOptions) -> ClientCall[Page] | None:
    """Return the call for the next page; None at the end.

    The cursor names the instance, so window and scope are left out: `daily` may mean another instance by now.
    """
    if page.next is None:
        return None
    kept: ReadOptions = {
        "ranking": where.get("ranking"),
        "at_least": where.get("at_least"),
        "as_of": where.get("as_of"),
    }
    return top(page.board, limit, cursor=page.next, **kept)


def range_of(board: str, first: int, last: int, **where: Unpack[ReadOptions]) -> ClientCall[Page]:
    """Return the entries from one place to another, both inclusive."""
    query = {"from": first, "to": last, **where}
    path = target("boards", check_board_id(board), "range", query=query)
    names = {"from": "first", "to": "last"}
    return ClientCall(method="GET", target=path, decode=_page, rename_field=lambda field: names.get(field, field))


def rank(board: str, player: str, **where: Unpack[ReadOptions]) -> ClientCall[Standing | None]:
    """Return a player's standing; None for a player without one."""
    path = ("boards", check_board_id(board), "players", check_player(player))
    return ClientCall(method="GET", target=target(*path, query={**where}), decode=_standing, when_absent=_none)


def course(
    board: str,
    player: str,
    *,
    window: str | None = None,
    scope: str | None = None,
    since: int | None = None,
    until: int | None = None,
    limit: int | None = None,
) -> ClientCall[Course]:
    """Return where a player stood from one instant to another, both inclusive.

    `window` names a window, for all its instances, or a single instance. `limit` is how many midnights are looked at,
    the newest.
    """
    path = ("boards", check_board_id(board), "players", check_player(player), "course")
    query = {"window": window, "scope": scope, "from": since, "to": until, "limit": limit}
    names = {"from": "since", "to": "until"}
    return ClientCall(
        method="GET",
        target=target(*path, query=query),
        decode=_course,
        rename_field=lambda field: names.get(field, field),
    )


def around(
    board: str, player: str, above: int = 5, below: int = 5, **where: Unpack[ReadOptions]
) -> ClientCall[Around | None]:
    """Return a player with the neighbours above and below; None for a player without a standing."""
    path = ("boards", check_board_id(board), "players", check_player(player), "around")
    query = {"above": above, "below": below, **where}
    return ClientCall(method="GET", target=target(*path, query=query), decode=_around, when_absent=_none)


def ranks(board: str, players: Sequence[str], **where: Unpack[ReadOptions]) -> ClientCall[Ranks]:
    """Return the standings of several players, in the order of the request, each once."""
    path = target("boards", check_board_id(board), "ranks", query={**where})
    return ClientCall(method="POST", target=path, decode=_ranks, body=_body_of("players", players))


def friends(board: str, players: Sequence[str], **where: Unpack[ReadOptions]) -> ClientCall[Friends]:
    """Return the players of a group who have a standing, in standing order."""
    path = target("boards", check_board_id(board), "friends", query={**where})
    return ClientCall(method="POST", target=path, decode=_friends, body=_body_of("players", players))


def friends_of(board: str, player: str, **where: Unpack[ReadOptions]) -> ClientCall[Friends]:
    """Return a player among their stored friends."""
    path = ("boards", check_board_id(board), "players", check_player(player), "friends")
    return ClientCall(method="GET", target=target(*path, query={**where}), decode=_friends)


def rank_of_score(board: str, score: int, *, tiebreak: int = 0, **where: Unpack[ReadOptions]) -> ClientCall[Place]:
    """Return the rank of a new player who sends this score now."""
    sent = check_score(score, SCORE_MIN_POSSIBLE, SCORE_MAX_POSSIBLE)
    query = {"tiebreak": tiebreak or None, **where}
    path = ("boards", check_board_id(board), "scores", str(sent))
    return ClientCall(method="GET", target=target(*path, query=query), decode=_place)


def distribution(board: str, buckets: int = 50, **where: Unpack[ReadOptions]) -> ClientCall[Distribution]:
    """Return a histogram and quantiles of the scores; they do not depend on `ranking`."""
    query = {"buckets": buckets, **where}
    path = target("boards", check_board_id(board), "distribution", query=query)
    return ClientCall(method="GET", target=path, decode=_distribution)


# Players


def player(player: str) -> ClientCall[Profile | None]:
    """Return a player's profile; None for a player without one."""
    path = target("players", check_player(player))
    return ClientCall(method="GET", target=path, decode=_profile, when_absent=_none)


def set_player(
    player: str,
    *,
    name: str | None = None,
    avatar_url: str | None = None,
    country: str | None = None,
    attributes: Mapping[str, object] | None = None,
    key: str | None = None,
) -> ClientCall[Profile]:
    """Replace a player's profile."""
    checked = {} if attributes is None else check_attributes(attributes)
    profile = {"name": name, "avatar_url": avatar_url, "country": country, "attributes": checked}
    body = encode("profile", {field: value for field, value in profile.items() if value is not None})
    path = target("players", check_player(player))
    return ClientCall(method="PUT", target=path, decode=_profile, body=body, key=key_for(key))


def stored_friends(player: str) -> ClientCall[list[str]]:
    """Return the friends stored for a player."""
    path = target("players", check_player(player), "friends")
    return ClientCall(method="GET", target=path, decode=lambda body: _players(body).players)


def set_friends(player: str, friends: Sequence[str], *, key: str | None = None) -> ClientCall[list[str]]:
    """Replace a player's stored friends, and return them."""
    path = target("players", check_player(player), "friends")
    body = _body_of("friends", friends)
    return ClientCall(
        method="PUT", target=path, decode=lambda answer: _players(answer).players, body=body, key=key_for(key)
    )


def search(start: str, limit: int = 20) -> ClientCall[list[Profile]]:
    """Return players whose id or name begins with a text."""
    path = target("players", query={"search": start, "limit": limit})
    return ClientCall(method="GET", target=path, decode=lambda body: _profiles(body).players)


def history(board: str, player: str, limit: int = 100, *, before: int | None = None) -> ClientCall[list[PastEvent]]:
    """Return a player's own events on a board, the newest first; `before` is the sequence of the last one received."""
    path = ("boards", check_board_id(board), "players", check_player(player), "events")
    query = {"limit": limit, "before": before}
    return ClientCall(method="GET", target=target(*path, query=query), decode=lambda body: _events(body).events)


def audit(
    *,
    player: str | None = None,
    board: str | None = None,
    kind: str | None = None,
    sender: str | None = None,
    since: int | None = None,
    until: int | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> ClientCall[AuditPage]:
    """Return who did what, the newest first: by player, board, kind, sender and time of the commit, in ms.

    A page may hold fewer events than `limit`, or none, and go on: it is the last when `next` is None.
    """
    if cursor is not None:
        read_mark(cursor)
    query = {
        "player": None if player is None else check_player(player),
        "board": None if board is None else check_board_id(board),
        "kind": None if kind is None else check_kind(kind).value,
        "sender": None if sender is None else check_text("sender", sender, SENDER_BYTES_MAX),
        "from": since,
        "to": until,
        "limit": limit,
        "cursor": cursor,
    }
    names = {"from": "since", "to": "until"}
    return ClientCall(
        method="GET",
        target=target("audit", query=query),
        decode=_audit,
        rename_field=lambda field: names.get(field, field),
    )


def _body_of(field: str, ids: Sequence[str]) -> bytes:
    return encode(field, {"players": listed(field, ids)})


# The server


def ready() -> ClientCall[str | None]:
    """Return the position that reads see, None where reads are not public; raises Unavailable until it is ready."""
    return ClientCall(method="GET", target="/readyz", decode=lambda body: _ready(body).position)
