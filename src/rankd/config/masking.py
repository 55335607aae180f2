"""What may be shown: passwords in URLs, keys, signatures and tickets become `***`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import unquote

import msgspec

from rankd.config.model import SECRETS, Config

MASK = "***"
SECRET_CHARACTERS_MIN = 4  # a shorter text stands in too many others to be replaced there
# scheme://user:password@host; a password may hold a colon or a slash, and in a broken URL an @ too.
_PASSWORD = re.compile(r"(?P<before>\b[a-z][a-z0-9+.-]*://[^\s:/@\"']*:)(?P<secret>[^\s\"'<>]*)(?=@)", re.IGNORECASE)
# name=value in a query, or "name": "value" in JSON. Not `token: …`, which is how a sentence about one begins.
_NAMED = re.compile(
    r"(?P<before>\b[\w.-]*(?:password|passwd|secret|token|ticket|signature|api[_-]?key)(?:=|\"\s*:\s*\"))"
    r"(?P<secret>[^\s&\"',;)]+)",
    re.IGNORECASE,
)
# API keys and signing secrets, wherever they stand.
_KEY = re.compile(r"(?P<before>\br[ks]_)(?P<secret>[\w-]{16,})")
_BEARER = re.compile(r"(?P<before>\bbearer\s+)(?P<secret>[\w.~+/=-]+)", re.IGNORECASE)


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
    return _replaced(_NAMED, _replaced(_PASSWORD, url))


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
            elif password := _PASSWORD.search(value):
                found += [password["secret"], unquote(password["secret"])]
    return tuple(dict.fromkeys(found))


def mask_text(text: str, secrets: Iterable[str] = ()) -> str:
    """Return a message without known secrets, passwords in URLs, bearer tokens, signatures and tickets.

    >>> mask_text("GET /v1/stream?ticket=k3J9x for postgres://u:pw@db")
    'GET /v1/stream?ticket=*** for postgres://u:***@db'
    """
    for secret in sorted(secrets, key=len, reverse=True):  # a longer one may hold a shorter one
        if len(secret) >= SECRET_CHARACTERS_MIN:
            text = text.replace(secret, MASK)
    for pattern in (_PASSWORD, _BEARER, _NAMED, _KEY):
        text = _replaced(pattern, text)
    return text


def _replaced(pattern: re.Pattern[str], text: str) -> str:
    return pattern.sub(lambda found: f"{found['before']}{MASK}", text)
