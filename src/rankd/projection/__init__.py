"""Stage 5 of a score's path: events become ranks."""
