"""The function library in Redis, built from functions/*.lua.

The parts are joined in the order of their names into one Lua chunk, so a part may use the `local` functions of earlier
parts. The library's name contains its version and its build, a digest of the code; its function names end with the
build. So libraries of several builds coexist in one Redis and each node calls its own; they share only the layout of
the data (keys.py).

A node accepts libraries of the previous and the next version beside its own. It refuses to run beside newer ones and
deletes older ones; a node that still uses a deleted library is refused when it loads it again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from hashlib import blake2b
from importlib.resources import files
from typing import Any, NamedTuple

from redis.exceptions import ResponseError

from rankd.errors import RanksNewer

LIBRARY_VERSION = 1  # incremented by every release that changes functions, arguments or answers
VERSIONS_APART_MAX = 1
_BUILD_BYTES = 6
_NAME = re.compile(r"rankd_v(\d+)_[0-9a-f]+")
_NAMES = "rankd_v*"
_REGISTERED = re.compile(r"(function_name = '\w+)'")
_ALREADY_THERE = "already exists"


class Library(NamedTuple):
    """The library of one build."""

    version: int
    build: str  # digest of the code
    code: str

    @property
    def name(self) -> str:
        """Its name in Redis."""
        return f"rankd_v{self.version}_{self.build}"

    def function(self, name: str) -> str:
        """Return the name in Redis of a function of this library."""
        return f"{name}_{self.build}"


def make_library(version: int, parts: Iterable[tuple[str, str]]) -> Library:
    """Join parts (name, code) into a library."""
    joined = "".join(f"\n-- {name}\n{code}" for name, code in parts)
    build = blake2b(f"{version}\n{joined}".encode(), digest_size=_BUILD_BYTES).hexdigest()
    named = Library(version, build, _REGISTERED.sub(rf"\1_{build}'", joined))
    return named._replace(code=f"#!lua name={named.name}\n{named.code}")


@cache
def our_library(version: int = LIBRARY_VERSION) -> Library:
    """Return the library of this build."""
    parts = [part for part in (files("rankd.redis") / "functions").iterdir() if part.name.endswith(".lua")]
    return make_library(version, sorted((part.name, part.read_text("utf-8")) for part in parts))


@cache
def our_function(name: str) -> str:
    """Return the name in Redis of a function of this build."""
    return our_library().function(name)


def ensure_library(server: Any, library: Library | None = None) -> bool:
    """Load a library into one server unless present; True when loaded. RanksNewer beside a library that is too new.

    `server` is a redis-py client of exactly one server, a master.
    """
    ours = our_library() if library is None else library
    stored = _stored_versions(server)
    newest = max(stored.values(), default=0)
    if newest > ours.version + VERSIONS_APART_MAX:
        raise RanksNewer(
            f"the functions in Redis are of version {newest}, this node knows {ours.version}: upgrade rankd"
        )
    if ours.name in stored:
        return False
    try:
        server.execute_command("FUNCTION", "LOAD", ours.code)
    except ResponseError as problem:
        if _ALREADY_THERE not in str(problem):  # another node of this build was quicker
            raise
    for name, version in stored.items():
        if version < ours.version - VERSIONS_APART_MAX:
            with suppress(ResponseError):  # another node deleted it, or this one may not: it only costs memory
                server.execute_command("FUNCTION", "DELETE", name)
    return True


def _stored_versions(server: Any) -> dict[str, int]:
    """Return the version of each rankd library in a server, by name."""
    versions: dict[str, int] = {}
    for library in server.execute_command("FUNCTION", "LIST", "LIBRARYNAME", _NAMES):
        # RESP2 answers pairs in a row, RESP3 a map.
        described = library if isinstance(library, dict) else dict(zip(library[::2], library[1::2], strict=True))
        name = described.get(b"library_name", described.get("library_name"))
        text = name.decode() if isinstance(name, bytes) else str(name)
        if matched := _NAME.fullmatch(text):
            versions[text] = int(matched.group(1))
    return versions
