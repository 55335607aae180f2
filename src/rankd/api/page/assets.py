"""The files of the pages."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from rankd.api.http.static import StaticBody

BOARD_SCRIPT = "rankd-board.js"
# Concatenated, they are one module: each uses the ones before it.
_SCRIPTS = ("text.js", "make.js", "feed.js", "standings.js", "rows.js", "element.js")
_STYLES = {"PEOPLE_CSS": "people.css", "BOARD_CSS": "board.css"}
_MEDIA = {
    ".css": b"text/css; charset=utf-8",
    ".js": b"text/javascript; charset=utf-8",
    ".svg": b"image/svg+xml",
}


class Asset(NamedTuple):
    """A file with its media type."""

    body: StaticBody
    media: bytes


def asset(name: str) -> Asset | None:
    """Return a file by its name, None for an unknown one."""
    return _assets().get(name)


@cache
def _assets() -> dict[str, Asset]:
    assets = {BOARD_SCRIPT: _asset(_board_script().encode(), ".js")}
    for file in (files(__package__) / "files").iterdir():
        ending = file.name[file.name.rfind(".") :]
        if ending in _MEDIA:
            assets[file.name] = _asset(file.read_bytes(), ending)
    return assets


def _asset(body: bytes, ending: str) -> Asset:
    return Asset(StaticBody(body), _MEDIA[ending])


def _board_script() -> str:
    folder = files(__package__) / "board"
    styles = [
        f"const {constant} = {json.dumps((folder / name).read_text('utf-8'))};" for constant, name in _STYLES.items()
    ]
    return "\n".join([*styles, *((folder / name).read_text("utf-8") for name in _SCRIPTS)])
