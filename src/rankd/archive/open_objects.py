"""Opens the object store that archive.url names."""

from __future__ import annotations

from pathlib import Path

from rankd.archive.folder_objects import FolderObjects
from rankd.archive.objects import ObjectStore
from rankd.archive.remote_objects import RemoteObjects
from rankd.config.checks import check_archive_url, is_bucket


def open_objects(url: str, default: Path, *, endpoint: str = "", region: str = "") -> ObjectStore:
    """Open a folder or a bucket; `default` is the folder where `url` is empty. Nothing is asked of it yet."""
    if not url:
        return FolderObjects(default)
    check_archive_url("archive.url", url)
    if is_bucket(url):
        return RemoteObjects(url, endpoint=endpoint, region=region)
    return FolderObjects(Path(url.removeprefix("file://")).expanduser())
