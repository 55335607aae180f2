"""Reads while Redis is away: standings in PostgreSQL, written by the projector."""
