"""Submissions of scores: one, or a batch."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from io import BytesIO
from time import monotonic

import msgspec

from rankd.api.auth.identity import Identity, require_identity, require_service
from rankd.api.auth.signing import signing_account
from rankd.api.calls import bodies
from rankd.api.calls.answers import AcceptedScore
from rankd.api.http.negotiation import HEADER_BYTES_MAX, JSON, MSGPACK, NDJSON, check_media
from rankd.api.http.request import Request, Response, json_response
from rankd.api.service import Service, encode
from rankd.backend import NEW_WAIT_MS, RANKED, AnswersLater, Before
from rankd.domain.board import Writes
from rankd.domain.position import parse_positions
from rankd.errors import Forbidden, InvalidValue, MalformedRequest, RankdError, RanksUnavailable, TooLarge, Unavailable
from rankd.intake.results import Accepted, Batched, Submitted
from rankd.intake.scores import ScoreTask
from rankd.intake.sender import Sender, check_key
from rankd.ledger.origin import RequestOrigin, readable_user_agent
from rankd.shortening import quote

SCORES = "scores:write"
ADMIN = "boards:admin"
LIGHT_BYTES_MAX = 16 * 1024  # a larger body is decoded in a thread
WAIT_S_MAX = 10  # for a rank
WAIT_DIGITS_MAX = 9
LINES_PER_EVENT_MAX = 2  # lines may be empty
BATCH_MEDIA = (JSON, NDJSON, MSGPACK)

_log = logging.getLogger("rankd")
_score = msgspec.json.Decoder(bodies.Score)
_packed_score = msgspec.msgpack.Decoder(bodies.Score)
_batch = msgspec.json.Decoder(bodies.RawBatch)
_packed_batch = msgspec.msgpack.Decoder(bodies.RawBatch)


async def submit(service: Service, request: Request) -> Response:
    """Submit one score."""
    body = await service.body(request)
    check_media(request, (JSON,))

    def prepare() -> ScoreTask:
        submission = Submission(service, request, body)
        sent = bodies.decode_object(_score, body)
        submission.check(sent)
        submission.check_signature()
        return service.boards.prepare_score(sent, submission.sender())

    run = service.here_or_in_thread if len(body) <= LIGHT_BYTES_MAX else service.in_thread
    task = await run(prepare, request.cost)
    if delay_s := service.write_delay_s(request.identity):
        await asyncio.sleep(delay_s)
    if service.boards.later is not None:
        return await _submit_early(service, service.boards.later, request, task)
    answer = await service.commit(task)
    if isinstance(answer, Accepted):  # durable, and not ranked in time
        return json_response(encode(AcceptedScore(answer.position, repeated=answer.repeated)), 202)
    return json_response(encode(answer))


async def _submit_early(service: Service, later: AnswersLater, request: Request, task: ScoreTask) -> Response:
    """Submit one score that is ranked later; answer when it is durable, with `Prefer: wait` when it is ranked."""
    wait_ms = read_wait_ms(request)
    asked_s = monotonic()
    before = None if wait_ms is None else await _standing_before(service, later, task, wait_ms)
    accepted = await service.commit(task)
    if not isinstance(accepted, Accepted):
        raise AssertionError("a score that is ranked later is accepted first")
    service.wrote(task)
    if wait_ms is not None and (before is not None or accepted.repeated):
        left_ms = max(wait_ms - round((monotonic() - asked_s) * 1_000), 0)
        ranked = await _ranked(service, accepted, task.board_id, left_ms, lambda: later.ranked(task, accepted, before))
        if ranked is not None:
            return json_response(encode(ranked))
    return json_response(encode(AcceptedScore(accepted.position, repeated=accepted.repeated)), 202)


async def _standing_before(service: Service, later: AnswersLater, task: ScoreTask, wait_ms: int) -> Before | None:
    try:
        try:
            return await service.read_rank(lambda: later.standing_before(task))
        except RanksUnavailable:  # a board that was defined a moment ago
            if not await service.wait_ranked(RANKED, task.board_id, min(wait_ms, NEW_WAIT_MS)):
                return None
        return await service.read_rank(lambda: later.standing_before(task))
    except Unavailable:  # the readers are overloaded: the score is committed, and answered without a rank
        return None


async def _ranked(
    service: Service, accepted: Accepted, board: str, wait_ms: int, answer: Callable[[], Submitted | None]
) -> Submitted | None:
    """Wait until a score is ranked, and answer it. The score is durable: a failure here does not fail the request."""
    try:
        if not await service.wait_ranked(parse_positions(accepted.position), board, wait_ms):
            return None
        return await service.read_rank(answer)
    except RankdError as problem:
        _log.debug("a score is durable, but its rank cannot be read: %s", problem)
        return None


def read_wait_ms(request: Request) -> int | None:
    """Return how long the sender wants to wait for a rank (`Prefer: wait=1`, in seconds); None for not at all."""
    preferences = request.headers.get(b"prefer", b"")
    if len(preferences) > HEADER_BYTES_MAX:
        return None
    for preference in preferences.split(b","):
        name, _, value = preference.partition(b";")[0].partition(b"=")
        seconds = value.strip(b' "')
        if name.strip().lower() == b"wait" and seconds.isdigit():
            # Python does not parse integers of any length.
            return (WAIT_S_MAX if len(seconds) > WAIT_DIGITS_MAX else min(int(seconds), WAIT_S_MAX)) * 1_000
    return None


async def submit_batch(service: Service, request: Request) -> Response:
    """Submit many scores, all or none."""
    media = check_media(request, BATCH_MEDIA)
    limits = service.config.limits
    body = await service.body(request, limits.batch_bytes_max)
    imported = read_imported(request)

    identity = require_identity(request.identity)  # before the body is decoded
    if imported:
        require_service(identity, ADMIN)

    def prepare() -> ScoreTask:
        events = read_events(media, body, limits.batch_events_max)
        submission = Submission(service, request, body, is_batch=True, is_import=imported)
        task = service.boards.prepare_events(submission.checked(events), submission.sender())
        if submission.signing is not None:  # known once all boards are
            for part in task.parts:
                part.sender = submission.sender()
        return task

    run = service.here_or_in_thread if len(body) <= LIGHT_BYTES_MAX else service.in_thread
    task = await run(prepare, request.cost)
    if not identity.is_service:
        service.count_scores(identity, request.address, task.events)
    if delay_s := service.write_delay_s(identity, task.events):
        await asyncio.sleep(delay_s)
    answer = await service.commit(task)
    if isinstance(answer, Accepted):
        service.wrote(task)
        answer = Batched(answer.position, answer.count, answer.repeated)
    return json_response(encode(answer))


def read_events(media: str, body: bytes, events_max: int) -> Iterator[bodies.Score]:
    """Decode the scores of a batch one by one; an error names the index of its score."""
    sent: Iterable[tuple[int, bodies.Raw]]
    if media == NDJSON:
        if body.count(b"\n") > LINES_PER_EVENT_MAX * events_max:
            raise TooLarge(f"events: must be at most {events_max}, with few empty lines; send them in parts")
        sent = ((index, line) for index, line in enumerate(BytesIO(body)) if line.strip())
    else:
        listed = bodies.decode(_packed_batch if media == MSGPACK else _batch, body).events
        if len(listed) > events_max:
            raise TooLarge(f"events: must be at most {events_max}; got {len(listed)}: send them in parts")
        sent = enumerate(listed)
    decoder = _packed_score if media == MSGPACK else _score
    for count, (index, raw) in enumerate(sent):
        if count == events_max:
            raise TooLarge(f"events: must be at most {events_max}; send them in parts")
        try:
            event = bodies.decode_object(decoder, raw)
        except InvalidValue as problem:
            inner = "" if problem.field == "body" else f".{problem.field}"
            raise InvalidValue(f"events[{index}]{inner}", problem.problem) from None
        except MalformedRequest as problem:
            line = f", on line {index + 1}" if media == NDJSON else ""
            raise MalformedRequest(f"events[{index}]{line}: {problem}") from None
        yield event


def read_imported(request: Request) -> bool:
    """Return whether an administrator imports: then `at` may go back as far as windows are open."""
    text = request.query.get("imported", "false")
    if text not in ("true", "false"):
        raise InvalidValue("imported", f"must be true or false; got {quote(text)}")
    return text == "true"


class Submission:
    """Checks the scores of one request: the sender's rights, and the signature where a board requires one.

    A signature covers the body only, so a signed body must name the player: an intermediary could add it otherwise.
    """

    def __init__(
        self, service: Service, request: Request, body: bytes, *, is_batch: bool = False, is_import: bool = False
    ) -> None:
        """Refuse a sender that may not submit scores at all."""
        self._service = service
        self._request = request
        self._body = body
        self._is_batch = is_batch
        self._is_import = is_import
        self._identity = require_identity(request.identity)
        if self._identity.is_service:
            require_service(self._identity, SCORES)
        self._keys: dict[str, str | None] = {}  # by board: the signing key that it requires
        self.signing: str | None = None  # the only one required by the boards so far

    def checked(self, events: Iterable[bodies.Score]) -> Iterator[bodies.Score]:
        """Yield events after checking each; after the last one, check the signature of the body."""
        for index, event in enumerate(events):
            self.check(event, index)
            yield event
        self.check_signature()

    def check(self, event: bodies.Score, index: int = 0) -> None:
        """Check that the sender may submit an event; with a player's own token, `player` may be left out."""
        if event.board not in self._keys:
            self._note_key(event.board)
        if self.signing is not None and event.player is None and self._keys[event.board] is not None:
            raise InvalidValue(
                f"events[{index}].player" if self._is_batch else "player",
                f"must be given on {event.board}, whose submissions are signed: "
                "write the player into the body, then sign it",
            )
        if self._identity.player is not None:
            _check_player(self._service, self._identity, event, index)

    def sender(self) -> Sender:
        """Return the sender, with the signing key of the events checked so far."""
        return sender_of(self._service, self._request, self._identity, is_import=self._is_import, signing=self.signing)

    def _note_key(self, board: str) -> None:
        signing = self._keys[board] = self._service.boards.signing(board)
        if signing is None or signing == self.signing:
            return
        if self.signing is not None:
            first = next(name for name, key in self._keys.items() if key is not None)
            raise InvalidValue(
                "events",
                f"must be for boards with one signing key, and {first} names {self.signing}, {board} {signing}; "
                "send them in separate requests, each signed with its own key",
            )
        self.signing = signing

    def check_signature(self) -> None:
        """Check the signature of the body, where the boards of the events checked so far require one."""
        if self.signing is not None:
            headers = self._request.headers
            self._service.signatures.check(
                self.signing,
                timestamp=headers.get(b"x-rankd-timestamp"),
                signature=headers.get(b"x-rankd-signature"),
                key=headers.get(b"idempotency-key"),
                body=self._body,
            )


def _check_player(service: Service, identity: Identity, event: bodies.Score, index: int) -> None:
    if event.player is None:
        event.player = identity.player
    if event.player != identity.player:
        raise Forbidden(f"player: this credential acts for one player, and event {index} names another")
    if event.at is not None or event.attributes is not None:
        raise Forbidden("at, attributes: a player's own credential may not send them; a service may")
    if service.boards.board(event.board).writes is not Writes.PLAYERS:
        raise Forbidden(f"board: {event.board} takes scores from services only")


def sender_of(
    service: Service,
    request: Request,
    identity: Identity | None,
    *,
    is_import: bool = False,
    signing: str | None = None,
) -> Sender:
    """Return the sender of a write, with its origin and idempotency key; `signing` names the key that signed it."""
    key = request.headers.get(b"idempotency-key")
    account = "nobody" if identity is None else identity.account
    return Sender(
        name="nobody" if identity is None else identity.name,
        account=account if signing is None else signing_account(signing),
        key=None if key is None else check_key(key.decode("latin-1")),
        origin=_origin(request) if service.config.server.record_origin else None,
        imported=is_import,
        signing=signing,
        is_local=False,
    )


def _origin(request: Request) -> RequestOrigin:
    return RequestOrigin(request.address, readable_user_agent(request.headers.get(b"user-agent")), request.id)
