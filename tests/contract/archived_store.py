"""A rank store whose reads are answered from the archive: what is read is archived first, and read from the file."""

from __future__ import annotations

import atexit
import tempfile
from pathlib import Path
from typing import Any

from rankd.archive.archived_standings import ArchivedStandings
from rankd.archive.folder_objects import FolderObjects
from rankd.archive.standings_file import FinalWindow
from rankd.archive.windows import WindowArchive
from rankd.domain.board import Board
from rankd.domain.instance import InstanceKey
from rankd.domain.order import Keep, Rules
from rankd.domain.window import WindowKind
from rankd.projection.engine import EngineStore
from rankd.projection.port import Applied, RankReads, UpdateBatch, Verdict, WindowSum
from rankd.projection.state import BoardState

READS = [name for name in vars(RankReads) if not name.startswith("_") and name != "captured"]


class ArchivedStore:
    """Writes to the engine, and reads the archive; what is not archived is the engine's."""

    def __init__(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="rankd-archived-", ignore_cleanup_errors=True)
        atexit.register(folder.cleanup)
        self._ranks = EngineStore()
        self._archive = WindowArchive(FolderObjects(Path(folder.name, "archive")), Path(folder.name, "scratch"))
        self._rules: dict[InstanceKey, Rules] = {}
        self._opened: dict[str, tuple[WindowSum, ArchivedStandings]] = {}
        self._archived = 0

    def __getattr__(self, name: str) -> Any:
        if name in READS:
            return lambda instance, *arguments, **keywords: getattr(self._read(instance), name)(
                instance, *arguments, **keywords
            )
        return getattr(self._ranks, name)

    def apply(self, batch: UpdateBatch) -> Applied:
        applied = self._ranks.apply(batch)
        if applied.verdict is Verdict.APPLIED:
            self._rules.update(dict(batch.instances))
        return applied

    def _read(self, instance: InstanceKey) -> RankReads:
        """Archive the window instance of a read as it is now, and open it."""
        whole = self._ranks.window_sum(instance.board, instance.window)
        opened = self._opened.get(instance.window)
        if opened is None or opened[0] != whole:
            rules = self._rules.get(instance, Rules())
            board = _board(instance, rules)
            self._archived += 1
            live = BoardState(version=1, born=self._archived, defined_at=0)  # each a folder of its own
            window = FinalWindow(self._ranks, board, live, instance.window)
            self._archive.keep(window, lambda: "0-0")
            standings = self._archive.find(board.id, live.born, instance.window)
            assert standings is not None
            opened = self._opened[instance.window] = whole, standings
        return opened[1]


def _board(instance: InstanceKey, rules: Rules) -> Board:
    """Return a board whose definition has these rules, wherever the instance comes from."""
    return Board(
        id=instance.board,
        title="archived",
        keep={instance.window.partition(":")[0]: Keep.BEST},
        order=rules.order,
        ties=rules.ties,
        tie_resolution_ms=1,
        windows=(WindowKind(instance.window.partition(":")[0]),),
        scopes=("country",),
    )
