"""A call of the API: its route, its handler, and its description in /openapi.json."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from rankd.api.http.request import Request, Response

if TYPE_CHECKING:
    from rankd.api.service import Service

PROBES = ("health", "ready")  # never rate-limited: a supervisor would restart the process

Handler = Callable[["Service", Request], Response | Awaitable[Response]]


class Access(StrEnum):
    """Who may call; handlers check what depends on the player or the board."""

    OPEN = "open"  # anybody
    READ = "read"  # anybody where reads are public, else a credential
    METRICS = "metrics"  # senders of server.metrics_token; without one, as READ
    OWN = "own"  # the player in the path, or a service
    SCORES = "scores:write"
    PLAYERS = "players:write"
    ADMIN = "boards:admin"


class Cost(StrEnum):
    """The threads of a call that needs one: expensive calls do not delay cheap ones."""

    CHEAP = "cheap"  # a row or two from the disk, one change
    DEAR = "dear"  # many rows, a long body, all boards


@dataclass(frozen=True)
class Parameter:
    """A query parameter."""

    name: str
    schema: dict[str, Any]
    about: str
    is_needed: bool = False


@dataclass(frozen=True, kw_only=True)
class Call:
    """One call: a method on a path."""

    name: str  # the library's method
    method: str
    path: str
    access: Access
    handler: Handler
    about: str
    is_write: bool = False
    is_heavy: Callable[[Request], bool] | None = None  # whether it would block the event loop for milliseconds
    cost: Cost = Cost.CHEAP
    parameters: tuple[Parameter, ...] = ()
    body: Any = None  # the struct that decodes it
    answer: Any = None  # the struct that encodes it
    repeated: tuple[str, ...] = ()  # parameters that may occur more than once
    is_page: bool = False  # parameters of links, such as `?utm_source=`, are ignored
    media: tuple[str, ...] = ("application/json",)  # of the body
    answer_media: str = "application/json"
    is_open: bool = field(init=False)  # to anybody, without a credential
    is_probe: bool = field(init=False)  # of a supervisor
    is_for_readers: bool = field(init=False)  # open to anybody where reads are public
    is_of_metrics: bool = field(init=False)
    is_read: bool = field(init=False)  # of a board
    is_of_writer: bool = field(init=False)  # whether the worker that writes answers it, where there are several
    known: tuple[str, ...] = field(init=False)  # names of its parameters

    def __post_init__(self) -> None:
        """Derive the rest: a member of an enumeration takes ten times as long to look up as an attribute."""
        object.__setattr__(self, "is_open", self.access is Access.OPEN)
        object.__setattr__(self, "is_probe", self.name in PROBES)
        object.__setattr__(self, "is_for_readers", self.access in (Access.READ, Access.METRICS))
        object.__setattr__(self, "is_of_metrics", self.access is Access.METRICS)
        object.__setattr__(self, "is_read", not self.is_write and self.path.startswith("/v1/boards/"))
        object.__setattr__(self, "is_of_writer", self.is_write or self.name == "ticket")
        object.__setattr__(self, "known", tuple(parameter.name for parameter in self.parameters))
