"""The options of a client, checked: the server's address, the credential, timeouts and retries."""

from __future__ import annotations

import ssl
from abc import ABC, abstractmethod
from importlib.metadata import version
from typing import TypedDict
from urllib.parse import urlsplit

import httpx
import msgspec

from rankd.client.call import secret_bytes
from rankd.client.retries import Retries
from rankd.errors import InvalidValue

KEEP_ALIVE_S = 30.0
ANSWER_BYTES_MAX = 64 * 1024 * 1024


class ClientConnection(msgspec.Struct, frozen=True, kw_only=True):
    """The options of every exchange."""

    url: str  # without a slash at its end
    timeout_s: float  # of one attempt
    retries: Retries
    signing_secret: bytes | None


class Transport(TypedDict):
    """The options of httpx, the same for both drivers."""

    headers: dict[str, str]
    timeout: float
    limits: httpx.Limits
    verify: bool | ssl.SSLContext


class ClientBase(ABC):
    """The constructor of both clients."""

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        timeout_s: float = 10.0,
        retries_max: int = 4,
        retry_total_s: float = 30.0,
        signing_secret: str | bytes | None = None,
        verify: bool | ssl.SSLContext = True,
        connections_max: int = 100,
    ) -> None:
        """`timeout_s` is for one attempt; no attempt begins later than `retry_total_s` after the first.

        `signing_secret` signs every score; `verify` is how a server's certificate is checked.
        """
        headers = {
            "Accept": "application/json, application/problem+json",
            "User-Agent": f"rankd-python/{version('rankd')}",
        }
        if token is not None:
            headers["Authorization"] = f"Bearer {_checked_token(token)}"
        for name, value, least in (("retries_max", retries_max, 0), ("connections_max", connections_max, 1)):
            if type(value) is not int or value < least:
                raise InvalidValue(name, f"must be an integer of at least {least}; got {value!r:.40}")
        for name, seconds, above in (("timeout_s", timeout_s, True), ("retry_total_s", retry_total_s, False)):
            _check_seconds(name, seconds, above)
        self._connection = ClientConnection(
            url=_checked_url(url),
            timeout_s=timeout_s,
            retries=Retries(retries_max=retries_max, total_s=retry_total_s),
            signing_secret=secret_bytes(signing_secret),
        )
        limits = httpx.Limits(
            max_connections=connections_max, max_keepalive_connections=connections_max, keepalive_expiry=KEEP_ALIVE_S
        )
        self._open({"headers": headers, "timeout": timeout_s, "limits": limits, "verify": verify})

    @abstractmethod
    def _open(self, transport: Transport) -> None:
        """Make the HTTP client."""


def _checked_url(url: object) -> str:
    if not isinstance(url, str):
        raise InvalidValue("url", f"must be text such as http://127.0.0.1:8080; got {type(url).__name__}")
    try:
        parts = urlsplit(url)
        is_valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        httpx.URL(url)
    except (ValueError, httpx.InvalidURL):
        is_valid = False
    if not is_valid:  # the message does not repeat it: it may contain a password
        raise InvalidValue("url", "must be the address of a server, such as http://127.0.0.1:8080")
    if parts.username is not None or parts.password is not None:
        raise InvalidValue("url", "must not hold a user or a password; give a token")
    if parts.query or parts.fragment:
        raise InvalidValue("url", "must end with the path prefix of the server; leave the rest out")
    return url.rstrip("/")


def _checked_token(token: object) -> str:
    # The message does not repeat the token, which is a secret.
    if not isinstance(token, str) or not token.isascii() or not token.isprintable() or not token or " " in token:
        raise InvalidValue("token", "must be an API key or a JSON Web Token, as text without spaces")
    return token


def _check_seconds(name: str, value: object, is_above_0: bool) -> None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < float("inf")
    if not is_number or (is_above_0 and value == 0):
        raise InvalidValue(name, f"must be a number of seconds{' above 0' if is_above_0 else ''}; got {value!r:.40}")
