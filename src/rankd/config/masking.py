"""What may be shown: passwords in URLs, keys, signatures and tickets become `***`.

    text → cut, never within a secret that is known → known secrets → what looks like one

A text is cut before it is masked, so that masking takes a bounded time however long the text was. No half of a secret
is left: the cut moves in front of a secret of the configuration, and what only looks like a secret may end with the
mark of the cut, here or where an error was made of it. All patterns take a time that grows with the text, not with its
square: none of them can begin again within what it has looked at.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from urllib.parse import unquote

import msgspec

from rankd.config.model import SECRETS, Config
from rankd.shortening import CUT

MASK = "***"
SECRET_CHARACTERS_MIN = 4  # a shorter text stands in too many others to be replaced there
TEXT_CHARACTERS_MAX = 8_192  # of what is masked at one time

Mask = Callable[[str], str]

NAMES = "authorization|password|passwd|pwd|secret|token|ticket|signature|sig|api[_-]?key|credential"
# name=value in a query; "name": "value" in JSON and in Python. A sentence that begins with `token:` is none.
_NAMED = re.compile(
    rf"((?:{NAMES})=|(?:{NAMES})[\"'][ \t]{{0,4}}:[ \t]{{0,4}}b?[\"'])[^\s&\"',;)]+",
    re.IGNORECASE,
)
_SECRETS = tuple(
    re.compile(pattern, re.IGNORECASE if insensitive else 0)
    for insensitive, pattern in (
        # An API key, a signing secret, a ticket. Short ones only as words or cut: `mark_up` is none.
        (
            False,
            rf"()(?:r[kst]_[\w-]{{32,}}|(?<![A-Za-z0-9])(?:rk_[\w-]+|r[st]_[\w-]{{16,}})|r[kst]_[\w-]{{1,31}}(?={CUT}))",
        ),
        # A JSON Web Token: base64 of `{"`, and what follows.
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
# Of a URL, from its `://` on; and the user before a password there.
_ADDRESS = re.compile(r"://[^\s\"']*")
_USER = re.compile(r"://[^:/@]*:")
_PORT_AND_PATH = re.compile(r"[0-9]{1,5}/")


def shown(config: Config) -> dict[str, dict[str, object]]:
    """Return a whole configuration as it may be shown."""
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
    """Return the secrets that a configuration holds, as they may turn up in a message."""
    found = []
    for section in config.__struct_fields__:
        values = getattr(config, section)
        if not isinstance(values, msgspec.Struct):
            continue
        for name, value in msgspec.structs.asdict(values).items():
            if not isinstance(value, str) or not value:
                continue
            if f"{section}.{name}" in SECRETS:
                found.append(value)
            elif password := _password_in(value):
                text = value[password[0] : password[1]]
                found += [text, unquote(text)]
    return tuple(dict.fromkeys(found))


def masking(secrets: Iterable[str] = (), characters_max: int = TEXT_CHARACTERS_MAX) -> Mask:
    """Return what cuts a text and takes these secrets out of it, and all that looks like one.

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
    """Mask secrets wherever they stand; where one reaches into another, both as one."""
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
    """Cut a text at `end`, or where the secret begins that reaches over it."""
    is_within = True
    while is_within:
        is_within = False
        for secret in known:
            start = text.find(secret, max(0, end - len(secret) + 1), end + len(secret) - 1)
            if start >= 0:
                end, is_within = start, True
    return f"{text[:end]}{CUT} and {len(text) - end} characters more"


def _masked(found: re.Match[str]) -> str:
    return f"{found[1]}{MASK}"


def _masked_address(found: re.Match[str]) -> str:
    """Mask up to the last @, since a password may hold one too, or to the cut; a port with a path is no password."""
    address = found[0]
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
