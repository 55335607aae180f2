"""Archives: the final standings of a window in a file, written before the window leaves the rank store.

    archive/<board>/<window instance>.jsonl.gz

The first line says what the file is about: board, definition, window, and how many instances and entries there are in
all its scopes, with the sum of their digests. Each line after it is an entry, scope by scope in standing order. It is
one file however many scopes there are, complete or absent, and names players by id: erasing a player rewrites the files
that name them.
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
from rankd.folder import FOLDER_MODE, private_opener, sync_folder
from rankd.projection.placement import is_team_scope
from rankd.projection.port import RankStore, WindowSum, walk
from rankd.projection.state import BoardState

FORMAT = 2
_LEVEL = 5
_CHUNK = 1_000
_LINES = 500  # of one part: a millisecond's work


class ArchiveHead(msgspec.Struct, frozen=True):
    """The first line of an archive."""

    format: int
    board: str
    version: int
    window: str
    definition: dict[str, object]
    instances: int  # these three: of all scopes, including the contributions of teams' players
    entries: int
    digest: str  # hexadecimal


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
        """The first archive creates the folder."""
        self._folder = folder
        self._kept: dict[Path, WindowSum] = {}

    def path(self, board_id: str, born: int, instance: str) -> Path:
        """Return the file of a window instance.

        `born` distinguishes a board from a deleted one of the same id.
        """
        return self._folder / board_id / f"{instance.replace(':', '_')}.v{born}.jsonl.gz"

    def is_kept(self, store: RankStore, board: Board, live: BoardState, instance: str) -> bool:
        """Return whether the file of a window instance is up to date."""
        path = self.path(board.id, live.born, instance)
        if path not in self._kept and path.exists():
            with suppress(SnapshotDamaged):  # it is written again
                head, _ = read_archive(path)
                self._kept[path] = WindowSum(head.instances, head.entries, int(head.digest, 16))
        return self._kept.get(path) == store.window_sum(board.id, instance)

    def keep(
        self,
        store: RankStore,
        board: Board,
        live: BoardState,
        instance: str,
        between: Callable[[], None] | None = None,
    ) -> Path:
        """Write the final standings of a window instance, unless the file is up to date.

        A player may be removed from a final window: then its file is written again. `between` is called regularly while
        writing; an exception from it leaves no file.
        """
        path = self.path(board.id, live.born, instance)
        while not self.is_kept(store, board, live, instance):  # again, if a player was removed meanwhile
            whole = store.window_sum(board.id, instance)
            for folder in (self._folder, path.parent):
                folder.mkdir(FOLDER_MODE, exist_ok=True)
            draft = path.with_suffix(".draft")
            try:
                with (
                    open(draft, "wb", opener=private_opener) as file,
                    gzip.GzipFile(fileobj=file, mode="wb", compresslevel=_LEVEL) as packed,
                ):
                    for lines in _lines(store, board, live, instance, whole):
                        packed.write(lines)
                        if between is not None:
                            between()
                    packed.close()
                    file.flush()
                    os.fsync(file.fileno())
                if whole == store.window_sum(board.id, instance):
                    draft.replace(path)
                    self._kept[path] = whole
            finally:
                draft.unlink(missing_ok=True)
            sync_folder(path.parent)
        return path


def _lines(store: RankStore, board: Board, live: BoardState, instance: str, whole: WindowSum) -> Iterator[bytes]:
    """Yield the lines of a file in parts; a part may hold several small scopes."""
    head = ArchiveHead(
        FORMAT,
        board.id,
        live.version,
        instance,
        definition_of(board),
        whole.instances,
        whole.entries,
        f"{whole.digest:032x}",
    )
    yield msgspec.json.encode(head) + b"\n"
    encode = msgspec.json.Encoder().encode
    lines: list[bytes] = []
    for scope in store.scopes(board.id, instance):
        if is_team_scope(scope):
            continue
        for entry in walk(store, InstanceKey(board.id, instance, scope), _CHUNK):
            archived = ArchivedEntry(
                scope, entry.rank, entry.player, entry.score, board.reached_at(entry.tie), board.tiebreak(entry.tie)
            )
            lines.append(encode(archived))
            if len(lines) == _LINES:
                yield b"\n".join(lines) + b"\n"
                lines.clear()
    yield b"".join(line + b"\n" for line in lines)


def read_archive(path: Path) -> tuple[ArchiveHead, Iterator[ArchivedEntry]]:
    """Read an archive; SnapshotDamaged when the file is damaged."""
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
