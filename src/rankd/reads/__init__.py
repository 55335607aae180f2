"""Reads: resolve the instance, ask the rank store, answer."""
