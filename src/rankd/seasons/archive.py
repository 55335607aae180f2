"""Final standings in files: written when a window is final, before it leaves the rank store.

    archive/<board>/<window instance>.jsonl.gz

The first line says what the file is about: board, definition, window, scopes with their totals and digests. Each line
after it is an entry, scope by scope in standing order. The file is complete or absent, and names players by id: erasing
somebody rewrites the files they stand in.
"""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from rankd.domain.board import Board
from rankd.domain.definition import definition_of
from rankd.domain.instance import InstanceKey
from rankd.errors import SnapshotDamaged
from rankd.folder import FOLDER_MODE, private_opener
from rankd.projection.checkpoints import sync_folder
from rankd.projection.placement import visible_scopes
from rankd.projection.port import RankStore, walk
from rankd.projection.state import BoardState

FORMAT = 1
_LEVEL = 5
_CHUNK = 1_000
_LINES = 10_000


class ArchivedScope(msgspec.Struct, frozen=True):
    """One scope of an archived window."""

    scope: str
    total: int
    digest: str  # hexadecimal


class ArchiveHead(msgspec.Struct, frozen=True):
    """The first line of an archive."""

    format: int
    board: str
    version: int
    window: str
    definition: dict[str, object]
    scopes: list[ArchivedScope]


class ArchivedEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One entry: the ordinal rank and what was kept."""

    scope: str
    rank: int
    player: str
    score: int
    reached_at: int | None = None
    tiebreak: int | None = None


class Archive:
    """The archives of a data folder."""

    def __init__(self, folder: Path) -> None:
        """Nothing is made until there is something to keep."""
        self._folder = folder
        self._kept: dict[Path, list[ArchivedScope]] = {}

    def path(self, board_id: str, born: int, instance: str) -> Path:
        """Return where the final standings of a window instance are or will be.

        `born` tells a board from one of the same id that was deleted before.
        """
        return self._folder / board_id / f"{instance.replace(':', '_')}.v{born}.jsonl.gz"

    def is_kept(self, store: RankStore, board: Board, live: BoardState, instance: str) -> bool:
        """Tell whether the final standings of a window instance are in a file as they are now."""
        path = self.path(board.id, live.born, instance)
        if path not in self._kept and path.exists():
            with suppress(SnapshotDamaged):  # it is written again
                self._kept[path] = read_archive(path)[0].scopes
        return self._kept.get(path) == _scopes(store, board, live, instance)

    def keep(
        self,
        store: RankStore,
        board: Board,
        live: BoardState,
        instance: str,
        between: Callable[[], None] | None = None,
    ) -> Path:
        """Write the final standings of a window instance, unless they are there as they are now.

        A player may be removed from a window that is final: then its file is written again. `between` is called now and
        then while it is written; what it raises ends that, and leaves no file.
        """
        path = self.path(board.id, live.born, instance)
        while not self.is_kept(store, board, live, instance):  # again, if somebody was removed meanwhile
            scopes = _scopes(store, board, live, instance)
            for folder in (self._folder, path.parent):
                folder.mkdir(FOLDER_MODE, exist_ok=True)
            draft = path.with_suffix(".draft")
            try:
                with (
                    open(draft, "wb", opener=private_opener) as file,
                    gzip.GzipFile(fileobj=file, mode="wb", compresslevel=_LEVEL) as packed,
                ):
                    for lines in _lines(store, board, live, instance, scopes):
                        packed.write(lines)
                        if between is not None:
                            between()
                    packed.close()
                    file.flush()
                    os.fsync(file.fileno())
                if scopes == _scopes(store, board, live, instance):
                    draft.replace(path)
                    self._kept[path] = scopes
            finally:
                draft.unlink(missing_ok=True)
            sync_folder(path.parent)
        return path


def _scopes(store: RankStore, board: Board, live: BoardState, instance: str) -> list[ArchivedScope]:
    keys = [InstanceKey(board.id, instance, scope) for scope in visible_scopes(live.windows.get(instance, set()))]
    return [ArchivedScope(key.scope, store.total(key), f"{store.digest(key):032x}") for key in keys]


def _lines(
    store: RankStore, board: Board, live: BoardState, instance: str, scopes: list[ArchivedScope]
) -> Iterator[bytes]:
    head = ArchiveHead(FORMAT, board.id, live.version, instance, definition_of(board), scopes)
    yield msgspec.json.encode(head) + b"\n"
    encoder = msgspec.json.Encoder()
    for one in scopes:
        key = InstanceKey(board.id, instance, one.scope)
        lines = bytearray()
        for count, entry in enumerate(walk(store, key, _CHUNK), start=1):
            archived = ArchivedEntry(
                key.scope, entry.rank, entry.player, entry.score, board.reached_at(entry.tie), board.tiebreak(entry.tie)
            )
            lines += encoder.encode(archived) + b"\n"
            if count % _LINES == 0:
                yield bytes(lines)
                lines.clear()
        yield bytes(lines)


def read_archive(path: Path) -> tuple[ArchiveHead, Iterator[ArchivedEntry]]:
    """Read final standings back; SnapshotDamaged when the file is not whole."""
    decode = msgspec.json.Decoder(ArchivedEntry).decode

    def entries() -> Iterator[ArchivedEntry]:
        try:
            with gzip.open(path, "rb") as lines:
                next(lines)
                for line in lines:
                    yield decode(line)
        except (OSError, EOFError, msgspec.DecodeError) as problem:
            raise SnapshotDamaged(f"{path.name} is damaged: {problem}") from problem

    try:
        with gzip.open(path, "rb") as lines:
            head = msgspec.json.decode(next(lines), type=ArchiveHead)
    except (OSError, EOFError, StopIteration, msgspec.DecodeError) as problem:
        raise SnapshotDamaged(f"{path.name} is damaged: {problem}") from problem
    return head, entries()
