"""What stands in a server's log, and what never does."""

from __future__ import annotations

import io
import itertools
import json
import logging
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.timing import BUSY_MACHINE

from rankd.api.logs import (
    Level,
    LogFormat,
    Which,
    log_request,
    request_id,
    set_up_logs,
)
from rankd.config.masking import TEXT_CHARACTERS_MAX, Mask, masking

KEY = "rk_7f3a_Zk9-x1Qp_Zk9x1QpZk9x1QpZk9x1QpZk9x1Qp"
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhbGljZSJ9.c2lnbmF0dXJlLWJ5dGVz"
SIGNATURE = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
SEEN_BY_TERMINALS = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


class Terminal(io.StringIO):
    """A stream that says somebody reads it."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def loggers_as_they_were() -> Iterator[None]:
    """Leave the process's loggers as they were found."""
    names = (None, "rankd")
    loggers = [logging.getLogger(name) for name in names]
    before = [(logger, logger.level, logger.propagate, list(logger.handlers)) for logger in loggers]
    yield
    for logger, level, propagate, handlers in before:
        logger.setLevel(level)
        logger.propagate = propagate
        logger.handlers[:] = handlers


def logs_to(
    stream: io.StringIO, shape: LogFormat = "json", level: Level = "info", mask: Mask | None = None
) -> logging.Logger:
    logging.getLogger().handlers.clear()  # pytest's own would raise what ours must bear
    set_up_logs(shape, level, mask, stream)
    return logging.getLogger("rankd")


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


# Lines


def test_a_line_of_json_holds_the_message_and_its_fields() -> None:
    stream = io.StringIO()
    logs_to(stream).info("%d boards", 3, extra={"fields": {"board": "arcade", "ms": 1.5, "shard": None, "ok": True}})

    (line,) = lines(stream)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line.pop("at"))
    assert line == {
        "level": "info",
        "logger": "rankd",
        "message": "3 boards",
        "board": "arcade",
        "ms": 1.5,
        "shard": None,
        "ok": True,
    }


def test_a_line_for_people_is_aligned() -> None:
    stream = io.StringIO()
    log = logs_to(stream, "text")
    log.info("serving", extra={"fields": {"port": 8080}})
    log.warning("slow", extra={"fields": {"route": "top of it", "why": "", "forged": 'x" ok=1'}})
    log.info("nothing more")

    first, second, third = stream.getvalue().splitlines()
    assert re.fullmatch(r"[\d-]{10} [\d:.]{12}  info     serving {37}  port=8080", first)
    assert second.endswith('  route="top of it"  why=""  forged="x\\" ok=1"')
    assert first.index("port=") == second.index("route=")
    assert third.endswith("info     nothing more")


def test_people_at_a_terminal_get_text_in_colours_and_programs_get_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    terminal, pipe, plain = Terminal(), io.StringIO(), Terminal()
    logs_to(terminal, "auto").error("disk full")
    logs_to(pipe, "auto").error("disk full")
    monkeypatch.setenv("NO_COLOR", "1")
    logs_to(plain, "auto").error("disk full")

    assert "\x1b[31merror   \x1b[0m disk full" in terminal.getvalue()
    assert lines(pipe)[0]["message"] == "disk full"
    assert "\x1b" not in plain.getvalue()


def test_a_failure_is_written_with_its_trace() -> None:
    stream, people = io.StringIO(), io.StringIO()
    shapes: list[tuple[io.StringIO, LogFormat]] = [(stream, "json"), (people, "text")]
    for written, shape in shapes:
        try:
            raise ValueError("first\nsecond")
        except ValueError:
            logs_to(written, shape).exception("a request failed")

    assert lines(stream)[0]["exception"].startswith("Traceback")
    assert lines(stream)[0]["exception"].endswith("ValueError: first\nsecond")
    _, *trace = people.getvalue().splitlines()
    assert all(line.startswith("    │ ") for line in trace)
    assert trace[-1] == "    │ second"


def test_levels_are_kept() -> None:
    stream = io.StringIO()
    log = logs_to(stream, level="warning")
    log.info("not this")
    log.warning("this")
    logging.getLogger("some.library").info("nor this")
    logging.getLogger("some.library").warning("but this")

    assert [line["message"] for line in lines(stream)] == ["this", "but this"]


def test_set_up_twice_it_writes_once() -> None:
    first, second = io.StringIO(), io.StringIO()
    logs_to(first)
    logs_to(second).info("once")

    assert first.getvalue() == ""
    assert len(lines(second)) == 1


def test_fields_cannot_pass_for_what_the_line_says_itself() -> None:
    stream = io.StringIO()
    logs_to(stream).info("true", extra={"fields": {"message": "false", "level": "error", "at": "never"}})

    assert lines(stream)[0]["message"] == "true"
    assert lines(stream)[0]["level"] == "info"


def test_a_record_that_cannot_be_written_shows_nothing_of_itself() -> None:
    class Broken:
        def __str__(self) -> str:
            raise RuntimeError(KEY)

    stream = io.StringIO()
    log = logs_to(stream)
    log.info("%d", KEY)
    log.info("%s", Broken())
    log.info("fine")

    assert KEY not in stream.getvalue()
    assert stream.getvalue().count("could not be written") == 2
    assert '"fine"' in stream.getvalue()


def test_a_stream_that_was_closed_hurts_nobody() -> None:
    stream = io.StringIO()
    log = logs_to(stream)
    stream.close()

    log.info("into the void")


# Secrets

SPOKEN = {
    "an API key": (f"no such key {KEY}", KEY),
    "an API key in a URL": (f"GET /v1/x?q=%3D{KEY}%26", KEY),
    "a short API key": ("no such key rk_abc", "rk_abc"),
    "a signing secret": ("made rs_Zk9x1QpZk9x1QpZk9x1Qp", "Zk9x1Qp"),
    "a JSON Web Token": (f"token {JWT} expired", "c2lnbmF0dXJl"),
    "its second part": (f"token {JWT} expired", "eyJzdWIi"),
    "a header": ("Authorization: Bearer abc.def", "abc"),
    "a small header": ("b'authorization', b'bearer  t0psecret'", "t0psecret"),
    "basic": ("Authorization: Basic dXNlcjpwYXNz", "dXNlcjpwYXNz"),
    "a signature": (f"X-Rankd-Signature: v1={SIGNATURE}", SIGNATURE[:32]),
    "a signature alone": (f"v1={SIGNATURE} differs", SIGNATURE[:32]),
    "a ticket": ("GET /v1/stream?topic=top:a&ticket=k3J9x&x=1", "k3J9x"),
    "a password": ("postgresql://rankd:hunter2@db.example/rankd", "hunter2"),
    "a password with an @": ("postgresql://rankd:hunt@er2@db.example/rankd", "er2"),
    "a password with a slash": ("postgresql://rankd:hunt/er2@db.example/rankd", "er2"),
    "a password without a user": ("rediss://:hunter2@cache:6379/0", "hunter2"),
    "a password in a query": ("kafka://broker?sasl_password=hunter2", "hunter2"),
    "JSON": ('{"token": "hunter2"}', "hunter2"),
    "Python": ("{'jwt_secret': 'hunter2'}", "hunter2"),
    "Python's bytes": ("{b'ticket': b'hunter2'}", "hunter2"),
    "what the configuration holds": ("it is s3cr3t-of-ours!", "s3cr3t-of-ours!"),
}


@pytest.mark.parametrize("shape", ["json", "text"])
@pytest.mark.parametrize(("text", "secret"), SPOKEN.values(), ids=SPOKEN)
def test_no_secret_is_written_wherever_it_is(shape: LogFormat, text: str, secret: str) -> None:
    stream = io.StringIO()
    log = logs_to(stream, shape, mask=masking(["s3cr3t-of-ours!"]))
    log.info(text.replace("%", "%%"))
    log.info("%s", text)
    log.info("field", extra={"fields": {"path": text, "raw": text.encode(), "many": [text]}})
    log.info("name", extra={"fields": {text: 1}})
    try:
        raise ValueError(text)
    except ValueError:
        log.exception("failed", stack_info=True)

    assert secret not in stream.getvalue()
    assert stream.getvalue().count("***") >= 6


@pytest.mark.parametrize("name", ["authorization", "token", "ticket", "X-Rankd-Signature", "admin_password", "api_key"])
def test_a_field_that_is_named_like_a_secret_is_one(name: str) -> None:
    stream = io.StringIO()
    logs_to(stream).info("x", extra={"fields": {name: "plain", "other": "seen"}})

    assert lines(stream)[0][name] == "***"
    assert lines(stream)[0]["other"] == "seen"


@pytest.mark.parametrize(
    "text",
    [
        "GET /v1/boards/arcade/players/alice 200",
        "token: must be given",
        "signature: is missing; sign it",
        "listening on http://127.0.0.1:8080/v1/boards/a/players/me@game.example",
        "mark_up and work_ns of shark_attack_in_the_bay",
        "events 12 to 42 of weekly:2026-W18, digest 9f86d081884c7d65",
        "the password is wrong",
    ],
)
def test_what_is_no_secret_stays_readable(text: str) -> None:
    assert masking()(text) == text


def test_a_mask_takes_the_longer_secret_first_and_leaves_short_words_alone() -> None:
    assert masking(["open", "open-sesame", "a"])("say open-sesame again") == "say *** again"


@given(st.text(max_size=300))
def test_masking_twice_changes_nothing_more(text: str) -> None:
    once = masking()(text)

    assert masking()(once) == once


@pytest.mark.timed
@pytest.mark.parametrize(
    "piece",
    ["a://:", "a.a-", "bearer ", "token=", "eyJ", "eyJabcdefg.", "rk_", "'token' : '", "://a", "0a", "token'", "\x00"],
)
def test_a_hostile_text_is_masked_in_time_that_grows_with_its_length_only(piece: str) -> None:
    stream = io.StringIO()
    log = logs_to(stream, "text")
    text = piece * (200_000 // len(piece))
    began = time.perf_counter()
    log.info("%s", text)

    assert time.perf_counter() - began < 2 * BUSY_MACHINE  # a square of it would be minutes
    assert len(stream.getvalue()) < 5 * TEXT_CHARACTERS_MAX


# Injection


@pytest.mark.parametrize("shape", ["json", "text"])
@given(text=st.text(st.characters(), max_size=60) | st.text(st.characters(categories=["Cc", "Cf", "Cs", "Zl", "Zp"])))
def test_whatever_is_logged_it_is_one_line_without_control_characters(shape: LogFormat, text: str) -> None:
    stream = io.StringIO()
    logs_to(stream, shape).info("%s", text, extra={"fields": {"path": text, text: text}})

    written = stream.getvalue()
    assert written.count("\n") == 1
    assert not SEEN_BY_TERMINALS.search(written)
    written.encode()


def test_a_forged_line_is_seen_to_be_text() -> None:
    stream = io.StringIO()
    logs_to(stream, "text").info("player %s", "bob\r\n2026-01-01 00:00:00.000  info     all is well\x1b[2J\u202e")

    assert stream.getvalue().endswith("bob\\r\\n2026-01-01 00:00:00.000  info     all is well\\x1b[2J\\u202e\n")


def test_a_forged_trace_stays_behind_its_bar() -> None:
    stream = io.StringIO()
    log = logs_to(stream, "text")
    try:
        raise ValueError("x\n2026-01-01 00:00:00.000  info     all is well" + "\nmore" * 10_000)
    except ValueError:
        log.exception("failed")

    _, *trace = stream.getvalue().splitlines()
    assert all(line.startswith("    │ ") for line in trace)
    assert len(trace) < 300


def test_strange_numbers_can_be_written() -> None:
    stream = io.StringIO()
    logs_to(stream).info("x", extra={"fields": {"large": 2**70, "not": float("nan"), "all": float("inf")}})

    assert lines(stream)[0]["large"] == str(2**70)
    assert lines(stream)[0]["not"] is None


# Requests


@pytest.mark.parametrize("sent", [b"a", b"3f8a-77.x_Y", b"x" * 64])
def test_a_sane_request_id_is_kept(sent: bytes) -> None:
    assert request_id(sent) == sent.decode()


@pytest.mark.parametrize(
    "sent", [None, b"", b"x" * 65, b"a b", b"a\n", b"a\r\nset-cookie: x", b"\xc3\xa4", b'"', b"<i>"]
)
def test_any_other_is_replaced_by_a_new_one(sent: bytes | None) -> None:
    assert re.fullmatch(r"[0-9a-hjkmnp-tv-z]{16}", request_id(sent))


def test_new_request_ids_differ() -> None:
    made = list(itertools.islice(map(request_id, itertools.repeat(None)), 5_000))

    assert len(set(made)) == 5_000
    assert len({identity[:8] for identity in made}) == 1


@pytest.mark.parametrize(
    ("which", "status", "seconds", "level"),
    [
        ("none", 500, 9.0, None),
        ("errors", 200, 0.1, None),
        ("errors", 404, 0.1, None),
        ("errors", 500, 0.1, "error"),
        ("errors", 503, 0.1, None),
        ("errors", 200, 1.0, "warning"),
        ("all", 200, 0.1, "info"),
        ("all", 422, 0.1, "info"),
    ],
)
def test_a_request_is_logged_when_it_is_worth_it(which: Which, status: int, seconds: float, level: str | None) -> None:
    stream = io.StringIO()
    logs_to(stream)
    log_request(
        which, request_id="r1", method="GET", path="/v1/boards", status=status, seconds=seconds, account="key:1"
    )

    assert [line["level"] for line in lines(stream)] == ([] if level is None else [level])


def test_a_request_s_line_says_who_what_and_how_long() -> None:
    stream = io.StringIO()
    logs_to(stream)
    asked = {"method": "GET", "path": "/v1/boards/" + "x" * 9_000, "request_id": "r1"}
    log_request("all", **asked, status=404, seconds=0.001234, account="key:1", code="board_unknown")

    (line,) = lines(stream)
    assert line["message"].startswith("GET /v1/boards/xxx")
    assert len(line["message"]) < 600
    assert (line["request_id"], line["status"], line["ms"]) == ("r1", 404, 1.23)
    assert (line["account"], line["code"]) == ("key:1", "board_unknown")
    assert "address" not in line
