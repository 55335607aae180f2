"""The function library in Redis: one library `rankd`, made of the parts in functions/*.lua.

Parts are joined in the order of their names into one Lua chunk, so a part may use the `local` functions of those before
it. The second line tells the version; whoever meets an older library replaces it, and nobody replaces a newer one. A
library serves the nodes of its own version and of the one before, so that nodes can be upgraded one after the other.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import Any

from redis.exceptions import ResponseError

from rankd.errors import RanksNewer

LIBRARY_NAME = "rankd"
LIBRARY_VERSION = 1  # more by one whenever functions, arguments or answers change
VERSIONS_APART_MAX = 1
_VERSION = re.compile(r"^-- version (\d+)$", re.MULTILINE)
_ALREADY_THERE = "already exists"


@cache
def library_code(version: int = LIBRARY_VERSION) -> str:
    """Return the whole library as Redis gets it."""
    parts = sorted(
        (part for part in (files(__package__) / "functions").iterdir() if part.name.endswith(".lua")),
        key=lambda part: part.name,
    )
    head = f"#!lua name={LIBRARY_NAME}\n-- version {version}\n"
    return head + "".join(f"\n-- {part.name}\n{part.read_text('utf-8')}" for part in parts)


def ensure_library(server: Any, code: str | None = None) -> bool:
    """Load the library into one server unless it has it; True when it was loaded. RanksNewer when it is too new for us.

    `server` is a redis-py client of exactly one server, a master.
    """
    ours = library_code() if code is None else code
    stored = _stored_code(server)
    if stored == ours:
        return False
    if stored is not None and (found := _version_of(stored)) > _version_of(ours):
        if found > _version_of(ours) + VERSIONS_APART_MAX:
            raise RanksNewer(
                f"the functions in Redis are of version {found}, this node knows {_version_of(ours)}: upgrade rankd"
            )
        return False
    try:
        server.execute_command("FUNCTION", "LOAD", *(() if stored is None else ("REPLACE",)), ours)
    except ResponseError as problem:
        # Another node was quicker; what it loaded is compared as anything else.
        if stored is None and _ALREADY_THERE in str(problem):
            return ensure_library(server, code)
        raise
    return True


def _version_of(code: str) -> int:
    found = _VERSION.search(code)
    return int(found.group(1)) if found else 0


def _stored_code(server: Any) -> str | None:
    """Return the code of the library in a server; None when there is none."""
    libraries = server.execute_command("FUNCTION", "LIST", "LIBRARYNAME", LIBRARY_NAME, "WITHCODE")
    if not libraries:
        return None
    # RESP2 answers pairs in a row, RESP3 a map; either way keys are bytes.
    found = libraries[0]
    described = found if isinstance(found, dict) else dict(zip(found[::2], found[1::2], strict=True))
    code = described.get(b"library_code", described.get("library_code"))
    return code.decode() if isinstance(code, bytes) else str(code)
