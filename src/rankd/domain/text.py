"""Text that comes from outside: counted in bytes of UTF-8, without control characters, never normalised."""

from __future__ import annotations

import re

from rankd.errors import InvalidValue
from rankd.shortening import quote

NAME_RULE = "1 to 64 of a-z, 0-9, '_', '.' and '-', beginning with a letter or a digit"
_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}")
# C0, DEL and C1; and the lone surrogates, which are no characters and have no UTF-8.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_CONTROL_IN_LINES = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_URL = re.compile(r"https?://[^\s\"'<>\\^`{|}]+", re.IGNORECASE)
_SURROGATE = re.compile(r"[\ud800-\udfff]")


def check_text(field: str, value: object, bytes_max: int, bytes_min: int = 1, lines: bool = False) -> str:
    """Return the text as it is, or say why it cannot be taken; `lines` allows tabs and line feeds."""
    # Most text is plain: a look tells it from what needs the whole check.
    if type(value) is str and bytes_min <= len(value) <= bytes_max and value.isascii() and value.isprintable():
        return value
    if not isinstance(value, str):
        raise InvalidValue(field, f"must be text; got {type(value).__name__}")
    if len(value) > bytes_max:  # before anybody looks at each of its characters
        raise InvalidValue(field, f"must be {bytes_min} to {bytes_max} bytes of UTF-8; got {len(value)} characters")
    if found := (_CONTROL_IN_LINES if lines else _CONTROL).search(value):
        raise InvalidValue(field, f"must not hold control characters; U+{ord(found[0]):04X} stands at {found.start()}")
    if found := _SURROGATE.search(value):
        raise InvalidValue(
            field, f"must be valid Unicode; the lone surrogate U+{ord(found[0]):04X} stands at {found.start()}"
        )
    size = len(value) if value.isascii() else len(value.encode())
    if not bytes_min <= size <= bytes_max:
        raise InvalidValue(field, f"must be {bytes_min} to {bytes_max} bytes of UTF-8; got {size}")
    return value


def check_url(field: str, value: object, bytes_max: int) -> str:
    """Return the address of something on the web; a page may show it, so nothing else can stand there."""
    text = check_text(field, value, bytes_max)
    if not _URL.fullmatch(text):
        raise InvalidValue(field, f"must be an address that begins with https:// or http://; got {quote(text)}")
    return text


def check_name(field: str, value: object) -> str:
    """Return a name of something declared (a board, a window, an attribute), or say what such names look like."""
    if not isinstance(value, str):
        raise InvalidValue(field, f"must be text: {NAME_RULE}; got {type(value).__name__}")
    if not is_name(value):
        raise InvalidValue(field, f"must be {NAME_RULE}; got {quote(value)}")
    return value


def is_name(value: str) -> bool:
    """Tell whether the text could name something declared."""
    return _NAME.fullmatch(value) is not None
