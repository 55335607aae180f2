"""Text from outside: counted in bytes of UTF-8, without control characters, never normalised; escaped for display."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable
from typing import TypeGuard

from rankd.errors import InvalidValue
from rankd.shortening import quote

NAME_RULE = "1 to 64 of a-z, 0-9, '_', '.' and '-', beginning with a letter or a digit"
NAME_BYTES_MAX = 64
_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}")
# C0, DEL and C1; and the lone surrogates, which are no characters and have no UTF-8.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_CONTROL_IN_LINES = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_URL = re.compile(r"https?://[^\s\"'<>\\^`{|}]+", re.IGNORECASE)
_SURROGATE = re.compile(r"[\ud800-\udfff]")
# Control and format characters, surrogates and line ends: they move the cursor, colour a terminal, hide, or reverse
# the text beside them.
_UNSHOWN = frozenset(("Cc", "Cf", "Cs", "Zl", "Zp"))
# Some scripts and composed emoji need joiners, which are harmless there. Beside ASCII they only make two ids look
# alike, so they are escaped.
_JOINERS = "\u200c\u200d"


def check_text(field: str, value: object, bytes_max: int, bytes_min: int = 1, lines: bool = False) -> str:
    """Return the text unchanged, or refuse it; `lines` allows tabs and line feeds."""
    if is_plain(value, bytes_max, bytes_min):
        return value
    if not isinstance(value, str):
        raise InvalidValue(field, f"must be text; got {type(value).__name__}")
    if len(value) > bytes_max:  # before scanning each character
        raise InvalidValue(field, f"must be {bytes_min} to {bytes_max} bytes of UTF-8; got {len(value)} characters")
    if match := (_CONTROL_IN_LINES if lines else _CONTROL).search(value):
        raise InvalidValue(field, f"must not hold control characters; U+{ord(match[0]):04X} stands at {match.start()}")
    if match := _SURROGATE.search(value):
        raise InvalidValue(
            field, f"must be valid Unicode; the lone surrogate U+{ord(match[0]):04X} stands at {match.start()}"
        )
    size = len(value) if value.isascii() else len(value.encode())
    if not bytes_min <= size <= bytes_max:
        raise InvalidValue(field, f"must be {bytes_min} to {bytes_max} bytes of UTF-8; got {size}")
    return value


def is_plain(value: object, bytes_max: int, bytes_min: int = 1) -> TypeGuard[str]:
    """Return whether the value is text that needs no further check: most is, and printable ASCII is found out fast."""
    return type(value) is str and bytes_min <= len(value) <= bytes_max and value.isascii() and value.isprintable()


def check_url(field: str, value: object, bytes_max: int) -> str:
    """Return a web address: pages link to it, so no other scheme is accepted."""
    text = check_text(field, value, bytes_max)
    if not _URL.fullmatch(text):
        raise InvalidValue(field, f"must be an address that begins with https:// or http://; got {quote(text)}")
    return text


def check_name(field: str, value: object) -> str:
    """Return the name of a board, a window or an attribute, or refuse it with the rule."""
    if not isinstance(value, str):
        raise InvalidValue(field, f"must be text: {NAME_RULE}; got {type(value).__name__}")
    if not is_name(value):
        raise InvalidValue(field, f"must be {NAME_RULE}; got {quote(value)}")
    return value


def is_name(value: str) -> bool:
    """Return whether the text is a valid name."""
    return _NAME.fullmatch(value) is not None


def escaped(text: str, kept: str = "") -> str:
    """Return text that cannot move the cursor, colour a terminal or reorder the text beside it.

    `kept` are characters that stay as they are, such as line feeds.

    >>> escaped("ev\\x1b[2Jil \\u202e")
    'ev\\\\x1b[2Jil \\\\u202e'
    """
    return _escaped(text, kept, lambda character: character.encode("unicode_escape").decode())


def escaped_json(encoded: str, kept: str = "") -> str:
    r"""Return JSON with the same characters as \uXXXX: the same values, safe for a terminal.

    >>> escaped_json('{"name": "\u202eeno"}')
    '{"name": "\\u202eeno"}'
    """
    return _escaped(encoded, kept, lambda character: json.dumps(character)[1:-1])


def _escaped(text: str, kept: str, escape: Callable[[str], str]) -> str:
    if text.isprintable():
        return text
    return "".join(
        escape(character)
        if unicodedata.category(character) in _UNSHOWN and character not in kept and not _joins(text, place)
        else character
        for place, character in enumerate(text)
    )


def _joins(text: str, place: int) -> bool:
    """Return whether a joiner is between two printable characters beyond ASCII."""
    around = text[max(0, place - 1) : place + 2 : 2]
    return (
        text[place] in _JOINERS
        and len(around) == 2
        and all(near.isprintable() and not near.isascii() for near in around)
    )
