"""The HTML of the pages, without standings: the scripts read those, as any other client does."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache, lru_cache
from html import escape
from importlib.metadata import version
from importlib.resources import files
from string import Template
from urllib.parse import quote

from rankd.api.http.static import StaticBody

PAGES_KEPT_MAX = 256
_ORIGIN = re.compile(r"https?://[A-Za-z0-9._-]+(:[0-9]{1,5})?|https?://\[[0-9A-Fa-f:.]+\](:[0-9]{1,5})?|\*")


@lru_cache(PAGES_KEPT_MAX)
def front_page(avatar_origins: tuple[str, ...]) -> StaticBody:
    """Return the page that lists all boards."""
    return StaticBody(_filled("index.html", avatars=_origins(avatar_origins)))


@lru_cache(PAGES_KEPT_MAX)
def board_page(board: str, title: str, avatar_origins: tuple[str, ...]) -> StaticBody:
    """Return the page of a board that exists; the script reads the board's id from the address."""
    return StaticBody(_board_html(board, title, avatar_origins))


def made_up_board_page(board: str, avatar_origins: tuple[str, ...]) -> StaticBody:
    """Return the page of any id; it is not cached, since such ids would evict boards that exist."""
    return StaticBody(_board_html(board, board, avatar_origins), is_kept=False)


def page_policy(avatar_origins: Iterable[str]) -> bytes:
    """Return the Content-Security-Policy of the pages: their own files, and avatars from the configured origins.

    >>> page_policy(["https://img.example"]).split(b"; ")[4]
    b"img-src 'self' https://img.example"
    """
    pictures = " ".join(filter(None, ("'self'", _origins(avatar_origins))))
    return (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        f"img-src {pictures}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    ).encode()


def _origins(avatar_origins: Iterable[str]) -> str:
    """Return the valid origins; other text could be read as a directive."""
    return " ".join(origin for origin in avatar_origins if _ORIGIN.fullmatch(origin))


def _board_html(board: str, title: str, avatar_origins: tuple[str, ...]) -> bytes:
    return _filled("board.html", avatars=_origins(avatar_origins), board=quote(board, safe=""), title=title)


def _filled(name: str, **values: str) -> bytes:
    escaped = {key: escape(value) for key, value in values.items()}
    return _template(name).substitute(escaped, version=_version()).encode()


@cache
def _version() -> str:
    return escape(version("rankd"))


@cache
def _template(name: str) -> Template:
    return Template((files(__package__) / "files" / name).read_text("utf-8"))
