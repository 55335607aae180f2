"""rankd: a real-time leaderboard with exact ranks."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING

from rankd.backend import Started
from rankd.boards import Boards
from rankd.clock import Clock, ManualClock, SystemClock
from rankd.errors import RankdError
from rankd.intake.results import Batched, Changed, Submitted
from rankd.node.open_embedded import open_boards as open  # noqa: A004 - rankd.open(…) is how it reads
from rankd.projection.verify import Report
from rankd.reads.answers import Around, Distribution, Entry, Friend, Friends, Page, Place, Ranks, Standing
from rankd.registry.port import Profile

if TYPE_CHECKING:
    from rankd.client import AsyncClient, Client

__version__ = version("rankd")
__all__ = [
    "Around",
    "AsyncClient",
    "Batched",
    "Boards",
    "Changed",
    "Client",
    "Clock",
    "Distribution",
    "Entry",
    "Friend",
    "Friends",
    "ManualClock",
    "Page",
    "Place",
    "Profile",
    "RankdError",
    "Ranks",
    "Report",
    "Standing",
    "Started",
    "Submitted",
    "SystemClock",
    "__version__",
    "open",
]

_CLIENTS = ("AsyncClient", "Client")


def __getattr__(name: str) -> object:
    """Import the clients, and the HTTP library behind them, only when they are used."""
    if name in _CLIENTS:
        return getattr(import_module("rankd.client"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
