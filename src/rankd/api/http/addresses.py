"""The address of a request's client: the socket's peer, or the one that a trusted proxy forwards.

Any client can send any X-Forwarded-For. Each proxy appends its caller on the right, so the list is read from there as
long as the writer is trusted; addresses further left prove nothing.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable
from functools import lru_cache

from rankd.errors import InvalidValue

HOPS_MAX = 16  # proxies; a longer list is forged
ADDRESS_CHARACTERS_MAX = 64  # with brackets and port
CACHED_MAX = 4_096  # results
CACHED_BYTES_MAX = 256  # of a header whose result is cached

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_MAPPED = bytes(10) + b"\xff\xff"  # ::ffff:0:0/96, an IPv4 address on an IPv6 socket


class Addresses:
    """Determines the addresses of clients."""

    def __init__(self, trusted_proxies: Iterable[str]) -> None:
        """`trusted_proxies` are addresses and networks whose X-Forwarded-For is trusted."""
        self._trusted = [_network(text) for text in trusted_proxies]
        self._remembered = lru_cache(CACHED_MAX)(self._find)

    def of(self, peer: str, forwarded: bytes | None) -> str:
        """Return the client's address; `forwarded` is X-Forwarded-For, several joined by commas in order.

        Empty only where `peer` is: a socket without an address.
        """
        if not self._trusted or forwarded is None:
            return peer
        if len(forwarded) > CACHED_BYTES_MAX:
            return self._find(peer, forwarded)
        return self._remembered(peer, forwarded)

    def _find(self, peer: str, forwarded: bytes) -> str:
        client = _read(peer.partition("%")[0])
        if client is None or not self._trusts(client):
            return peer
        # Beyond so many hops the rest stays in one piece, which is not an address.
        for entry in reversed(forwarded.rsplit(b",", HOPS_MAX)):
            client = _read(entry.strip(b" \t").decode("latin-1"))
            if client is None:
                return peer
            if not self._trusts(client):
                break
        return str(client)  # the first untrusted one; if all are trusted, the furthest

    def is_proxy(self, peer: str) -> bool:
        """Tell whether a connection comes from a trusted proxy."""
        address = _read(peer) if self._trusted else None
        return address is not None and self._trusts(address)

    def _trusts(self, address: _Address) -> bool:
        return any(address in network for network in self._trusted)


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    try:
        return ipaddress.ip_network(text)
    except ValueError as problem:
        raise InvalidValue(
            "server.trusted_proxies", f'must be addresses or networks such as "10.0.0.0/8"; {problem}'
        ) from None


def _read(text: str) -> _Address | None:
    """Return an address, alone or with a port; None for other text."""
    if len(text) > ADDRESS_CHARACTERS_MAX or "%" in text:  # any text may follow a %
        return None
    if text.startswith("["):
        text, bracket, rest = text[1:].partition("]")
        if not bracket or not _is_port(rest) or ":" not in text:
            return None
    elif text.count(":") == 1:
        text, _, port = text.partition(":")
        if not _is_port(f":{port}"):
            return None
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def _is_port(text: str) -> bool:
    return not text or (text[0] == ":" and text[1:].isdecimal() and text.isascii() and len(text) <= 6)


def limited_as(address: str) -> str | bytes:
    """Return how limits count an address: itself, or the /64 of an IPv6 customer.

    >>> limited_as("203.0.113.9")
    '203.0.113.9'
    >>> limited_as("2001:db8::1") == limited_as("2001:db8::ffff")
    True
    >>> limited_as("::ffff:203.0.113.9")
    '203.0.113.9'
    """
    if ":" not in address:
        return address
    try:
        packed = socket.inet_pton(socket.AF_INET6, address.partition("%")[0])
    except (OSError, ValueError):  # not an address
        return address[:64]
    if packed.startswith(_MAPPED):
        return socket.inet_ntop(socket.AF_INET, packed[12:])
    return packed[:8]
