"""Turn the problem details of an answer into the error that the library would raise."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

import msgspec

from rankd import errors
from rankd.client.replies import Reply
from rankd.client.retries import read_retry_after
from rankd.errors import RankdError

SHOWN_CHARACTERS_MAX = 200


class ReceivedFieldProblem(msgspec.Struct, frozen=True):
    """The problem of one field."""

    field: str = ""
    problem: str = ""


class ReceivedProblem(msgspec.Struct, frozen=True):
    """RFC 9457 problem details; every member is optional."""

    title: str = ""
    detail: str = ""
    code: str = ""
    errors: list[ReceivedFieldProblem] = []


def _tree(root: type[RankdError]) -> Iterator[type[RankdError]]:
    yield root
    for branch in root.__subclasses__():
        yield from _tree(branch)


BY_CODE = {error.code: error for error in _tree(RankdError) if error.__module__ == errors.__name__}
# For unknown codes: from a newer server, or from a proxy.
BY_STATUS: dict[int, type[RankdError]] = {
    400: errors.MalformedRequest,
    401: errors.Unauthenticated,
    403: errors.Forbidden,
    404: errors.NotFound,
    405: errors.MethodUnknown,
    409: errors.Conflict,
    413: errors.TooLarge,
    415: errors.MediaUnsupported,
    429: errors.RateExceeded,
}

_decode = msgspec.json.Decoder(ReceivedProblem).decode


def error_of(reply: Reply) -> RankdError:
    """Return the error of an answer that is not a success."""
    try:
        problem = _decode(reply.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        problem = ReceivedProblem()
    kind = BY_CODE.get(problem.code)
    if kind is not None:
        return _make(kind, problem.detail or problem.title or problem.code, problem.errors, reply)
    text = problem.detail or problem.title or reply.body[:SHOWN_CHARACTERS_MAX].decode(errors="replace")
    code = f" ({problem.code})" if problem.code else ""
    detail = f"the server answers {reply.status}{code}: {text.strip() or 'nothing'}"
    return _make(BY_STATUS.get(reply.status) or _family(reply.status), detail, problem.errors, reply)


def _family(status: int) -> type[RankdError]:
    return errors.Refused if 400 <= status < 500 else errors.Unavailable


def _make(kind: type[RankdError], detail: str, fields: list[ReceivedFieldProblem], reply: Reply) -> RankdError:
    if issubclass(kind, errors.InvalidValue | errors.DefinitionConflict):
        if fields:
            return kind(fields[0].field, fields[0].problem)
        field, colon, problem = detail.partition(": ")
        return kind(field, problem) if colon else kind("request", detail)
    if issubclass(kind, errors.MalformedBatch):
        return kind(None, detail)
    if issubclass(kind, errors.RateExceeded):
        return kind(detail, _limit(reply), ceil(read_retry_after(reply.headers.get("retry-after")) or 1))
    if issubclass(kind, errors.MethodUnknown):
        allowed = reply.headers.get("allow", "").split(",")
        return kind(detail, tuple(method.strip() for method in allowed if method.strip()))
    return kind(detail)


def _limit(reply: Reply) -> int:
    limit = reply.headers.get("ratelimit-limit", "").partition(",")[0].strip()
    return int(limit) if limit.isascii() and limit.isdigit() else 0
