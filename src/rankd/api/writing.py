"""Scores come in: one, or many at once."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from time import monotonic

import msgspec

from rankd.api import bodies
from rankd.api.answers import Waiting
from rankd.api.exchange import Request, Response, json_response
from rankd.api.identity import Identity, require_identity, require_service
from rankd.api.negotiation import JSON, MSGPACK, NDJSON, check_media
from rankd.api.service import Service, encode
from rankd.domain.board import Writes
from rankd.domain.position import parse_positions
from rankd.errors import Forbidden, InvalidValue, MalformedRequest, RankdError, RanksUnavailable, TooLarge, Unavailable
from rankd.intake.results import Accepted, Batched, Submitted
from rankd.intake.scores import ScoreTask
from rankd.intake.sender import Sender, check_key
from rankd.parts import NEW_WAIT_MS, RANKED, Before, Remote

SCORES = "scores:write"
ADMIN = "boards:admin"
LIGHT_BYTES_MAX = 16 * 1024  # a larger batch is decoded beside the event loop
WAIT_S_MAX = 10  # for a rank
WAIT_DIGITS_MAX = 9
BATCH_MEDIA = (JSON, NDJSON, MSGPACK)

Answer = Callable[[], Submitted | None]
_log = logging.getLogger("rankd")
_score = msgspec.json.Decoder(bodies.Score)
_batch = msgspec.json.Decoder(bodies.Batch)
_lines = msgspec.json.Decoder(bodies.Score)
_packed = msgspec.msgpack.Decoder(bodies.Batch)


async def submit(service: Service, request: Request) -> Response:
    """Count one score."""
    body = await service.body(request)
    check_media(request, (JSON,))
    sent = bodies.decode(_score, body)
    identity = submitter(service, request, (sent,), body)
    task = service.boards.prepare_score(sent, sender_of(service, request, identity))
    if service.boards.remote is not None:
        return await _submit_remotely(service, service.boards.remote, request, task)
    return json_response(encode(await service.commit(task)))


async def _submit_remotely(service: Service, waits: Remote, request: Request, task: ScoreTask) -> Response:
    """Count one score that another process ranks: answered when it is durable, or if asked to wait, ranked."""
    wait_ms = read_wait_ms(request)
    asked_s = monotonic()
    before = None if wait_ms is None else await _standing_before(service, waits, task, wait_ms)
    accepted = await service.commit(task)
    if not isinstance(accepted, Accepted):
        raise AssertionError("what others rank is accepted first")
    service.wrote(task)
    if wait_ms is not None and (before is not None or accepted.repeated):
        left_ms = max(wait_ms - round((monotonic() - asked_s) * 1_000), 0)
        ranked = await _ranked(service, accepted, task.board_id, left_ms, lambda: waits.ranked(task, accepted, before))
        if ranked is not None:
            return json_response(encode(ranked))
    return json_response(encode(Waiting(accepted.position, repeated=accepted.repeated)), 202)


async def _standing_before(service: Service, waits: Remote, task: ScoreTask, wait_ms: int) -> Before | None:
    try:
        try:
            return await service.reader.read(lambda: waits.standing_before(task))
        except RanksUnavailable:  # a board that was defined a moment ago
            if not await service.positions.wait(RANKED, task.board_id, min(wait_ms, NEW_WAIT_MS)):
                return None
        return await service.reader.read(lambda: waits.standing_before(task))
    except Unavailable:  # too much is being read: a score is taken all the same, and answered without a rank
        return None


async def _ranked(service: Service, accepted: Accepted, board: str, wait_ms: int, answer: Answer) -> Submitted | None:
    """Wait until a score is ranked. It is durable, so that nothing which goes wrong here is an error of the request."""
    try:
        if not await service.positions.wait(parse_positions(accepted.position), board, wait_ms):
            return None
        return await service.reader.read(answer)
    except RankdError as problem:
        _log.debug("a score is durable, and its rank cannot be told: %s", problem)
        return None


def read_wait_ms(request: Request) -> int | None:
    """Return how long the sender wants to wait for a rank (`Prefer: wait=1`, in seconds); None for not at all."""
    for preference in request.headers.get(b"prefer", b"").split(b","):
        name, _, value = preference.partition(b";")[0].partition(b"=")
        seconds = value.strip(b' "')
        if name.strip().lower() == b"wait" and seconds.isdigit():
            # More digits than this are more seconds than anybody waits, and more than Python reads.
            return (WAIT_S_MAX if len(seconds) > WAIT_DIGITS_MAX else min(int(seconds), WAIT_S_MAX)) * 1_000
    return None


async def submit_batch(service: Service, request: Request) -> Response:
    """Count many scores, all or none."""
    media = check_media(request, BATCH_MEDIA)
    limits = service.config.limits
    body = await service.body(request, limits.batch_bytes_max)
    imported = read_imported(request)
    sender = sender_of(service, request, request.identity, is_import=imported)

    def prepare() -> ScoreTask:
        events = read_events(media, body)
        if len(events) > limits.batch_events_max:
            raise TooLarge(f"events: must be at most {limits.batch_events_max}; got {len(events)}: send them in parts")
        identity = submitter(service, request, events, body)
        if imported:
            require_service(identity, ADMIN)
        return service.boards.prepare_events(events, sender)

    identity = require_identity(request.identity)  # before anything is decoded for them
    task = prepare() if len(body) <= LIGHT_BYTES_MAX else await service.in_thread(prepare, request.cost)
    if not identity.is_service:
        service.count_scores(identity, request.address, task.events)
    answer = await service.commit(task)
    if isinstance(answer, Accepted):
        service.wrote(task)
        answer = Batched(answer.position, answer.count, answer.repeated)
    return json_response(encode(answer))


def read_events(media: str, body: bytes) -> Sequence[bodies.Score]:
    """Return the scores of a batch; a bad one is named by its index."""
    if media == JSON:
        return bodies.decode(_batch, body).events
    if media == MSGPACK:
        return bodies.decode(_packed, body).events
    events = []
    for index, line in enumerate(body.split(b"\n")):
        if line.strip():
            try:
                events.append(bodies.decode(_lines, line))
            except InvalidValue as problem:
                raise InvalidValue(f"events[{index}].{problem.field}", problem.problem) from None
            except MalformedRequest as problem:
                raise MalformedRequest(f"events[{index}], on line {index + 1}: {problem}") from None
    return events


def read_imported(request: Request) -> bool:
    """Tell whether an administrator imports: instants may go back as far as windows are open."""
    text = request.query.get("imported", "false")
    if text not in ("true", "false"):
        raise InvalidValue("imported", f"must be true or false; got {text!r:.40}")
    return text == "true"


def submitter(service: Service, request: Request, events: Sequence[bodies.Score], body: bytes) -> Identity:
    """Return who submits, when they may submit all of this; a player's own token says who the player is."""
    identity = require_identity(request.identity)
    if not identity.is_service:
        for index, event in enumerate(events):
            _check_player(service, identity, event, index)
    elif SCORES not in identity.scopes:
        require_service(identity, SCORES)
    for board in {event.board for event in events}:
        signing = service.boards.signing(board)
        if signing is not None:
            service.signatures.check(
                signing,
                timestamp=request.headers.get(b"x-rankd-timestamp"),
                signature=request.headers.get(b"x-rankd-signature"),
                key=request.headers.get(b"idempotency-key"),
                body=body,
            )
    return identity


def _check_player(service: Service, identity: Identity, event: bodies.Score, index: int) -> None:
    if event.player is None:
        event.player = identity.player
    if event.player != identity.player:
        raise Forbidden(f"player: this credential acts for one player, and event {index} names another")
    if event.at is not None or event.attributes is not None:
        raise Forbidden("at, attributes: a player's own credential may not send them; a service may")
    if service.boards.board(event.board).writes is not Writes.PLAYERS:
        raise Forbidden(f"board: {event.board} takes scores from services only")


def sender_of(service: Service, request: Request, identity: Identity | None, *, is_import: bool = False) -> Sender:
    """Return who sends a write, from where, and under which key."""
    key = request.headers.get(b"idempotency-key")
    return Sender(
        name="nobody" if identity is None else identity.name,
        account="nobody" if identity is None else identity.account,
        key=None if key is None else check_key(key.decode("latin-1")),
        origin=request.address if service.config.server.record_origin else None,
        imported=is_import,
    )
