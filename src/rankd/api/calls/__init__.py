"""The calls of the API: their table and their handlers."""
