"""Log lines on stderr, as JSON for programs or aligned for people.

    logger.info("message", extra={"fields": {"board": "arcade"}}) → cut, masked → control characters escaped → one line

Text from outside may contain a secret or imitate a log line, so every text is masked and escaped.
"""

from __future__ import annotations

import itertools
import logging
import os
import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from secrets import randbits
from typing import Literal, TextIO

import msgspec

from rankd.config.masking import MASK, NAMES, Mask, masking
from rankd.domain.text import escaped

SLOW_S = 1.0  # a request that takes longer is logged
TRACE_LINES_MAX = 200  # of one failure
PATH_CHARACTERS_MAX = 512  # of a request
MESSAGE_COLUMNS = 44

LogFormat = Literal["auto", "json", "text"]
Level = Literal["debug", "info", "warning", "error"]
Which = Literal["none", "errors", "all"]

_SECRET_FIELD = re.compile(rf"(?:.*[_.-])?(?:{NAMES})", re.IGNORECASE)


class _Lines(logging.Formatter):
    """Shared by both formats: every text is cut, masked and escaped."""

    kept = ""  # control characters that the format escapes itself

    def __init__(self, mask: Mask) -> None:
        super().__init__()
        self._mask = mask

    def text(self, text: str) -> str:
        """Return a text masked and escaped."""
        return escaped(self._mask(text), self.kept)

    def fields(self, record: logging.LogRecord) -> dict[str, object]:
        """Return a record's fields."""
        fields = getattr(record, "fields", None)
        if not isinstance(fields, dict):
            return {}
        return {self.text(str(name)): self._value(str(name), value) for name, value in fields.items()}

    def _value(self, name: str, value: object) -> object:
        if value is None or isinstance(value, bool | float):
            return value
        if _SECRET_FIELD.fullmatch(name):
            return MASK
        if isinstance(value, int):
            return value if abs(value) < 2**63 else str(value)
        if isinstance(value, bytes):
            return self.text(value.decode(errors="backslashreplace"))
        return self.text(str(value))

    def trace(self, record: logging.LogRecord) -> list[str]:
        """Return the lines of a traceback."""
        failed = record.exc_info and record.exc_info[0] is not None
        lines = self.formatException(record.exc_info).split("\n") if failed and record.exc_info else []
        if record.stack_info:
            lines += record.stack_info.split("\n")
        if len(lines) > TRACE_LINES_MAX:
            half = TRACE_LINES_MAX // 2
            lines = [*lines[:half], f"… {len(lines) - 2 * half} lines more …", *lines[-half:]]
        return [self.text(line) for line in lines]


class JsonLines(_Lines):
    """One JSON object a line."""

    kept = "".join(map(chr, range(0x20)))  # JSON escapes them itself

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        known: dict[str, object] = {
            "at": _time(record).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": self.text(record.getMessage()),
        }
        if trace := self.trace(record):
            known["exception"] = "\n".join(trace)
        others = {name: value for name, value in self.fields(record).items() if name not in known}
        return msgspec.json.encode(known | others).decode()


_COLOURS = {"DEBUG": "2", "INFO": "32", "WARNING": "33", "ERROR": "31", "CRITICAL": "31;1"}


class TextLines(_Lines):
    """Aligned, for people; in colours on a terminal."""

    def __init__(self, mask: Mask, coloured: bool) -> None:
        """`coloured` is for a terminal."""
        super().__init__(mask)
        self._coloured = coloured

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, and the lines of a traceback, each after a bar."""
        message = self.text(record.getMessage())
        fields = "  ".join(f"{name}={_quoted(value)}" for name, value in self.fields(record).items())
        level = self._colour(f"{record.levelname.lower():<8}", _COLOURS.get(record.levelname, "0"))
        time = self._colour(_time(record).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3], "2")
        line = f"{time}  {level} {message}"
        if fields:
            line = f"{time}  {level} {message:<{MESSAGE_COLUMNS}}  {self._colour(fields, '2')}"
        return "\n".join([line, *(f"    │ {part}" for part in self.trace(record))])

    def _colour(self, text: str, code: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self._coloured else text


def _time(record: logging.LogRecord) -> datetime:
    return datetime.fromtimestamp(record.created, UTC)


def _quoted(value: object) -> str:
    text = "-" if value is None else str(value)
    if not text or any(character in text for character in ' "='):  # a value cannot add a field
        return '"' + text.replace('"', '\\"') + '"'
    return text


class _Stderr(logging.StreamHandler[TextIO]):
    """Writes lines; an error does not print the raw record, as the standard library would."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        """Report an error without the record's arguments, which were not masked."""
        kind = getattr(sys.exc_info()[0], "__name__", "an error")
        try:
            self.stream.write(f"a line of {record.name} could not be written: {kind}\n")
            self.flush()
        except (OSError, ValueError):  # stderr is closed
            return


def set_up_logs(
    format: LogFormat = "auto",  # noqa: A002
    level: Level = "info",
    mask: Mask | None = None,
    stream: TextIO | None = None,
) -> None:
    """Write all logs of this process to stderr: rankd's from `level` on, those of libraries from warnings on.

    `mask` masks secrets, as `masking` returns it. Another call replaces the set-up.
    """
    stream = stream or sys.stderr
    mask = mask or masking()
    is_text = stream.isatty() if format == "auto" else format == "text"
    handler = _Stderr(stream)
    handler.setFormatter(
        TextLines(mask, stream.isatty() and not os.environ.get("NO_COLOR")) if is_text else JsonLines(mask)
    )
    root = logging.getLogger()
    for other in [other for other in root.handlers if isinstance(other, _Stderr)]:
        root.removeHandler(other)
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    logging.getLogger("rankd").setLevel(level.upper())


# Requests

_SANE = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_DIGITS = "0123456789abcdefghjkmnpqrstvwxyz"  # base 32 without letters that look like digits


def _base32(number: int, digits: int) -> str:
    return "".join(_DIGITS[number >> 5 * place & 31] for place in reversed(range(digits)))


def _generate_ids() -> Iterator[str]:
    process = _base32(randbits(40), 8)
    ends = [_base32(number, 2) for number in range(1024)]
    for block in itertools.count():
        begin = process + _base32(block, 6)
        for end in ends:
            yield begin + end


_ids = _generate_ids()


def request_id(sent: bytes | None) -> str:
    """Return a request's id: the X-Request-Id of the client if it is well-formed, else a new one.

    Only the event loop's thread may call this.
    """
    if sent is not None and _SANE.fullmatch(sent):
        return sent.decode()
    return next(_ids)


_requests = logging.getLogger("rankd.requests")


def log_request(
    which: Which,
    *,
    request_id: str,
    method: str,
    path: str,
    status: int,
    seconds: float,
    account: str | None = None,
    address: str | None = None,
    code: str | None = None,
) -> None:
    """Log a request: all of them, those that failed or took long, or none.

    503 is not a failure: the client retries, and any client could fill the log with it. `path` has no query, which may
    contain a ticket; `code` is the error's.
    """
    failed = status >= 500 and status != 503
    if which == "none" or (which == "errors" and not failed and (seconds < SLOW_S or status == 503)):
        return
    level = logging.ERROR if failed else logging.WARNING if seconds >= SLOW_S else logging.INFO
    path = path if len(path) <= PATH_CHARACTERS_MAX else f"{path[:PATH_CHARACTERS_MAX]}…"
    optional = {"account": account, "address": address, "code": code}
    fields = {"request_id": request_id, "status": status, "ms": round(seconds * 1_000, 2)}
    fields |= {name: value for name, value in optional.items() if value is not None}
    _requests.log(level, "%s %s", method, path, extra={"fields": fields})
