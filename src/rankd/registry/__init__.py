"""Beside a score's path: profiles, friends and credentials."""
