"""rankd: a real-time leaderboard with exact ranks."""

from importlib.metadata import version

__version__ = version("rankd")
