"""Boards that look alive: simulated players with believable scores."""

from rankd.demo.run import run

__all__ = ["run"]
