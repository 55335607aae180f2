"""Beside a score's path: who the players are."""
