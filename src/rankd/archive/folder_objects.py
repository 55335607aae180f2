"""The object store in a folder: durable, private to its owner, without a driver.

    put → .drafts/<random> (written, synced) → linked to its path, which fails if there is one → the folder synced

A link appears at once and whole. A draft that a crash has left is removed by a later start of this adapter.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import time
from typing import IO

from rankd.archive.objects import StoredObject, check_path, check_prefix, check_range
from rankd.errors import ArchiveRefused, ArchiveUnavailable
from rankd.folder import FOLDER_MODE, private_opener, sync_folder

DRAFTS = ".drafts"
DRAFT_S_MAX = 86_400.0  # age after which nobody writes it any more
_CHUNK_BYTES = 1024 * 1024
_NEEDS_SOMEBODY = {errno.EACCES, errno.EEXIST, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG}
_HAS_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}
Write = Callable[[IO[bytes]], object]


class FolderObjects:
    """Objects as files of a folder, which the first put creates."""

    is_local = True

    def __init__(self, folder: Path) -> None:
        """Nothing is read or written yet."""
        self._folder = folder
        self._has_swept = False

    @property
    def url(self) -> str:
        """The folder."""
        return str(self._folder)

    def file(self, path: str) -> Path:
        """Return the file of an object, which may not exist."""
        return self._folder / check_path(path)

    def put_new(self, path: str, data: bytes) -> bool:
        """Store an object unless there is one under this path; tell whether it was stored."""
        return self._put(path, lambda draft: draft.write(data))

    def put_file(self, path: str, file: Path) -> None:
        """Store a file under a path that names its content."""

        def copy(draft: IO[bytes]) -> None:
            with file.open("rb") as source:
                shutil.copyfileobj(source, draft, _CHUNK_BYTES)

        self._put(path, copy)

    def get(self, path: str) -> bytes | None:
        """Return a whole object; None when there is none."""
        with self._translate_errors():
            try:
                return self.file(path).read_bytes()
            except (FileNotFoundError, IsADirectoryError):
                return None

    def get_range(self, path: str, start: int, end: int) -> bytes | None:
        """Return bytes `start` … `end` (exclusive), fewer where the object ends; None when there is none."""
        check_range(start, end)
        with self._translate_errors():
            try:
                with self.file(path).open("rb") as file:
                    file.seek(start)
                    return file.read(end - start)
            except (FileNotFoundError, IsADirectoryError):
                return None

    def list(self, prefix: str) -> Iterator[StoredObject]:
        """Yield the objects below a folder, or all of them for ""."""
        top = self._folder / check_prefix(prefix)
        for root, folders, files in os.walk(top, onerror=self._raise):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            for name in sorted(files):
                if name.startswith("."):
                    continue
                path = Path(root, name)
                with suppress(FileNotFoundError):  # deleted meanwhile
                    status = path.lstat()
                    yield StoredObject(
                        path.relative_to(self._folder).as_posix(), status.st_size, status.st_mtime_ns // 1_000_000
                    )

    def delete(self, path: str) -> None:
        """Delete an object; it is no error when there is none."""
        file = self.file(path)
        with self._translate_errors():
            try:
                file.unlink()
            except FileNotFoundError:
                return
            sync_folder(file.parent)

    def _put(self, path: str, write: Write) -> bool:
        file = self.file(path)
        with self._translate_errors():
            drafts = self._folder / DRAFTS
            self._make_folders(drafts)
            self._sweep(drafts)
            self._make_folders(file.parent)
            draft = drafts / secrets.token_hex(16)
            try:
                with open(draft, "xb", opener=private_opener) as opened:
                    write(opened)
                    opened.flush()
                    os.fsync(opened.fileno())
                is_new = self._link(draft, file)
            finally:
                draft.unlink(missing_ok=True)
            sync_folder(file.parent)
            return is_new

    def _link(self, draft: Path, file: Path) -> bool:
        try:
            os.link(draft, file, follow_symlinks=False)
        except FileExistsError:
            return False
        except OSError as problem:
            if problem.errno in _HAS_NO_LINKS:
                raise ArchiveRefused(
                    f"the file system of {self._folder} has no hard links, by which an object appears whole "
                    f"({problem.strerror}); name a folder on another one as archive.url"
                ) from problem
            raise
        return True

    def _make_folders(self, folder: Path) -> None:
        """Create a folder with those above it, each durable before what is in it."""
        if folder.is_dir():
            return
        missing = [folder]
        while not missing[-1].parent.is_dir():
            missing.append(missing[-1].parent)
        for path in reversed(missing):
            path.mkdir(FOLDER_MODE, exist_ok=True)
            sync_folder(path.parent)

    def _sweep(self, drafts: Path) -> None:
        """Remove the drafts of processes that were killed, once."""
        if self._has_swept:
            return
        self._has_swept = True
        for draft in drafts.iterdir():
            with suppress(OSError):
                if draft.stat().st_mtime < time() - DRAFT_S_MAX:
                    draft.unlink()

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as problem:
            self._raise(problem)

    def _raise(self, problem: OSError) -> None:
        if isinstance(problem, FileNotFoundError):  # nothing was ever stored there
            return
        message, public = f"the archive {self._folder} cannot be used: {problem.strerror}", "the archive cannot be used"
        if problem.errno in _NEEDS_SOMEBODY:
            raise ArchiveRefused(
                f"{message}; the user that runs rankd has to own it, or name another folder as archive.url",
                public_message=public,
            ) from problem
        raise ArchiveUnavailable(f"{message}; make room, or look at the disk", public_message=public) from problem
