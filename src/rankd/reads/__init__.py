"""Ranks come out: what a read means, and its answer."""
