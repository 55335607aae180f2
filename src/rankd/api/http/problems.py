"""Errors as RFC 9457 problem details. The HTTP status of every error is decided here."""

from __future__ import annotations

import msgspec

from rankd import errors
from rankd.api.auth.rates import refused_headers
from rankd.api.http.request import Header, Response
from rankd.config.masking import masking
from rankd.errors import RankdError
from rankd.shortening import shorten

PROBLEM = (b"content-type", b"application/problem+json")
RETRY_AFTER_S = 1  # for unavailable parts
REASON_BYTES_MAX = 123  # of a close frame

# The first matching class decides.
STATUSES: tuple[tuple[type[RankdError], int], ...] = (
    (errors.MalformedRequest, 400),
    (errors.Unauthenticated, 401),
    (errors.Forbidden, 403),
    (errors.MethodUnknown, 405),
    (errors.NotFound, 404),
    (errors.Conflict, 409),
    (errors.TooLarge, 413),
    (errors.MediaUnsupported, 415),
    (errors.RateExceeded, 429),
    (errors.Refused, 422),
    (errors.Unavailable, 503),
    (errors.EngineBroken, 503),
    (errors.LedgerUnreadable, 503),
    (errors.RanksUnusable, 503),
    (errors.ArchiveUnusable, 503),
)
TITLES = {
    400: "The request cannot be read",
    401: "A credential is needed",
    403: "Not allowed",
    404: "Not found",
    405: "Method not allowed",
    408: "The request took too long",
    409: "It contradicts what is there",
    413: "Too large",
    415: "The kind of body is not read here",
    417: "The expectation is not met",
    422: "A value is refused",
    426: "Another version of WebSocket is needed",
    429: "Too many requests",
    431: "The head of the request is too large",
    500: "A fault of this server",
    501: "Not implemented",
    503: "Not available now",
    505: "Another version of HTTP is needed",
}


class FieldProblem(msgspec.Struct, frozen=True):
    """What is wrong with one field."""

    field: str
    problem: str


class Problem(msgspec.Struct, frozen=True, omit_defaults=True):
    """RFC 9457 problem details."""

    type: str  # a link to the documentation of the code
    title: str
    status: int
    detail: str
    code: str
    errors: list[FieldProblem] = []
    request_id: str = ""
    position: str | msgspec.UnsetType = msgspec.UNSET  # of `player_absent`: the position of the ranks
    as_of: int | msgspec.UnsetType = msgspec.UNSET
    stale: bool | msgspec.UnsetType = msgspec.UNSET


_mask = masking()
_encode = msgspec.json.Encoder().encode


def status_of(error: RankdError) -> int:
    """Return the HTTP status of an error."""
    if isinstance(error, errors.Behind) and error.retry_after_s is not None:
        return 429  # a write, which the sender is to slow down
    for kind, status in STATUSES:
        if isinstance(error, kind):
            return status
    return 500


def problem_response(error: RankdError, request_id: str = "") -> Response:
    """Answer with an error."""
    status = status_of(error)
    fields = []
    if isinstance(error, errors.InvalidValue | errors.DefinitionConflict):
        fields = [FieldProblem(_mask(shorten(error.field)), _mask(error.problem))]
    headers: list[Header] = []
    if isinstance(error, errors.MethodUnknown):
        headers.append((b"allow", ", ".join(error.allowed).encode()))
    elif isinstance(error, errors.RateExceeded):
        headers += [(b"retry-after", str(error.retry_after_s).encode()), *refused_headers(error)]
    elif isinstance(error, errors.Behind) and error.retry_after_s is not None:
        headers.append((b"retry-after", str(error.retry_after_s).encode()))
    elif status == 503:
        headers.append((b"retry-after", str(RETRY_AFTER_S).encode()))
    elif status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    freshness = error.freshness if isinstance(error, errors.PlayerAbsent) else None
    return made_response(
        status,
        detail_of(error),
        error.code,
        fields=fields,
        headers=headers,
        request_id=request_id,
        freshness=freshness,
    )


def detail_of(error: RankdError) -> str:
    """Return an error's message with secrets masked: a client may send a key in the wrong place."""
    if isinstance(error, errors.InvalidValue | errors.DefinitionConflict):
        return _mask(f"{shorten(error.field)}: {error.problem}")
    return _mask(error.public_message)


def problem_body(error: RankdError) -> dict[str, object]:
    """Return an error for a live connection."""
    return {"status": status_of(error), "code": error.code, "detail": detail_of(error)}


def closing_reason(error: RankdError) -> str:
    """Return the close reason of a WebSocket connection that ends with an error."""
    return detail_of(error).encode(errors="replace")[:REASON_BYTES_MAX].decode(errors="ignore")


def made_response(
    status: int,
    detail: str,
    code: str,
    *,
    fields: list[FieldProblem] | None = None,
    headers: list[Header] | None = None,
    request_id: str = "",
    freshness: errors.Freshness | None = None,
) -> Response:
    """Answer with problem details that contain no secrets."""
    problem = Problem(f"/docs#{code}", TITLES[status], status, detail, code, fields or [], request_id)
    if freshness is not None:
        problem = msgspec.structs.replace(problem, **freshness._asdict())
    return Response(_encode(problem), [PROBLEM, (b"cache-control", b"no-store"), *(headers or [])], status)
