"""Pieces of remote objects on this machine's disk: each is fetched once, the last used ones stay.

A cache: it may be deleted at any time, and a disk that is full or failing costs requests, nothing else.
"""

from __future__ import annotations

import os
import secrets
import threading
from collections import OrderedDict
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

from rankd.archive.objects import ObjectStore
from rankd.folder import FOLDER_MODE, private_opener

_DIGEST_BYTES = 16


class PieceCache:
    """Reads ranges of objects through a folder; from any thread."""

    def __init__(self, objects: ObjectStore, folder: Path, bytes_max: int) -> None:
        """What an earlier process has left in the folder is used on."""
        self._objects = objects
        self._folder = folder
        self._bytes_max = bytes_max
        self._lock = threading.Lock()
        self._sizes: OrderedDict[str, int] | None = None  # of the pieces, the last used at the end
        self._bytes = 0

    def get_range(self, path: str, start: int, end: int) -> bytes | None:
        """Return bytes of an object that never changes; None when there is none."""
        name = blake2b(f"{self._objects.url} {path} {start} {end}".encode(), digest_size=_DIGEST_BYTES).hexdigest()
        data = self._read(name, end - start)
        if data is None:
            data = self._objects.get_range(path, start, end)
            if data is not None and len(data) == end - start:
                self._add(name, data)
        return data

    def _read(self, name: str, size: int) -> bytes | None:
        with self._lock:
            sizes = self._load()
            if sizes.get(name) is None:
                return None
            sizes.move_to_end(name)
        with suppress(OSError):
            data = (self._folder / name).read_bytes()
            digest, piece = data[:_DIGEST_BYTES], data[_DIGEST_BYTES:]
            if len(piece) == size and blake2b(piece, digest_size=_DIGEST_BYTES).digest() == digest:
                return piece
        return None

    def _add(self, name: str, piece: bytes) -> None:
        size = len(piece) + _DIGEST_BYTES
        if size > self._bytes_max:
            return
        draft = self._folder / f".{secrets.token_hex(8)}"
        try:
            self._folder.mkdir(FOLDER_MODE, parents=True, exist_ok=True)
            with open(draft, "xb", opener=private_opener) as file:
                file.write(blake2b(piece, digest_size=_DIGEST_BYTES).digest())
                file.write(piece)
            draft.replace(self._folder / name)
        except OSError:
            with suppress(OSError):
                draft.unlink(missing_ok=True)
            return
        with self._lock:
            sizes = self._load()
            self._bytes += size - sizes.pop(name, 0)
            sizes[name] = size
            leaving = []
            while self._bytes > self._bytes_max:
                oldest, bytes_of = sizes.popitem(last=False)
                self._bytes -= bytes_of
                leaving.append(oldest)
        for oldest in leaving:
            with suppress(OSError):
                (self._folder / oldest).unlink()

    def _load(self) -> OrderedDict[str, int]:
        """Find out what is there, the first time; the caller holds the lock."""
        if self._sizes is not None:
            return self._sizes
        pieces: list[tuple[float, str, int]] = []
        with suppress(OSError):
            for entry in os.scandir(self._folder):
                status = entry.stat(follow_symlinks=False)
                if entry.name.startswith("."):  # a draft of a process that was killed
                    os.unlink(entry.path)
                else:
                    pieces.append((status.st_mtime, entry.name, status.st_size))
        self._sizes = OrderedDict((name, size) for _, name, size in sorted(pieces))
        self._bytes = sum(self._sizes.values())
        return self._sizes
