"""Errors that come back from a server: the problem details of an answer become the error the library would raise."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

import msgspec

from rankd import errors
from rankd.client.replies import Reply
from rankd.client.retries import read_retry_after
from rankd.errors import RankdError

SHOWN_CHARACTERS_MAX = 200


class FieldProblem(msgspec.Struct, frozen=True):
    """What is wrong with one field."""

    field: str = ""
    problem: str = ""


class Problem(msgspec.Struct, frozen=True):
    """RFC 9457 problem details, as far as they are there."""

    title: str = ""
    detail: str = ""
    code: str = ""
    errors: list[FieldProblem] = []


def _tree(root: type[RankdError]) -> Iterator[type[RankdError]]:
    yield root
    for branch in root.__subclasses__():
        yield from _tree(branch)


BY_CODE = {error.code: error for error in _tree(RankdError) if error.__module__ == errors.__name__}
# Of answers whose code is not known here: from a newer server, or from something between it and us.
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

_decode = msgspec.json.Decoder(Problem).decode


def error_of(reply: Reply) -> RankdError:
    """Return the error that an answer which is no success stands for."""
    try:
        problem = _decode(reply.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        problem = Problem()
    kind = BY_CODE.get(problem.code)
    if kind is not None:
        return _made(kind, problem.detail or problem.title or problem.code, problem.errors, reply)
    said = problem.detail or problem.title or reply.body[:SHOWN_CHARACTERS_MAX].decode(errors="replace")
    named = f" ({problem.code})" if problem.code else ""
    detail = f"the server answers {reply.status}{named}: {said.strip() or 'nothing'}"
    return _made(BY_STATUS.get(reply.status) or _family(reply.status), detail, problem.errors, reply)


def _family(status: int) -> type[RankdError]:
    return errors.Refused if 400 <= status < 500 else errors.Unavailable


def _made(kind: type[RankdError], detail: str, fields: list[FieldProblem], reply: Reply) -> RankdError:
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
    given = reply.headers.get("ratelimit-limit", "").partition(",")[0].strip()
    return int(given) if given.isascii() and given.isdigit() else 0
