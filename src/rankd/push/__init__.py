"""Live topics: applied changes become conflated, resumable messages."""
