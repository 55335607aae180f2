"""The archive of a process: what `archive.url` names, or a folder in its own."""

from __future__ import annotations

from pathlib import Path

from rankd.archive.open_objects import open_objects
from rankd.archive.windows import WindowArchive
from rankd.settings import Settings

ARCHIVE, SCRATCH = "archive", "archive-scratch"  # in the folder of the process


def open_archive(settings: Settings, folder: Path) -> WindowArchive:
    """Return the archive of a process with a folder of its own; nothing is asked of it yet."""
    objects = open_objects(
        settings.archive_url,
        folder / ARCHIVE,
        endpoint=settings.archive_endpoint,
        region=settings.archive_region,
    )
    return WindowArchive(objects, folder / SCRATCH, settings.archive_cache_bytes_max)


def open_shared_archive(settings: Settings) -> WindowArchive | None:
    """Return the archive that processes share; None where there is none. Nothing is cached on disk."""
    if not settings.archive_url:
        return None
    objects = open_objects(
        settings.archive_url, Path(), endpoint=settings.archive_endpoint, region=settings.archive_region
    )
    return WindowArchive(objects)
