"""Mask secrets in texts for logs and output: passwords in URLs, keys, signatures and tickets become `***`.

    text → shortened, never inside a known secret → known secrets masked → patterns of secrets masked

A text is shortened first, so that masking takes a bounded time. No half of a secret remains: the cut moves in front of
a secret of the configuration, and a pattern may end with the mark of the cut, made here or when an error was shortened.
All patterns run in linear time: none can start again inside a text it has scanned.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from urllib.parse import unquote

import msgspec

from rankd.config.model import SECRETS, Config
from rankd.shortening import CUT

MASK = "***"
SECRET_CHARACTERS_MIN = 4  # a shorter secret occurs in too many other texts
TEXT_CHARACTERS_MAX = 8_192  # of one text

Mask = Callable[[str], str]

NAMES = "authorization|password|passwd|pwd|secret|token|ticket|signature|sig|api[_-]?key|credential"
# name=value in a query; "name": "value" in JSON and in Python. A sentence that begins with `token:` does not match.
_NAMED = re.compile(
    rf"((?:{NAMES})=|(?:{NAMES})[\"'][ \t]{{0,4}}:[ \t]{{0,4}}b?[\"'])[^\s&\"',;)]+",
    re.IGNORECASE,
)
_SECRETS = tuple(
    re.compile(pattern, re.IGNORECASE if insensitive else 0)
    for insensitive, pattern in (
        # An API key, a signing secret, a ticket. Short ones only as words or at a cut: `mark_up` does not match.
        (
            False,
            rf"()(?:r[kst]_[\w-]{{32,}}|(?<![A-Za-z0-9])(?:rk_[\w-]+|r[st]_[\w-]{{16,}})|r[kst]_[\w-]{{1,31}}(?={CUT}))",
        ),
        # A JSON Web Token: base64 of `{"` and the rest.
        (False, r"()eyJ[\w-]{6,}(?:\.[\w-]*){0,4}"),
        (True, r"\b((?:bearer|basic)[ \t]{1,4})[\w.~+/=-]+"),
        # A header in a message.
        (
            True,
            rf"((?:authorization|signature|ticket|x-rankd-signature): )"
            rf"(?:[\w.~+/=-]{{16,}}|[\w.~+/=-]{{1,15}}(?={CUT}))",
        ),
        # A signature by itself: HMAC-SHA256 or longer, in hexadecimal.
        (False, rf"()(?<![0-9a-fA-F])(?:[0-9a-fA-F]{{64,}}|[0-9a-fA-F]{{16,63}}(?={CUT}))"),
    )
)
# A URL from its `://` on, and the user before its password.
_ADDRESS = re.compile(r"://[^\s\"']*")
_USER = re.compile(r"://[^:/@]*:")
_PORT_AND_PATH = re.compile(r"[0-9]{1,5}/")


def shown(config: Config) -> dict[str, dict[str, object]]:
    """Return a whole configuration with its secrets masked."""
    sections: dict[str, dict[str, object]] = {}
    for section in config.__struct_fields__:
        values = getattr(config, section)
        if isinstance(values, msgspec.Struct):
            sections[section] = {
                name: _shown_value(f"{section}.{name}", value) for name, value in msgspec.structs.asdict(values).items()
            }
        else:
            sections[section] = dict(values)
    return sections


def _shown_value(key: str, value: object) -> object:
    if key in SECRETS:
        return MASK if value else value
    if isinstance(value, tuple):
        return [_shown_value(key, item) for item in value]
    return masked_url(value) if isinstance(value, str) else value


def masked_url(url: str) -> str:
    """Return a URL without its password.

    >>> masked_url("postgresql://rankd:hunter2@db.example/rankd?sslpassword=x")
    'postgresql://rankd:***@db.example/rankd?sslpassword=***'
    """
    password = _password_in(url)
    return _NAMED.sub(_masked, url if password is None else f"{url[: password[0]]}{MASK}{url[password[1] :]}")


def secrets_of(config: Config) -> tuple[str, ...]:
    """Return the secrets of a configuration, as they may appear in a message."""
    secrets = []
    for section in config.__struct_fields__:
        values = getattr(config, section)
        if not isinstance(values, msgspec.Struct):
            continue
        for name, value in msgspec.structs.asdict(values).items():
            if not isinstance(value, str) or not value:
                continue
            if f"{section}.{name}" in SECRETS:
                secrets.append(value)
            elif password := _password_in(value):
                text = value[password[0] : password[1]]
                secrets += [text, unquote(text)]
    return tuple(dict.fromkeys(secrets))


def masking(secrets: Iterable[str] = (), characters_max: int = TEXT_CHARACTERS_MAX) -> Mask:
    """Return a function that shortens a text and masks these secrets and everything that looks like one.

    >>> masking(["hunter2"])("GET /v1/stream?ticket=k3J9x of redis://:pw@cache with hunter2")
    'GET /v1/stream?ticket=*** of redis://:***@cache with ***'
    """
    known = sorted({secret for secret in secrets if len(secret) >= SECRET_CHARACTERS_MIN})

    def mask(text: str) -> str:
        if len(text) > characters_max:
            text = _cut(text, known, characters_max)
        text = _ADDRESS.sub(_masked_address, _without(text, known))
        for pattern in (_NAMED, *_SECRETS):
            text = pattern.sub(_masked, text)
        return text

    return mask


def _without(text: str, known: Iterable[str]) -> str:
    """Mask secrets wherever they occur; overlapping ones together."""
    spans = []
    for secret in known:
        start = text.find(secret)
        while start >= 0:
            spans.append((start, start + len(secret)))
            start = text.find(secret, start + 1)
    pieces, kept_from = [], 0
    for start, end in sorted(spans):
        if start >= kept_from:
            pieces += [text[kept_from:start], MASK]
        kept_from = max(kept_from, end)
    return "".join((*pieces, text[kept_from:]))


def _cut(text: str, known: Iterable[str], end: int) -> str:
    """Cut a text at `end`, or before a secret that crosses it."""
    is_within = True
    while is_within:
        is_within = False
        for secret in known:
            start = text.find(secret, max(0, end - len(secret) + 1), end + len(secret) - 1)
            if start >= 0:
                end, is_within = start, True
    return f"{text[:end]}{CUT} and {len(text) - end} characters more"


def _masked(match: re.Match[str]) -> str:
    return f"{match[1]}{MASK}"


def _masked_address(match: re.Match[str]) -> str:
    """Mask up to the last @, since a password may contain one, or to the cut; a port and a path are no password."""
    address = match[0]
    end = max(address.rfind("@"), address.rfind(CUT))
    for user in _USER.finditer(address):
        if end < user.end():
            break
        if not _PORT_AND_PATH.match(address, user.end()):
            return f"{address[: user.end()]}{MASK}{address[end:]}"
    return address


def _password_in(url: str) -> tuple[int, int] | None:
    """Return where the password of a URL begins and ends."""
    user, end = _USER.search(url), url.rfind("@")
    return None if user is None or end < user.end() else (user.end(), end)
