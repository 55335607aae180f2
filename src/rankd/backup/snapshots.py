"""Checkpoints of the engine in the archive: a restored folder opens from one, and follows the rest of its ledger.

    <folder>/snapshots/<events>/ ▸ ledger/snapshots/<events>/<file>-<digest> ▸ ledger/snapshots/<events>/manifest

The manifest is written last, and names the bytes and the digest of each file. A checkpoint only saves time: one that is
missing or damaged is skipped.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

import msgspec

from rankd.archive.objects import ObjectStore
from rankd.backup.segment import DIGEST_BYTES
from rankd.errors import ArchiveUnusable
from rankd.folder import FOLDER_MODE, private_opener, sync_folder

SNAPSHOTS = "ledger/snapshots"
MANIFEST = "manifest"
SNAPSHOTS_KEPT = 3  # in the archive, the newest ones
_PART_BYTES = 8 * 1024 * 1024  # read at once
_DRAFT = "draft-archive"  # beside the checkpoints; removed at the next start
_NAME = re.compile(r"[a-z]+\.rankd")
_log = logging.getLogger("rankd")


class StoredFile(msgspec.Struct, frozen=True):
    """A file of a checkpoint."""

    name: str
    bytes: int
    digest: str

    @property
    def object_name(self) -> str:
        """Its name in the archive."""
        return f"{self.name}-{self.digest}"


class SnapshotManifest(msgspec.Struct, frozen=True):
    """A checkpoint in the archive."""

    events: int
    files: list[StoredFile]


def send_snapshot(objects: ObjectStore, snapshots: Path) -> int | None:
    """Send the newest checkpoint unless the archive has it or a newer one; return its events."""
    newest = max((path for path in snapshots.iterdir() if path.name.isdigit()), default=None)
    if newest is None or int(newest.name) <= max(_manifests(objects), default=-1):
        return None
    events, draft = int(newest.name), snapshots / _DRAFT
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(FOLDER_MODE)
    try:
        with suppress(FileNotFoundError):  # replaced by newer ones meanwhile: the next time
            for file in sorted(newest.iterdir()):
                os.link(file, draft / file.name)  # stays when the checkpoint is deleted
            files = [_send_file(objects, events, file) for file in sorted(draft.iterdir())]
            manifest = msgspec.json.encode(SnapshotManifest(events, files))
            objects.put_new(_path(events, MANIFEST), manifest)
            _delete_old(objects)
            return events
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return None


def _send_file(objects: ObjectStore, events: int, file: Path) -> StoredFile:
    digest = blake2b(digest_size=DIGEST_BYTES)
    with file.open("rb") as opened:
        while part := opened.read(_PART_BYTES):
            digest.update(part)
        stored = StoredFile(file.name, opened.tell(), digest.hexdigest())
    objects.put_file(_path(events, stored.object_name), file)
    return stored


def _delete_old(objects: ObjectStore) -> None:
    for events in _manifests(objects)[SNAPSHOTS_KEPT:]:
        objects.delete(_path(events, MANIFEST))  # first: what is left is no checkpoint any more
        for stored in list(objects.list(f"{SNAPSHOTS}/{events:020}")):
            objects.delete(stored.path)


def _manifests(objects: ObjectStore) -> list[int]:
    """Return the events of each checkpoint in the archive, the newest first."""
    paths = (stored.path.split("/") for stored in objects.list(SNAPSHOTS))
    return sorted((int(path[2]) for path in paths if path[-1] == MANIFEST and path[2].isdigit()), reverse=True)


def _path(events: int, name: str) -> str:
    return f"{SNAPSHOTS}/{events:020}/{name}"


def fetch_snapshot(objects: ObjectStore, snapshots: Path, upto: int) -> int | None:
    """Fetch the newest checkpoint of at most `upto` events, and return its events; None where there is none."""
    for events in _manifests(objects):
        if events > upto:
            continue
        target = snapshots / f"{events:020}"
        try:
            _fetch(objects, events, target)
        except (ArchiveUnusable, msgspec.MsgspecError, _DamagedError) as problem:
            shutil.rmtree(target, ignore_errors=True)
            _log.warning("the checkpoint of event %d in the archive is skipped: %s", events, problem)
        else:
            return events
    return None


class _DamagedError(Exception):
    """A file is missing, or is not the one that was sent."""


def _fetch(objects: ObjectStore, events: int, target: Path) -> None:
    manifest = msgspec.json.decode(objects.get(_path(events, MANIFEST)) or b"", type=SnapshotManifest)
    target.mkdir(FOLDER_MODE, parents=True, exist_ok=True)
    for stored in manifest.files:
        if not _NAME.fullmatch(stored.name):
            raise _DamagedError(f"{stored.name!r:.40} is no file of a checkpoint")
        digest = blake2b(digest_size=DIGEST_BYTES)
        with open(target / stored.name, "xb", opener=private_opener) as file:
            for start in range(0, stored.bytes, _PART_BYTES):
                end = min(start + _PART_BYTES, stored.bytes)
                part = objects.get_range(_path(events, stored.object_name), start, end)
                if part is None or len(part) != end - start:
                    raise _DamagedError(f"{stored.object_name} is missing or too short")
                digest.update(part)
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
        if digest.hexdigest() != stored.digest:
            raise _DamagedError(f"{stored.object_name} is not what was sent")
    sync_folder(target)
