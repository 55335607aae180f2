"""A demonstration with simulated players and plausible scores."""

from rankd.demo.run import run

__all__ = ["run"]
