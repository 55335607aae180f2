"""Stage 3 of a score's path: events become durable."""
