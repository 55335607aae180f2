"""What comes back of one attempt: an answer of whatever kind, or trouble on the way, told in our words."""

from __future__ import annotations

import ssl
from collections.abc import Mapping

import httpx
import msgspec


class Reply(msgspec.Struct, frozen=True):
    """An answer that arrived whole."""

    status: int
    headers: Mapping[str, str]  # names in any case
    body: bytes


class Trouble(msgspec.Struct, frozen=True):
    """Why there is no answer."""

    problem: str  # continues a sentence that begins with the server
    is_passing: bool = True  # whether another attempt may fare better
    is_unsent: bool = False  # the server has certainly not seen the request


def trouble_of(error: httpx.HTTPError | httpx.InvalidURL, timeout_s: float) -> Trouble:
    """Say in our words what the transport met."""
    if _is_untrusted(error):
        return Trouble(f"shows a certificate that does not hold ({error})", is_passing=False, is_unsent=True)
    known: tuple[tuple[type[Exception], Trouble], ...] = (
        (httpx.ConnectTimeout, Trouble(f"takes no connection within {timeout_s:g} s", is_unsent=True)),
        (httpx.PoolTimeout, Trouble(f"has all connections of this client in use for {timeout_s:g} s", is_unsent=True)),
        (httpx.TimeoutException, late(timeout_s)),
        (httpx.ConnectError, Trouble(f"cannot be reached ({error})", is_unsent=True)),
        (httpx.ProxyError, Trouble(f"cannot be reached by way of the proxy ({error})", is_unsent=True)),
        (httpx.NetworkError, Trouble("broke the connection off before its answer was whole")),
        (httpx.RemoteProtocolError, Trouble(f"gives no whole HTTP answer ({error})")),
    )
    unknown = Trouble(f"cannot be understood ({error})", is_passing=False)
    return next((trouble for kind, trouble in known if isinstance(error, kind)), unknown)


def late(timeout_s: float) -> Trouble:
    """Return the trouble of an answer that is not whole in time."""
    return Trouble(f"did not answer within {timeout_s:g} s")


def too_large(bytes_max: int) -> Trouble:
    """Return the trouble of an answer that goes on and on."""
    return Trouble(f"answers with more than {bytes_max} bytes", is_passing=False)


def _is_untrusted(error: BaseException) -> bool:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return True
        cause = cause.__cause__ or cause.__context__
    return False
