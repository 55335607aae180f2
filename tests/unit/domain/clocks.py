"""Zones with unusual clocks, and instants and days as people write them."""

from __future__ import annotations

from datetime import UTC, datetime

ZONES = [
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "America/Sao_Paulo",
    "Africa/Cairo",
    "Africa/Monrovia",
    "Asia/Kolkata",
    "Asia/Kathmandu",
    "Asia/Pyongyang",
    "Australia/Lord_Howe",
    "Pacific/Chatham",
    "Pacific/Apia",
    "America/St_Johns",
    "Antarctica/Casey",
    "America/Nuuk",
]


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp()) * 1000


def day_of(text: str) -> int:
    return (datetime.fromisoformat(text).replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)).days
