"""Live: applied changes become conflated, resumable messages."""
