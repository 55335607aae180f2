"""What an error says of a long text: names are cut, lists end, and no half of a secret is left."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote_from_bytes

import msgspec
import pytest

from rankd.api.calls.bodies import Score, decode
from rankd.api.calls.scores import read_wait_ms
from rankd.api.http.caching import TAGS_BYTES_MAX, matches
from rankd.api.http.problems import closing_reason, problem_body, problem_response
from rankd.api.http.request import Request
from rankd.errors import InvalidValue
from rankd.shortening import NAME_CHARACTERS_MAX, shorten

from .timed_app import InProcess, in_process

SCORE = b'{"board":"arcade","player":"mallory","score":5}'
BATCH = b'{"events":[{"board":"timed","player":"bob","score":5},%s]}'


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcess]:
    with in_process(tmp_path_factory.mktemp("short") / "data") as running:
        seasons = [{"name": f"season-{n}", "start": n * 1_000, "end": n * 1_000 + 1_000} for n in range(1_000)]
        running.boards.define("arcade", writes="players", periods=seasons)
        running.boards.define("timed", decimals=2)
        yield running


def test_a_long_name_is_cut_and_the_remedy_is_still_said(app: InProcess) -> None:
    answer = app.ask("GET", "/v1/boards/arcade/top", query=b"limit_" + b"_" * 10_000)
    (refused,) = answer.problem["errors"]

    assert len(refused["field"]) == NAME_CHARACTERS_MAX
    assert refused["field"].endswith("\u2026")
    assert answer.problem["detail"].startswith(f"{refused['field']}: is no parameter of this call; ")


def test_a_list_of_names_is_cut(app: InProcess) -> None:
    for answer in (
        app.ask("GET", "/v1/boards/arcade/top", query=b"window=nothing"),
        app.ask("POST", "/v1/boards/arcade/reset", who="admin", body=b'{"window":"nothing"}'),
    ):
        assert answer.status == 404
        assert answer.problem["detail"].count("season-") == 19  # beside all_time
        assert "and 981 more" in answer.problem["detail"]


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("http://user:" + "hunter2" * 20, "hunter2"),
        ("x" * 60 + "?token=" + "hunter2" * 20, "hunter2"),
        ("Authorization: Bearer " + "hunter2" * 20, "hunter2"),
        ("x" * 40 + "9f86d081884c7d65" * 4, "9f86d081"),
        ("x" * 50 + " rs_" + "hunter2-" * 6, "hunter2"),
    ],
)
def test_no_half_of_a_secret_is_left_where_a_name_was_cut(app: InProcess, name: str, secret: str) -> None:
    for answer in (
        app.ask("GET", "/v1/boards/arcade/top", query=quote_from_bytes(name.encode()).encode()),
        app.ask("POST", "/v1/boards/arcade/ranks", body=msgspec.json.encode({name: 1})),
        app.ask("PUT", "/v1/boards/fresh", who="admin", body=msgspec.json.encode({"keep": {name: 1}})),
    ):
        assert answer.status == 422
        assert b"***" in answer.body
        assert secret.encode() not in answer.body


def test_a_length_of_more_digits_than_can_be_read_is_a_body_that_is_too_large(app: InProcess) -> None:
    answer = app.ask("POST", "/v1/scores", who="mallory", headers={"content-length": b"9" * 5_000}, body=SCORE)

    assert answer.status == 413


@pytest.mark.parametrize("key", [b"", b"match-1"], ids=["without a key", "with a key"])
def test_a_score_with_a_fraction_is_refused_with_the_integer_to_send(app: InProcess, key: bytes) -> None:
    score = b'{"board":"timed","player":"alice","score":1.25}'
    headers = {"idempotency-key": key} if key else {}
    first_answer = app.ask("POST", "/v1/scores", who="admin", headers=headers, body=score)
    second_answer = app.ask("POST", "/v1/scores/batch", who="admin", headers=headers, body=BATCH % score)

    assert "2 decimals, so send 125" in first_answer.problem["detail"]
    assert second_answer.problem["errors"][0]["field"] == "events[1].score"
    assert "2 decimals, so send 125" in second_answer.problem["detail"]


def test_an_interval_of_more_digits_than_can_be_read_is_refused(app: InProcess) -> None:
    answer = app.ask("GET", "/v1/stream", query=b"topic=top:arcade&interval_ms=000000500" + b"0" * 5_000)

    assert (answer.status, answer.problem["errors"][0]["field"]) == (422, "interval_ms")


def test_a_field_is_cut_wherever_an_error_is_shown() -> None:
    refused = InvalidValue("events[12]." + "x" * 300, "is not known here")
    cut = shorten(refused.field)
    public_message: dict[str, Any] = msgspec.json.decode(problem_response(refused).body)

    assert public_message["errors"] == [{"field": cut, "problem": "is not known here"}]
    assert public_message["detail"] == problem_body(refused)["detail"] == f"{cut}: is not known here"
    assert closing_reason(refused).startswith(f"{cut}: ")


def test_wishes_that_are_too_long_are_not_looked_at() -> None:
    tag = b'W/"1-2"'
    assert matches(b'"other", ' + tag, tag)
    assert not matches(b'"other", ' * TAGS_BYTES_MAX + tag, tag)
    for preference, wait_ms in ((b"respond-async, wait=1", 1_000), (b"respond-async, " * 100 + b"wait=1", None)):
        request = Request({b"prefer": preference}, nobody, "id")
        assert read_wait_ms(request) == wait_ms


async def nobody() -> Mapping[str, Any]:
    return {"type": "http.disconnect"}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"[1]", "body: must be object, got array; send a JSON object {…}"),
        (
            b'{"board":"a","player":"b","score":1e400}',
            "score: is out of range; send an integer between -9223372036854775808 and 9223372036854775807",
        ),
    ],
)
def test_a_refused_body_is_answered_with_what_to_send(body: bytes, message: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        decode(msgspec.json.Decoder(Score), body)

    assert str(refused.value) == message
