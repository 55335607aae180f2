"""CORS, compression and what bodies are."""

from __future__ import annotations

import gzip
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankd.api.http.negotiation import COMPRESS_BYTES_MIN, Compression, Cors, media_type
from rankd.errors import Forbidden, InvalidValue, MediaUnsupported

GAME = b"https://game.example"
LONG = b'{"rank":1,"player":"alice","score":976},' * 100
SHORT = b"{}"


def named(headers: Iterable[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    pairs = list(headers)
    assert len(dict(pairs)) == len(pairs), "a header comes twice"
    return dict(pairs)


# CORS


def test_without_origins_no_page_may_read() -> None:
    cors = Cors(())

    assert named(cors.headers(GAME)) == named(cors.headers(None)) == {}
    assert b"access-control-allow-origin" not in named(cors.preflight({b"origin": GAME}).headers)


def test_a_page_of_a_listed_origin_may_read_and_others_may_not() -> None:
    cors = Cors(["https://game.example", "http://localhost:3000"])

    assert named(cors.headers(GAME))[b"access-control-allow-origin"] == GAME
    assert named(cors.headers(b"http://localhost:3000"))[b"access-control-allow-origin"] == b"http://localhost:3000"
    for origin in (b"https://evil.example", b"null", b"", b"*", GAME + b".evil.example", b"http://game.example"):
        assert b"access-control-allow-origin" not in named(cors.headers(origin))


def test_caches_learn_that_answers_differ_by_origin() -> None:
    cors = Cors(["https://game.example"])

    for origin in (GAME, b"https://evil.example", None):
        assert named(cors.headers(origin))[b"vary"] == b"origin"
    assert b"origin" in named(cors.preflight({}).headers)[b"vary"]


def test_any_page_may_read_where_all_origins_are_allowed_but_not_with_a_token() -> None:
    cors = Cors(["*"])
    preflight = named(cors.preflight({b"origin": b"https://anybody.example"}).headers)

    assert named(cors.headers(b"https://anybody.example"))[b"access-control-allow-origin"] == b"*"
    assert named(cors.headers(None))[b"access-control-allow-origin"] == b"*"
    assert preflight[b"access-control-allow-origin"] == b"*"
    assert b"authorization" not in preflight[b"access-control-allow-headers"]
    assert b"PUT" not in preflight[b"access-control-allow-methods"]


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        (None, b"ranks.example"),
        (b"https://ranks.example", b"ranks.example"),
        (b"http://127.0.0.1:8080", b"127.0.0.1:8080"),
        (b"https://Ranks.example", b"ranks.EXAMPLE:443"),
        (b"http://[::1]:8080", b"[::1]:8080"),
        (b"http://ranks.example", b"ranks.example:80"),
        (GAME, b"ranks.example"),
    ],
)
def test_a_socket_is_opened_by_programs_own_pages_and_those_that_are_listed(origin: bytes | None, host: bytes) -> None:
    Cors(["https://game.example"]).check_page(origin, host)


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        (b"https://evil.example", b"ranks.example"),
        (b"https://ranks.example.evil.example", b"ranks.example"),
        (b"https://evil.example:443", b"ranks.example"),
        (b"http://127.0.0.1:3000", b"127.0.0.1:8080"),
        (b"https://ranks.example:8443", b"ranks.example"),
        (b"http://ranks.example:443", b"ranks.example"),
        (b"null", b"ranks.example"),
        (b"null", b"null"),
        (b"", b""),
        (b"file://ranks.example", b"ranks.example"),
        (b"https://ranks.example", None),
        (b"https://ranks.example/", b"ranks.example"),
    ],
)
def test_a_page_of_another_origin_opens_no_socket(origin: bytes, host: bytes | None) -> None:
    for cors in (Cors([]), Cors(["https://game.example"])):
        with pytest.raises(Forbidden, match=r"name the origin in server\.cors_origins"):
            cors.check_page(origin, host)
    Cors(["*"]).check_page(origin, host)


def test_a_page_of_a_listed_origin_may_send_a_player_s_score() -> None:
    answer = Cors(["https://game.example"]).preflight({b"origin": GAME, b"access-control-request-method": b"POST"})
    headers = named(answer.headers)

    assert (answer.status, answer.body) == (204, b"")
    assert headers[b"access-control-allow-origin"] == GAME
    assert {b"authorization", b"idempotency-key", b"content-type"} <= set(
        headers[b"access-control-allow-headers"].split(b", ")
    )
    assert b"POST" in headers[b"access-control-allow-methods"]
    assert int(headers[b"access-control-max-age"]) > 0


@pytest.mark.parametrize("origins", [(), ("*",), ("https://game.example",)])
@given(origin=st.binary(max_size=64) | st.sampled_from([GAME, b"null", b"*"]))
def test_no_answer_allows_cookies_or_repeats_what_is_not_listed(origins: tuple[str, ...], origin: bytes) -> None:
    cors = Cors(origins)
    for headers in (cors.headers(origin), cors.preflight({b"origin": origin}).headers):
        answer_headers = named(headers)
        assert b"access-control-allow-credentials" not in answer_headers
        assert answer_headers.get(b"access-control-allow-origin", b"*") in (b"*", GAME)


@pytest.mark.parametrize(
    "origins",
    [
        ["*", "https://game.example"],
        ["null"],
        ["game.example"],
        ["https://game.example/"],
        ["https://Game.example"],
        ["https://*.example"],
        ["https://game.example\r\nx: y"],
        ["https://game.example\n"],
        [""],
    ],
)
def test_origins_that_would_never_match_or_too_often_are_refused(origins: list[str]) -> None:
    with pytest.raises(InvalidValue, match=r"server\.cors_origins"):
        Cors(origins)


# Compression


def coding(accepted: bytes, body: bytes = LONG) -> bytes | None:
    compressed, used = Compression().compress(accepted, body)
    assert (gzip.decompress(compressed) if used else compressed) == body
    return used


@pytest.mark.parametrize(
    "accepted",
    [
        b"gzip",
        b"GZip",
        b"x-gzip",
        b"gzip, deflate, br, zstd",
        b"br;q=1.0, gzip;q=0.8, *;q=0.1",
        b"gzip;q=0.001",
        b"gzip ; q=0.5",
        b"*",
        b"*;q=0.5, identity;q=0.2",
        b"gzip, identity",
        b"identity;q=0.5, gzip;q=1.0",
        b"identity;q=0, gzip",
        b",gzip,",
        b"deflate;q=nonsense, gzip",
    ],
)
def test_a_long_answer_is_compressed_for_those_who_take_it(accepted: bytes) -> None:
    assert coding(accepted) == b"gzip"


@pytest.mark.parametrize(
    "accepted",
    [
        b"",
        b"identity",
        b"br, zstd, deflate",
        b"gzip;q=0",
        b"gzip;q=0.000, *",
        b"*;q=0",
        b"*;q=0, br",
        b"gzip;q=0.5, identity",
        b"gzip;q=0.5, identity;q=0.501",
        b"gzip;q=nonsense",
        b"gzip;q=2",
        b"gzip;q=-1",
        b"gzip;q=0.0001",
        b"gzip;q=nan",
        b"gzip;q=inf",
        b"gzip;q=1;q=1",
        b"gzip;q=\xb2",
        b"gzipped",
        b"identity;q=0",  # nothing is left: better as it is than not at all
        b"gzip," * 20_000,
    ],
)
def test_it_goes_as_it_is_to_all_others(accepted: bytes) -> None:
    assert coding(accepted) is None


def test_a_short_answer_is_compressed_only_for_those_who_take_nothing_else() -> None:
    assert coding(b"gzip", b"x" * (COMPRESS_BYTES_MIN - 1)) is None
    assert coding(b"gzip", b"x" * COMPRESS_BYTES_MIN) == b"gzip"
    assert coding(b"gzip, identity;q=0", SHORT) == b"gzip"
    assert coding(b"gzip, *;q=0", SHORT) == b"gzip"
    assert coding(b"gzip, *;q=0, identity", SHORT) is None


def test_the_same_answer_is_compressed_to_the_same_bytes() -> None:
    first, _ = Compression().compress(b"gzip", LONG)
    second, _ = Compression().compress(b"gzip", LONG)

    assert first == second
    assert len(first) < len(LONG) / 5


@given(st.binary(max_size=600), st.binary(max_size=3_000))
def test_whatever_is_accepted_the_body_arrives(accepted: bytes, body: bytes) -> None:
    coding(accepted, body)


# What a body is


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        (b"application/json", "application/json"),
        (b"application/json; charset=utf-8", "application/json"),
        (b'APPLICATION/Json;charset="UTF-8"', "application/json"),
        (b"application/json;charset=utf8; version=1", "application/json"),
        (b" application/x-ndjson ", "application/x-ndjson"),
        (b"application/msgpack", "application/msgpack"),
        (b"application/x-msgpack", "application/msgpack"),
        (b"application/vnd.msgpack", "application/msgpack"),
        (b"text/plain", "text/plain"),
        (b"", ""),
        (b"\xff/\xff", "ÿ/ÿ"),
        (b"application/json, text/plain", "application/json, text/plain"),
    ],
)
def test_a_body_is_what_it_says(sent: bytes, expected: str) -> None:
    assert media_type(sent) == expected


@pytest.mark.parametrize(
    "sent",
    [
        b"application/json; charset=latin-1",
        b"application/json; charset=utf-16",
        b"application/json; charset=",
        b"application/json; charset=utf-8; charset=utf-7",
        b'application/json; charset="utf-8',
        b"application/json" + b" " * 60_000,
    ],
)
def test_a_body_in_another_alphabet_is_refused(sent: bytes) -> None:
    with pytest.raises(MediaUnsupported):
        media_type(sent)


@given(st.binary(max_size=700))
def test_any_other_content_type_is_read_or_refused(sent: bytes) -> None:
    try:
        assert media_type(sent).islower() or not any(character.isalpha() for character in media_type(sent))
    except MediaUnsupported:
        assert len(sent) > 512 or b"charset" in sent.lower()
