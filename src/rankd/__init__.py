"""rankd: a real-time leaderboard with exact ranks."""

from importlib.metadata import version

from rankd.boards import Boards
from rankd.clock import Clock, ManualClock, SystemClock
from rankd.compose import open_boards as open  # noqa: A004 - rankd.open(…) is how it reads
from rankd.errors import RankdError
from rankd.intake.results import Batched, Changed, Submitted
from rankd.projection.verify import Report
from rankd.reads.answers import Around, Distribution, Entry, Friend, Friends, Page, Place, Ranks, Standing
from rankd.registry.port import Profile
from rankd.running import Started

__version__ = version("rankd")
__all__ = [
    "Around",
    "Batched",
    "Boards",
    "Changed",
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
