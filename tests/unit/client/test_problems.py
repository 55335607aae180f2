"""Answers that are no success become the errors the library raises."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from typing import Any

import pytest

from rankd import errors
from rankd.client.problems import error_of
from rankd.client.replies import Reply
from rankd.errors import (
    Conflict,
    DefinitionConflict,
    Forbidden,
    InvalidValue,
    MalformedBatch,
    MalformedRequest,
    MethodUnknown,
    NotFound,
    RankdError,
    RateExceeded,
    Refused,
    Unauthenticated,
    Unavailable,
)

CLASSES = [item for item in vars(errors).values() if inspect.isclass(item) and issubclass(item, RankdError)]


def said(
    status: int, code: str, detail: str = "it failed", headers: Mapping[str, str] | None = None, **more: Any
) -> Reply:
    body = {"type": "/docs", "title": "T", "status": status, "detail": detail, "code": code, **more}
    return Reply(status, headers or {}, json.dumps(body).encode())


@pytest.mark.parametrize("kind", CLASSES)
def test_every_error_comes_back_as_itself(kind: type[RankdError]) -> None:
    assert type(error_of(said(400, kind.code))) is kind


@pytest.mark.parametrize("kind", [InvalidValue, DefinitionConflict])
def test_a_refused_field_is_named_as_it_was(kind: type[InvalidValue]) -> None:
    original = kind("events[3].score", "must be less: 9 at most")
    fields = [{"field": original.field, "problem": original.problem}]
    for reply in (said(422, kind.code, str(original), errors=fields), said(422, kind.code, str(original))):
        error = error_of(reply)

        assert isinstance(error, kind)
        assert (error.field, error.problem, str(error)) == (original.field, original.problem, str(original))


def test_a_detail_without_a_field_is_kept_whole() -> None:
    assert str(error_of(said(422, "invalid_value", "no"))) == "request: no"
    assert str(error_of(said(422, "malformed_batch", "row 7: no"))) == "row 7: no"
    assert isinstance(error_of(said(422, "malformed_batch")), MalformedBatch)


def test_what_headers_say_comes_back() -> None:
    limited = error_of(said(429, "rate_exceeded", headers={"retry-after": "3", "ratelimit-limit": "10"}))
    other = error_of(said(405, "method_unknown", headers={"allow": "GET, PUT"}))

    assert isinstance(limited, RateExceeded)
    assert (limited.retry_after_s, limited.limit) == (3, 10)
    assert isinstance(other, MethodUnknown)
    assert other.allowed == ("GET", "PUT")


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, MalformedRequest),
        (401, Unauthenticated),
        (403, Forbidden),
        (404, NotFound),
        (409, Conflict),
        (418, Refused),
        (422, Refused),
        (429, RateExceeded),
        (500, Unavailable),
        (502, Unavailable),
        (503, Unavailable),
        (302, Unavailable),
    ],
)
def test_an_unknown_code_is_read_by_its_status(status: int, kind: type[RankdError]) -> None:
    error = error_of(said(status, "of_the_future", "the flux is low"))

    assert type(error) is kind
    assert str(status) in str(error)
    assert "of_the_future" in str(error)
    assert "the flux is low" in str(error)


@pytest.mark.parametrize("body", [b"", b"<html>Not here</html>", b"[]", b"\xff\xfe", b'{"code": 7}', b"[" * 100_000])
def test_an_answer_of_something_else_is_read_by_its_status(body: bytes) -> None:
    error = error_of(Reply(404, {}, body))

    assert type(error) is NotFound
    assert len(str(error)) < 300
