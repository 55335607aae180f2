"""The archive of windows that are over: written once, read by every process, pruned.

    keep: sum of the ranks → Parquet on this disk → the object → read back → the manifest, by conditional create
    find: the newest valid manifest → ArchivedStandings

Killed at any step, or run by two at once, it leaves at most one manifest that counts, of a whole file.
"""

from __future__ import annotations

import tempfile
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from hashlib import blake2b
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

from rankd.archive.archived_standings import ArchivedStandings, fetch_from
from rankd.archive.manifest import (
    FORMAT,
    ROOT,
    ArchivedFile,
    Manifest,
    NumberedManifest,
    decode_manifest,
    encode_manifest,
    file_name,
    folder_of,
    is_window_folder,
    manifest_path,
    read_window,
)
from rankd.archive.objects import ObjectStore, StoredObject
from rankd.archive.piece_cache import PieceCache
from rankd.archive.row_groups import DecodedGroups
from rankd.archive.standings_file import (
    FinalWindow,
    WrittenFile,
    digest_of_file,
    digests_of,
    parquet,
    write_standings,
)
from rankd.domain.board import Board
from rankd.domain.definition import define_board, definition_of
from rankd.domain.position import is_upto, parse_positions
from rankd.errors import ArchiveDamaged, ArchiveUnavailable
from rankd.folder import FOLDER_MODE
from rankd.projection.port import WindowSum

OPEN_MAX = 256  # windows whose file is open
LOOKED_UP_S = 60.0  # how long a manifest that was read counts, and one that was missing
MISSING_S = 5.0
ATTEMPTS_MAX = 10  # at a manifest's number, while others write
UNNAMED_MS = 86_400_000  # age after which a file that no manifest names is nobody's
_READ_BYTES = 8 * 1024 * 1024
CACHE_BYTES_MAX = 1024 * 1024 * 1024


class _Opened(NamedTuple):
    """A window that was looked up."""

    standings: ArchivedStandings | None
    until_s: float  # monotonic


class Pruned(NamedTuple):
    """What was deleted."""

    windows: int
    objects: int
    size: int  # bytes


class WindowArchive:
    """The final standings in an object store; from any thread."""

    def __init__(
        self, objects: ObjectStore, scratch: Path | None = None, cache_bytes_max: int = CACHE_BYTES_MAX
    ) -> None:
        """`scratch` is a folder on this machine for drafts and cached pieces; None: the system's, and no cache."""
        self.objects = objects
        self._scratch = scratch
        self._read: Callable[[str, int, int], bytes | None] = objects.get_range
        if scratch is not None and not objects.is_local:
            self._read = PieceCache(objects, scratch / "pieces", cache_bytes_max).get_range
        self._decoded = DecodedGroups()
        self._opened: OrderedDict[str, _Opened] = OrderedDict()
        self._lock = threading.Lock()
        self.before_find: Callable[[], None] = lambda: None  # raises where a caller may not wait

    # Writing

    def keep(
        self, window: FinalWindow, position: Callable[[], str], between: Callable[[], None] = lambda: None
    ) -> WindowSum:
        """Write the final standings of a window instance unless they are there; return the sum of what is archived.

        A player may be removed from a final window: then there is a new file. `position` is that of the ranks.
        `between` is called regularly while writing; an exception from it leaves nothing that counts.
        """
        folder = folder_of(window.board.id, window.live.born, window.instance)
        for _ in range(ATTEMPTS_MAX):
            ranked_at, whole = position(), window.sum()
            archived = read_window(self.objects, folder)
            newest = archived.newest
            if newest is not None and newest.manifest.window_sum == whole:
                self._delete_older(newest, archived.objects)
                return whole
            if newest is not None and not is_upto(
                parse_positions(ranked_at), parse_positions(newest.manifest.position)
            ):
                raise ArchiveUnavailable(
                    f"{folder} has been written from newer ranks than these; it is tried again when these are as new"
                )
            manifest = self._write(window, ranked_at, whole, between)
            if manifest is None:
                continue  # a player was removed meanwhile
            if self.objects.put_new(manifest_path(folder, archived.number + 1), encode_manifest(manifest)):
                self._forget(folder)
        raise ArchiveUnavailable(f"{folder} is written by others at the same time; it is tried again")

    def _write(
        self, window: FinalWindow, ranked_at: str, whole: WindowSum, between: Callable[[], None]
    ) -> Manifest | None:
        """Store the file of a window instance and return its manifest; None if the ranks changed meanwhile."""
        if self._scratch is not None:
            self._scratch.mkdir(FOLDER_MODE, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".draft-", dir=self._scratch, ignore_cleanup_errors=True) as drafts:
            file = Path(drafts, "standings.parquet")
            written = write_standings(window, file, between)
            is_equal = window.board.archive_top is not None or self._is_as_ranked(window, file, between)
            if window.sum() != whole:
                return None
            if not is_equal:
                raise ArchiveDamaged(
                    f"{window.instance} of board {window.board.id} is not in its file as it is ranked: check memory "
                    "and disk, and run `rankd verify`"
                )
            manifest = manifest_of(window, ranked_at, whole, written)
            between()
            self.objects.put_file(manifest.file_path, file)
        if not self._is_whole(manifest, between):
            self.objects.delete(manifest.file_path)  # bytes that are not those of its name are nobody's
            raise ArchiveUnavailable(f"{manifest.file_path} does not read as it was written; it is written again")
        return manifest

    def _is_as_ranked(self, window: FinalWindow, file: Path, between: Callable[[], None]) -> bool:
        """Tell whether each scope in a file has the digest that it has in the ranks."""
        board = window.board
        with parquet().ParquetFile(str(file)) as written:

            def tables() -> Iterator[Any]:
                for index in range(written.num_row_groups):
                    yield written.read_row_group(index)
                    between()

            archived = digests_of(tables(), board, board.rules_for(board.window_of(window.instance)))
        return archived == {key.scope: window.store.digest(key) for key in window.instances()}

    def _is_whole(self, manifest: Manifest, between: Callable[[], None] = lambda: None) -> bool:
        """Read a file back from the object store, and compare its digest."""
        hashed, start, size = blake2b(digest_size=32), 0, manifest.file.size
        while start < size:
            piece = self.objects.get_range(manifest.file_path, start, min(size, start + _READ_BYTES))
            if not piece:
                return False
            hashed.update(piece)
            start += len(piece)
            between()
        return hashed.hexdigest() == manifest.file.digest

    def _delete_older(self, newest: NumberedManifest, objects: Mapping[str, StoredObject]) -> None:
        """Delete what the newest manifest replaces: somebody was removed from it.

        Others may be writing a file that no manifest names yet, so only files of older manifests are deleted.
        """
        folder = newest.manifest.folder
        for number in range(newest.number - 1, 0, -1):
            path = manifest_path(folder, number)
            if path not in objects:
                continue
            data = self.objects.get(path)
            older = None if data is None else decode_manifest(data, folder)
            if older is not None and older.file.name != newest.manifest.file.name:
                self.objects.delete(older.file_path)
            self.objects.delete(path)

    # Reading

    def find(self, board_id: str, born: int, instance: str) -> ArchivedStandings | None:
        """Return the standings of a window instance; None where there are none. It may wait for the network."""
        self.before_find()
        folder = folder_of(board_id, born, instance)
        with self._lock:
            opened = self._opened.get(folder)
            if opened is not None and opened.until_s > monotonic():
                self._opened.move_to_end(folder)
                return opened.standings
        newest = read_window(self.objects, folder).newest
        standings = None
        if newest is not None:
            is_same = (
                opened is not None and opened.standings is not None and opened.standings.manifest == newest.manifest
            )
            standings = opened.standings if is_same and opened is not None else self.open(newest.manifest)
        with self._lock:
            self._opened[folder] = _Opened(standings, monotonic() + (MISSING_S if standings is None else LOOKED_UP_S))
            while len(self._opened) > OPEN_MAX:
                self._opened.popitem(last=False)
        return standings

    def open(self, manifest: Manifest) -> ArchivedStandings:
        """Open the file of a manifest."""

        def read(path: str, start: int, end: int) -> bytes | None:
            data = self._read(path, start, end)
            if data is None:  # another process has pruned it, or replaced it
                self._forget(manifest.folder)
            return data

        return ArchivedStandings(manifest, fetch_from(read, manifest), self._decoded)

    def _forget(self, folder: str) -> None:
        with self._lock:
            self._opened.pop(folder, None)

    # Upkeep

    def manifests(self, board_id: str | None = None) -> Iterator[NumberedManifest]:
        """Yield the manifests that count, of one board or of all, by path."""
        for folder in self._folders(board_id):
            newest = read_window(self.objects, folder).newest
            if newest is not None:
                yield newest

    def _folders(self, board_id: str | None = None) -> list[str]:
        folders = {each.path.rpartition("/")[0] for each in self.objects.list(ROOT)}
        return sorted(
            folder
            for folder in folders
            if is_window_folder(folder) and board_id in (None, folder.split("/")[1].rpartition(".v")[0])
        )

    def check(self, manifest: Manifest) -> str | None:
        """Read a whole window back and work out its digests; return what is wrong, None if nothing is."""
        if not self._is_whole(manifest):
            return "the file is missing, or its bytes are not those that were written"
        expected: dict[str, int] = {}

        def tables() -> Iterator[Any]:
            for table in self.open(manifest).tables():
                pairs = zip(table.column("scope").to_pylist(), table.column("digest").to_pylist(), strict=True)
                expected.update({scope: int(digest, 16) for scope, digest in set(pairs)})
                yield table

        try:
            board = define_board(manifest.board, manifest.definition)
            digests = digests_of(tables(), board, board.rules_for(board.window_of(manifest.window)))
        except ArchiveDamaged as problem:
            return str(problem)
        if manifest.top is None and digests != expected:
            return "the standings do not have the digests that were archived with them"
        return None

    def copy(self, manifest: Manifest, file: Path) -> None:
        """Copy the file of a window, and check its digest."""
        read = fetch_from(self.objects.get_range, manifest)
        with file.open("wb") as copied:
            for start in range(0, manifest.file.size, _READ_BYTES):
                copied.write(read(start, min(manifest.file.size, start + _READ_BYTES)))
        if digest_of_file(file) != manifest.file.digest:
            raise ArchiveDamaged(f"{manifest.file_path} has other bytes than were written: restore a copy of it")

    def prune(self, kept_until: Callable[[Manifest], int | None], now: int) -> Pruned:
        """Delete windows that are kept no longer, and what no manifest names for a day.

        `kept_until` returns when a window leaves the archive, in ms; None for never.
        """
        windows = deleted = size = 0
        for folder in self._folders():
            window = read_window(self.objects, folder)
            until = None if window.newest is None else kept_until(window.newest.manifest)
            if window.newest is not None and until is not None and until <= now:
                # Manifests first: a reader finds a whole window or none.
                leaving = sorted(window.objects, key=lambda path: not path.endswith(".json"))
                windows += 1
                self._forget(folder)
            else:
                named = set() if window.newest is None else {window.newest.path, window.newest.manifest.file_path}
                leaving = [
                    path
                    for path, stored in window.objects.items()
                    if path not in named and stored.modified_at < now - UNNAMED_MS
                ]
            for path in leaving:
                self.objects.delete(path)
                deleted += 1
                size += window.objects[path].size
        return Pruned(windows, deleted, size)


def archived_until(manifest: Manifest, board: Board | None = None) -> int | None:
    """Return when a window leaves the archive, in ms, by a definition of today or by its own; None for never."""
    definition = define_board(manifest.board, manifest.definition)
    window = definition.window_of(manifest.window)
    return None if manifest.closed_at is None else (board or definition).archived_until(window, manifest.closed_at)


def manifest_of(window: FinalWindow, ranked_at: str, whole: WindowSum, written: WrittenFile) -> Manifest:
    """Return the manifest of a file that was written."""
    board, instance = window.board, window.instance
    return Manifest(
        format=FORMAT,
        board=board.id,
        born=window.live.born,
        version=window.live.version,
        window=instance,
        definition=definition_of(board),
        position=ranked_at,
        closed_at=board.final_at(board.window_of(instance), instance),
        top=board.archive_top,
        instances=whole.instances,
        entries=whole.entries,
        digest=f"{whole.digest:032x}",
        file=ArchivedFile(
            name=file_name(written.digest),
            size=written.size,
            digest=written.digest,
            rows=written.rows,
            footer_bytes=written.footer_bytes,
            rows_per_group=written.rows_per_group,
        ),
    )
