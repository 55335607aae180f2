from __future__ import annotations

import random
from itertools import islice, pairwise
from typing import Any

import msgspec
import pytest

from rankd.bench.load import Load, RequestKind, Spacing, check_load, read_address, read_mix
from rankd.bench.requests import Requests
from rankd.bench.schedule import instants, kinds
from rankd.errors import InvalidValue

LOAD = Load(address=read_address("http://127.0.0.1:8080"), board="arcade", token="t", rate=1_000, duration_s=2)


def changed(**values: Any) -> Load:
    return msgspec.structs.replace(LOAD, **values)


@pytest.mark.parametrize(
    "url", ["ftp://host", "127.0.0.1:8080", "http://", "http://host:99999", "http://a b", "http://host\r\nx: y"]
)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(InvalidValue, match="http://127"):
        read_address(url)


@pytest.mark.parametrize("url", ["http://user:secret@host", "http://user@host"])
def test_a_password_in_an_address_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        read_address(url)

    assert "secret" not in str(refused.value)


def test_ports_are_those_of_the_scheme() -> None:
    assert [read_address(url).port for url in ("http://a", "https://a", "http://[::1]:81")] == [80, 443, 81]
    assert read_address("http://[::1]:81/x/").host == "::1"


@pytest.mark.parametrize("text", ["", "rank", "rank=", "rank=x", "rank=-1", "rank=nan", "submit=1", "rank=1,rank=2"])
def test_a_mix_that_says_nothing_is_refused(text: str) -> None:
    with pytest.raises(InvalidValue, match="mix"):
        read_mix(text)


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("board", {"board": "Not a board"}),
        ("players", {"players": 0}),
        ("rate", {"rate": -1.0}),
        ("rate", {"rate": float("nan")}),
        ("writes", {"writes": 1.1}),
        ("connections", {"connections": 0}),
        ("connections", {"connections": 1_000_000}),
        ("duration", {"duration_s": 0}),
        ("prefix", {"prefix": "a/b"}),
        ("prefix", {"prefix": "%d"}),
        ("mix", {"mix": {RequestKind.RANK: 0.0}}),
        ("token", {"token": None}),
        ("token", {"token": "a\r\nb: c"}),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(field: str, values: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue) as refused:
        check_load(changed(**values))

    assert refused.value.field == field


def test_reads_need_no_credential() -> None:
    assert check_load(changed(writes=0.0, token=None)).token is None


def test_even_requests_are_due_at_even_distances() -> None:
    due = list(instants(changed(spacing=Spacing.EVEN), random.Random(1)))

    assert due == [number / 1_000 for number in range(2_000)]


def test_requests_of_many_people_come_at_the_rate_and_at_odd_distances() -> None:
    due = list(instants(changed(duration_s=20), random.Random(1)))
    distances = [after - before for before, after in pairwise(due)]

    assert due == sorted(due)
    assert due[-1] < 20
    assert len(due) == pytest.approx(20_000, rel=0.05)
    assert sum(distance > 0.001 for distance in distances) / len(distances) == pytest.approx(0.368, abs=0.03)


def test_the_same_seed_asks_at_the_same_instants() -> None:
    assert list(instants(LOAD, random.Random(5))) == list(instants(LOAD, random.Random(5)))


def test_kinds_come_in_the_shares_asked_for() -> None:
    load = changed(writes=0.25, mix={RequestKind.RANK: 2.0, RequestKind.TOP: 1.0, RequestKind.AROUND: 0.0})
    drawn = list(islice(kinds(load, random.Random(1)), 20_000))

    assert {kind: drawn.count(kind) / 20_000 for kind in set(drawn)} == pytest.approx(
        {RequestKind.SUBMIT: 0.25, RequestKind.RANK: 0.5, RequestKind.TOP: 0.25}, abs=0.02
    )


def test_writes_alone_need_no_reads() -> None:
    assert set(changed(writes=1.0, mix={}).weights()) == {RequestKind.SUBMIT}


def test_a_write_says_its_length_and_who_sends_it() -> None:
    load = changed(players=1, score_min=7, score_max=7, address=read_address("http://host:81/below"))
    sent = Requests(load, random.Random(1)).submit()
    head, _, body = sent.partition(b"\r\n\r\n")

    assert head.startswith(b"POST /below/v1/scores HTTP/1.1\r\nHost: host:81\r\n")
    assert b"Authorization: Bearer t\r\n" in head
    assert b"Idempotency-Key" not in head
    assert head.endswith(b"Content-Length: %d" % len(body))
    assert msgspec.json.decode(body) == {"board": "arcade", "player": "bench_00000000", "score": 7}


def test_each_write_has_a_key_of_its_own_if_asked() -> None:
    requests = Requests(changed(has_keys=True), random.Random(1))
    keys = {requests.submit().partition(b"Idempotency-Key: ")[2].partition(b"\r\n")[0] for _ in range(50)}

    assert len(keys) == 50
    assert all(key.startswith(b"bench-") for key in keys)


def test_reads_ask_about_players_of_the_run() -> None:
    requests = Requests(changed(players=3), random.Random(1))
    paths = {requests.rank().split(b" ")[1] for _ in range(50)}

    assert paths == {b"/v1/boards/arcade/players/bench_0000000%d" % number for number in range(3)}
    assert requests.around().split(b" ")[1].endswith(b"/around?above=5&below=5")
    assert requests.top().split(b" ")[1] == b"/v1/boards/arcade/top?limit=10"
