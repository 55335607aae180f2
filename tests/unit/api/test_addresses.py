"""Whose address a request comes from."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankd.api.http.addresses import HOPS_MAX, Addresses, limited_as
from rankd.errors import InvalidValue

PROXY = "10.0.0.1"
CLIENT = "198.51.100.7"


@pytest.fixture
def addresses() -> Addresses:
    """A server behind proxies in two networks."""
    return Addresses(["10.0.0.0/8", "2001:db8:aa::/48"])


def test_it_is_the_peer_where_no_proxy_is_trusted() -> None:
    assert Addresses(()).of(CLIENT, b"203.0.113.9") == CLIENT
    assert Addresses(()).of("", b"203.0.113.9") == ""


def test_a_peer_that_is_not_trusted_cannot_speak_for_others(addresses: Addresses) -> None:
    assert addresses.of(CLIENT, b"203.0.113.9") == CLIENT
    assert addresses.of(CLIENT, None) == CLIENT
    assert addresses.of("", b"203.0.113.9") == ""


def test_a_trusted_proxy_says_whom_it_speaks_for(addresses: Addresses) -> None:
    assert addresses.of(PROXY, b"198.51.100.7") == CLIENT
    assert addresses.of("2001:db8:aa::1", b"198.51.100.7") == CLIENT
    assert addresses.of("::ffff:10.0.0.1", b"198.51.100.7") == CLIENT
    assert addresses.of(PROXY, None) == PROXY


@pytest.mark.parametrize(
    "forwarded",
    [
        b"203.0.113.9, 198.51.100.7",
        b"10.1.1.1, 198.51.100.7",
        b"garbage, 198.51.100.7",
        b"198.51.100.7, 10.2.2.2, 10.3.3.3",
        b"203.0.113.9,198.51.100.7,\t2001:db8:aa::2 ",
        b"198.51.100.7:4711",
        b"::ffff:198.51.100.7",
        b"[::ffff:198.51.100.7]:443, 10.0.0.9:80",
    ],
)
def test_it_is_the_last_one_that_is_not_a_trusted_proxy(addresses: Addresses, forwarded: bytes) -> None:
    assert addresses.of(PROXY, forwarded) == CLIENT


def test_among_trusted_ones_only_it_is_the_one_furthest_away(addresses: Addresses) -> None:
    assert addresses.of(PROXY, b"10.9.9.9, 10.8.8.8") == "10.9.9.9"


@pytest.mark.parametrize(
    "forwarded",
    [
        b"",
        b",",
        b"unknown",
        b"198.51.100.7, ",
        b"198.51.100.7, 10.2.2.2, nonsense",
        b"198.51.100.999",
        b"198.51.100.7:99999999",
        b"198.51.100.7:\xb2",
        b"[198.51.100.7]",
        b"[2001:db8::1",
        b"[2001:db8::1]x",
        b"fe80::1%\x1b[31m",
        b"fe80::1%eth0",
        b"\xff\xfe",
        b"1" * 60_000,
        b":" * 60_000,
        b"198.51.100.7\r\nx: y",
        b"198.51.100.7," + b"10.0.0.2," * 5_000 + b"10.0.0.3",
    ],
    ids=repr,
)
def test_garbage_says_nothing_about_anybody(addresses: Addresses, forwarded: bytes) -> None:
    assert addresses.of(PROXY, forwarded) == PROXY


def test_a_chain_may_be_as_long_as_chains_are(addresses: Addresses) -> None:
    assert addresses.of(PROXY, b"198.51.100.7" + b", 10.0.0.2" * HOPS_MAX) == CLIENT
    assert addresses.of(PROXY, b"203.0.113.1, 198.51.100.7" + b", 10.0.0.2" * HOPS_MAX) == PROXY


def test_long_headers_are_not_remembered(addresses: Addresses) -> None:
    for number in range(100):
        assert addresses.of(PROXY, b"x" * 10_000 + b", 203.0.113.%d" % number) == f"203.0.113.{number}"

    assert addresses._remembered.cache_info().currsize == 0


@given(st.binary(max_size=80), st.sampled_from([PROXY, CLIENT, "", "nonsense", "fe80::1%eth0"]))
def test_whatever_is_sent_it_is_an_address_or_the_peer(forwarded: bytes, peer: str) -> None:
    address = Addresses(["10.0.0.0/8", "fe80::/10"]).of(peer, forwarded)

    assert address == peer or address.isascii()
    assert address == peer or set(address) <= set("0123456789abcdef.:")


@pytest.mark.parametrize("network", ["10.0.0.1/8", "proxy", "", "10.0.0.0/33"])
def test_a_network_that_is_none_is_refused(network: str) -> None:
    with pytest.raises(InvalidValue, match=r"server\.trusted_proxies"):
        Addresses([network])


# What they are limited as


def test_an_address_of_version_four_is_limited_by_itself() -> None:
    assert limited_as("203.0.113.9") == "203.0.113.9"
    assert limited_as("::ffff:203.0.113.9") == "203.0.113.9"
    assert limited_as("::FFFF:cb00:7109") == "203.0.113.9"


def test_an_address_of_version_six_is_limited_by_its_first_half() -> None:
    assert limited_as("2001:db8::1") == limited_as("2001:DB8:0::ffff:1:2:3") == limited_as("2001:db8::1%eth0")
    assert limited_as("2001:db8::1") != limited_as("2001:db8:0:1::1")
    assert limited_as("::1") != limited_as("1::1")


@given(st.text(max_size=200))
def test_what_is_no_address_is_limited_all_the_same(text: str) -> None:
    assert len(limited_as(f":{text}")) <= 64
