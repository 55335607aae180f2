"""A call of the API: what the router finds, what runs it, and what /openapi.json says of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from rankd.api.request import Request, Response

if TYPE_CHECKING:
    from rankd.api.service import Service

Handler = Callable[["Service", Request], Response | Awaitable[Response]]


class Access(StrEnum):
    """Who may call; handlers check what depends on the player or the board named."""

    OPEN = "open"  # anybody
    READ = "read"  # anybody where reads are public, else a credential
    METRICS = "metrics"  # whoever sends server.metrics_token; where there is none, as READ
    OWN = "own"  # the player named, or a service
    SCORES = "scores:write"
    PLAYERS = "players:write"
    ADMIN = "boards:admin"


class Cost(StrEnum):
    """Which threads a call waits for where it needs one: those who ask for much do not keep others from a little."""

    CHEAP = "cheap"  # a row or two from the disk, a change of one thing
    DEAR = "dear"  # many rows, a long body, all boards


@dataclass(frozen=True)
class Parameter:
    """A parameter of a call's query."""

    name: str
    schema: dict[str, Any]
    about: str
    is_needed: bool = False


@dataclass(frozen=True, kw_only=True)
class Call:
    """One call: a method on a path."""

    name: str  # the library's verb
    method: str
    path: str
    access: Access
    handler: Handler
    about: str
    is_write: bool = False
    is_heavy: Callable[[Request], bool] | None = None  # whether it would hold the event loop up for milliseconds
    cost: Cost = Cost.CHEAP
    parameters: tuple[Parameter, ...] = ()
    body: Any = None  # the struct it is decoded with
    answer: Any = None  # the struct it is encoded with
    repeated: tuple[str, ...] = ()  # parameters that may come more than once
    is_page: bool = False  # whatever links add to its address, such as `?utm_source=`, is ignored
    media: tuple[str, ...] = ("application/json",)  # of the body
    answer_media: str = "application/json"
    is_read: bool = field(init=False)  # of a board
    known: tuple[str, ...] = field(init=False)  # names of its parameters

    def __post_init__(self) -> None:
        """Have the names at hand."""
        object.__setattr__(self, "is_read", not self.is_write and self.path.startswith("/v1/boards/"))
        object.__setattr__(self, "known", tuple(parameter.name for parameter in self.parameters))
