"""WebSocket frames (RFC 6455): decode a client's bytes into messages, and encode messages.

Memory is bounded: a frame is refused by its declared length, a message by the sum of its fragments. The number of
frames is bounded too: empty ones cost no memory, but time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

MESSAGE_BYTES_MAX = 4_096
CONTROL_BYTES_MAX = 125
FRAMES_PER_S_MAX = 100  # of one connection
FRAMES_BURST_MAX = 200

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0x0, 0x1, 0x2, 0x8, 0x9, 0xA
_CONTROL = 0x8
_FIN, _RESERVED, _OPCODE = 0x80, 0x70, 0x0F
_MASKED, _LENGTH = 0x80, 0x7F
_LENGTH_16, _LENGTH_64 = 126, 127
_MASK_BYTES = 4
_NORMAL = 1000
NO_CODE = 1005  # a close frame without a code; never sent


class FrameError(Exception):
    """A client violated the protocol or a limit: the connection ends with this code."""

    def __init__(self, code: int, reason: str) -> None:
        """`reason` goes into the close frame."""
        super().__init__(reason)
        self.code = code
        self.reason = reason


class Incoming(NamedTuple):
    """A whole message, or a control frame."""

    opcode: int
    payload: bytes


class FrameReader:
    """Decodes a client's bytes into messages; holds at most one unfinished frame and one unfinished message."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        """`now_s` is monotonic."""
        self._now_s = now_s
        self._buffer = bytearray()
        self._message = bytearray()
        self._opcode: int | None = None  # of an unfinished fragmented message
        self._frames_left = float(FRAMES_BURST_MAX)
        self._counted_at_s = now_s()

    @property
    def held_bytes(self) -> int:
        """How many bytes of the client are held."""
        return len(self._buffer) + len(self._message)

    def feed(self, data: bytes) -> Iterator[Incoming]:
        """Yield the messages that these bytes complete; raises FrameError to end the connection."""
        buffer = self._buffer
        buffer += data
        offset = 0
        try:
            while True:
                frame = self._frame_at(offset)
                if frame is None:
                    return
                fin, opcode, begins, ends = frame
                payload = _unmask(bytes(buffer[begins:ends]), bytes(buffer[begins - _MASK_BYTES : begins]))
                offset = ends
                self._count_frame()
                incoming = self._incoming(fin, opcode, payload)
                if incoming is not None:
                    yield incoming
        finally:
            del buffer[:offset]

    def _frame_at(self, offset: int) -> tuple[bool, int, int, int] | None:
        """Return fin, opcode, begin and end of the payload of the frame at an offset; None until it is complete."""
        buffer = self._buffer
        available = len(buffer) - offset
        if available < 2:
            return None
        first, second = buffer[offset], buffer[offset + 1]
        opcode, fin = first & _OPCODE, bool(first & _FIN)
        if first & _RESERVED:
            raise FrameError(1002, "no extension was negotiated, so the reserved bits must be 0")
        if not second & _MASKED:
            raise FrameError(1002, "a client must mask its frames")
        length, header_bytes = second & _LENGTH, 2
        if opcode & _CONTROL:
            if opcode not in (CLOSE, PING, PONG):
                raise FrameError(1002, "the opcode is unknown")
            if not fin or length > CONTROL_BYTES_MAX:
                raise FrameError(1002, f"a control frame is whole and has at most {CONTROL_BYTES_MAX} bytes")
        elif opcode not in (CONTINUATION, TEXT, BINARY):
            raise FrameError(1002, "the opcode is unknown")
        if length in (_LENGTH_16, _LENGTH_64):
            length_bytes = 2 if length == _LENGTH_16 else 8
            header_bytes += length_bytes
            if available < header_bytes:
                return None
            length = int.from_bytes(buffer[offset + 2 : offset + header_bytes], "big")
        held = 0 if opcode & _CONTROL else len(self._message)
        if held + length > MESSAGE_BYTES_MAX:
            raise FrameError(1009, f"a message may have {MESSAGE_BYTES_MAX} bytes")
        begins = offset + header_bytes + _MASK_BYTES
        return (fin, opcode, begins, begins + length) if len(buffer) >= begins + length else None

    def _incoming(self, fin: bool, opcode: int, payload: bytes) -> Incoming | None:
        if opcode & _CONTROL:
            return Incoming(opcode, payload)
        if opcode == CONTINUATION:
            if self._opcode is None:
                raise FrameError(1002, "a continuation needs a message that has begun")
            opcode = self._opcode
        elif self._opcode is not None:
            raise FrameError(1002, "a message must end before the next one begins")
        if not fin:
            self._opcode = opcode
            self._message += payload
            return None
        whole = bytes(self._message) + payload if self._message else payload
        self._opcode = None
        self._message.clear()
        return Incoming(opcode, whole)

    def _count_frame(self) -> None:
        self._frames_left -= 1
        if self._frames_left < 0:
            now = self._now_s()
            self._frames_left += (now - self._counted_at_s) * FRAMES_PER_S_MAX
            self._frames_left = min(self._frames_left, FRAMES_BURST_MAX)
            self._counted_at_s = now
            if self._frames_left < 0:
                raise FrameError(1008, f"a connection may send {FRAMES_PER_S_MAX} frames a second")


def _unmask(payload: bytes, mask: bytes) -> bytes:
    size = len(payload)
    if not size:
        return b""
    repeated = (mask * (size // _MASK_BYTES + 1))[:size]
    return (int.from_bytes(payload, "big") ^ int.from_bytes(repeated, "big")).to_bytes(size, "big")


def frame(opcode: int, payload: bytes) -> bytes:
    """Return a complete frame, unmasked as a server sends it."""
    size = len(payload)
    if size < _LENGTH_16:
        return bytes((_FIN | opcode, size)) + payload
    if size < 1 << 16:
        return bytes((_FIN | opcode, _LENGTH_16)) + size.to_bytes(2, "big") + payload
    return bytes((_FIN | opcode, _LENGTH_64)) + size.to_bytes(8, "big") + payload


def close_frame(code: int, reason: str = "") -> bytes:
    """Return a close frame; the reason is cut to what it can hold."""
    payload = reason.encode()[: CONTROL_BYTES_MAX - 2].decode(errors="ignore").encode()
    return frame(CLOSE, code.to_bytes(2, "big") + payload)


def close_code(payload: bytes) -> int:
    """Return the code of a client's close frame; raises FrameError for one that may not be sent."""
    if not payload:
        return NO_CODE
    code = int.from_bytes(payload[:2], "big")
    is_defined = _NORMAL <= code <= 1014 and code not in (1004, NO_CODE, 1006)
    if len(payload) < 2 or not (is_defined or 3000 <= code <= 4999):
        raise FrameError(1002, "the close code may not be sent")
    try:
        payload[2:].decode()
    except UnicodeDecodeError:
        raise FrameError(1007, "the reason must be UTF-8") from None
    return code
