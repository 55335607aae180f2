"""The outcome of one attempt: a reply, or why there is none."""

from __future__ import annotations

import ssl
from collections.abc import Mapping

import httpx
import msgspec


class Reply(msgspec.Struct, frozen=True):
    """A complete answer."""

    status: int
    headers: Mapping[str, str]  # names in any case
    body: bytes


class ExchangeFailure(msgspec.Struct, frozen=True):
    """Why there is no answer."""

    problem: str  # continues a sentence that begins with the server
    is_passing: bool = True  # whether another attempt may succeed
    is_unsent: bool = False  # the server has certainly not received the request


def failure_of(error: httpx.HTTPError | httpx.InvalidURL, timeout_s: float) -> ExchangeFailure:
    """Describe an error of the transport."""
    if _is_untrusted(error):
        return ExchangeFailure(f"has a certificate that is not valid ({error})", is_passing=False, is_unsent=True)
    known: tuple[tuple[type[Exception], ExchangeFailure], ...] = (
        (httpx.ConnectTimeout, ExchangeFailure(f"accepts no connection within {timeout_s:g} s", is_unsent=True)),
        (
            httpx.PoolTimeout,
            ExchangeFailure(f"has all connections of this client in use for {timeout_s:g} s", is_unsent=True),
        ),
        (httpx.TimeoutException, late(timeout_s)),
        (httpx.ConnectError, ExchangeFailure(f"cannot be reached ({error})", is_unsent=True)),
        (httpx.ProxyError, ExchangeFailure(f"cannot be reached through the proxy ({error})", is_unsent=True)),
        (httpx.NetworkError, ExchangeFailure("closed the connection before its answer was complete")),
        (httpx.RemoteProtocolError, ExchangeFailure(f"sent an incomplete HTTP answer ({error})")),
    )
    unknown = ExchangeFailure(f"sent an answer that is not HTTP ({error})", is_passing=False)
    return next((failure for kind, failure in known if isinstance(error, kind)), unknown)


def late(timeout_s: float) -> ExchangeFailure:
    """Return the failure of an answer that is not complete in time."""
    return ExchangeFailure(f"did not answer within {timeout_s:g} s")


def too_large(bytes_max: int) -> ExchangeFailure:
    """Return the failure of an answer that is too large."""
    return ExchangeFailure(f"sent more than {bytes_max} bytes", is_passing=False)


def _is_untrusted(error: BaseException) -> bool:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return True
        cause = cause.__cause__ or cause.__context__
    return False
