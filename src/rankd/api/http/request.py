"""One request and its answer, as handlers see them.

Paths are split before they are decoded, so a segment may be any player id.
"""

from __future__ import annotations

import re
from asyncio import current_task
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import unquote_to_bytes

from rankd.api.http.body_limits import UNCOUNTED_BYTES_MAX, HeldBody
from rankd.domain.fields import nearest
from rankd.errors import InvalidValue, MalformedRequest, TooLarge
from rankd.shortening import quote, shorten

if TYPE_CHECKING:
    from rankd.api.auth.identity import Identity
    from rankd.api.calls.call import Call, Cost
    from rankd.api.http.body_limits import BodyBudget, BodyTimeouts
    from rankd.api.live.streams import Stream
    from rankd.reads.reads import Reads

Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
Header = tuple[bytes, bytes]

QUERY_FIELDS_MAX = 32
QUERY_BYTES_MAX = 32 * 1024  # ten topics of 512 bytes or the positions of 1,024 partitions, %-escaped
PATH_BYTES_MAX = 8_192
LENGTH_DIGITS_MAX = 18  # of a body, as its header says
ESCAPE = ord("%")  # bytes are searched for a number in a tenth of the time that they are for bytes
_NOTHING: Mapping[str, str] = {}
_INTEGER = re.compile(r"-?[0-9]{1,20}", re.ASCII)
_ONCE = frozenset((b"authorization", b"content-type", b"idempotency-key", b"x-rankd-signature", b"x-rankd-timestamp"))
JSON = (b"content-type", b"application/json")
# On every answer, errors and 304s included: a browser must not guess another type, pass the address on, or show it in a
# frame. `<rankd-board>` is a script in another page and not a frame, so it works with all three.
EVERY_ANSWER: tuple[Header, ...] = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
)


class Disconnected(Exception):
    """The client left before its request was complete."""


class Request:
    """A request, its sender and its parameters. One is made for each request, so it is small."""

    __slots__ = (
        "address",
        "arguments",
        "body_held",
        "call",
        "headers",
        "id",
        "identity",
        "more_headers",
        "past",
        "query",
        "receive",
        "target",
    )

    def __init__(self, headers: dict[bytes, bytes], receive: Receive, request_id: str) -> None:
        """The other attributes are set on the way."""
        self.headers = headers
        self.receive = receive
        self.id = request_id
        self.call: Call | None = None
        self.arguments: list[str] = []  # the variable segments of the path
        self.query: Mapping[str, str] = _NOTHING
        self.target = 0  # a hash of path and query
        self.identity: Identity | None = None
        self.address = ""
        self.body_held: HeldBody | None = None  # released when the request ends
        self.more_headers: Sequence[Header] = ()  # for any answer
        self.past: Reads | None = None  # the boards at `as_of`; None: as they are

    @property
    def cost(self) -> Cost:
        """The threads of its call."""
        if self.call is None:
            raise AssertionError("only a routed request has a cost")
        return self.call.cost

    def check_query(self, known: tuple[str, ...]) -> None:
        """Refuse unknown parameters: a misspelled `window` would read another instance."""
        for name in self.query:
            if name not in known:
                raise InvalidValue(shorten(name), f"is no parameter of this call; {nearest(name, known)}")

    def integer(self, name: str, default: int) -> int:
        """Return a parameter that is an integer."""
        text = self.query.get(name)
        return default if text is None else read_integer_text(name, text)

    def needed_integer(self, name: str) -> int:
        """Return a required integer parameter."""
        text = self.query.get(name)
        if text is None:
            raise InvalidValue(name, "is missing; send an integer")
        return read_integer_text(name, text)

    async def body(self, bytes_max: int, timeouts: BodyTimeouts, budget: BodyBudget, holder: Hashable) -> bytes:
        """Return the body, within a limit of size, of time, and of all bodies' memory.

        It counts against the budget until `body_held` is released.
        """
        declared = self.headers.get(b"content-length")
        length = None
        if declared is not None and declared.isdigit():
            # Python parses no more than some thousand digits.
            length = int(declared) if len(declared) <= LENGTH_DIGITS_MAX else 10**LENGTH_DIGITS_MAX
            if length > bytes_max:
                raise TooLarge(f"body: has {length} bytes, and may have {bytes_max}; send less at a time")
        is_here = current_task(timeouts.loop) is None  # see eager.py: nothing is waited for
        if is_here and length is not None and length <= UNCOUNTED_BYTES_MAX:  # as most bodies come
            return _piece(await self.receive())
        self.body_held = HeldBody(timeouts, budget, holder)
        with self.body_held as held:
            body = bytearray()  # one growing buffer: the memory of many small pieces would not return to the system
            while True:
                message = await self.receive()
                piece = _piece(message)
                size = len(body) + len(piece)
                if size > bytes_max:
                    raise TooLarge(f"body: has more than the {bytes_max} bytes it may have; send less at a time")
                is_last = size == length or not message.get("more_body", False)
                if is_last and size <= UNCOUNTED_BYTES_MAX and not body:
                    return piece  # as most bodies come
                held.hold(piece)
                if is_last:
                    return bytes(body + piece) if body else piece
                body += piece


def _piece(message: Mapping[str, Any]) -> bytes:
    if message["type"] != "http.request":
        raise Disconnected
    piece: bytes = message.get("body", b"")
    return piece


class Response:
    """An answer."""

    __slots__ = ("body", "compressed", "headers", "status")

    def __init__(
        self, body: bytes, headers: list[Header], status: int = 200, *, compressed: bytes | None = None
    ) -> None:
        """The length is added when it is sent; `compressed` is the body by gzip, where it is available."""
        self.body = body
        self.compressed = compressed
        self.headers = headers
        self.status = status


def check_once(headers: Iterable[Header]) -> None:
    """Refuse duplicate headers that would be ambiguous."""
    names = [name for name, _ in headers if name in _ONCE]
    for name in names:
        if names.count(name) > 1:
            raise MalformedRequest(f"{name.decode()}: must be sent once")


class BodySource(Protocol):
    """A body that comes in pieces."""

    async def piece(self) -> bytes:
        """Return more of it, as soon as there is some; nothing at its end."""

    def close(self) -> None:
        """Take no more of it."""


class Forwarded(Response):
    """An answer of another worker, complete with every header."""

    __slots__ = ()


class RelayedResponse(Forwarded):
    """An answer of another worker that goes on."""

    __slots__ = ("source",)

    def __init__(self, source: BodySource, headers: list[Header], status: int) -> None:
        """`source` has the body, and is closed at the end."""
        super().__init__(b"", headers, status)
        self.source = source


class Streaming(Response):
    """An answer that a live connection continues."""

    __slots__ = ("stream",)

    def __init__(self, stream: Stream) -> None:
        """The stream has been admitted and watches its topics."""
        super().__init__(b"", [])
        self.stream = stream


def json_response(body: bytes, status: int = 200) -> Response:
    """Answer with JSON that must not be cached."""
    return Response(body, [JSON, (b"cache-control", b"no-store")], status)


def decode_segment(segment: bytes) -> str:
    """Decode one segment of a path."""
    if ESCAPE in segment:
        segment = unquote_to_bytes(segment)
    try:
        return segment.decode()
    except UnicodeDecodeError:
        raise InvalidValue("path", "must be %-escaped UTF-8") from None


def read_query(raw: bytes, repeated: tuple[str, ...] = ()) -> Mapping[str, str]:
    """Return the parameters of a query; repeated ones are joined by line feeds, where that is allowed."""
    if len(raw) > QUERY_BYTES_MAX:
        raise TooLarge(f"query: must be at most {QUERY_BYTES_MAX} bytes")
    try:
        text = raw.decode("ascii")
        if text.count("&") >= QUERY_FIELDS_MAX:
            raise InvalidValue("query", f"must have at most {QUERY_FIELDS_MAX} parameters")
        pairs = [part.partition("=")[::2] for part in text.split("&") if part]
        if "%" in text or "+" in text:
            pairs = [(_unescape(name), _unescape(value)) for name, value in pairs]
    except UnicodeDecodeError:
        raise InvalidValue("query", "must be %-escaped UTF-8") from None
    query = dict(pairs)
    if len(query) != len(pairs):
        names = [name for name, _ in pairs]
        for name in query:
            if names.count(name) > 1 and name not in repeated:
                raise InvalidValue(shorten(name), "must be sent once")
            query[name] = "\n".join(value for other, value in pairs if other == name)
    return query


def _unescape(text: str) -> str:
    return unquote_to_bytes(text.replace("+", " ")).decode()


def read_integer_text(field: str, text: str) -> int:
    """Parse an integer of ASCII digits."""
    if not _INTEGER.fullmatch(text):
        raise InvalidValue(field, f"must be an integer such as 10; got {quote(text)}")
    return int(text)


def not_json(problem: str) -> MalformedRequest:
    """Return the error for a body that is not JSON."""
    return MalformedRequest(f"body: {problem}")
