"""The boards that a command works on: those of a data folder, or those of a running server."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rankd.boards import Boards
from rankd.cli.exits import UsageError
from rankd.config.checks import is_shared
from rankd.config.loading import data_folder, load_config
from rankd.config.model import Config
from rankd.errors import FolderLocked, InvalidValue
from rankd.ledger.sqlite.database import FILE_NAME
from rankd.node.installation import installation_of

if TYPE_CHECKING:
    from rankd.client import Client

TIMEOUT_S = 10.0
RETRY_TOTAL_S = 5.0  # short: a person waits at the terminal
AS_OF_WAIT_MS = 600_000  # of a folder, where nobody else would go on working a past state out
_HOLDER = re.compile(r"\(process (\d+)(?:, ([^)\s]+))?\)")
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Target:
    """A server's URL, else a folder, else what is configured."""

    data: Path | None
    url: str | None
    token: str | None
    config_file: Path | None

    @classmethod
    def of(cls, data: Path | None, url: str | None, token: str | None, config: Path | None) -> Target:
        """Read the options, and the environment for those left out."""
        if data is not None and url is not None:
            raise UsageError("give --data or --url, not both: a folder or a server")
        server = url or (os.environ.get("RANKD_URL") if data is None else None) or None
        if token is not None and server is None:
            raise UsageError("--token is for a server; give --url too")
        return cls(data, server, token or os.environ.get("RANKD_TOKEN") or None, config)

    @classmethod
    def folder_of(cls, data: Path | None, config: Path | None) -> Target:
        """Read the options of a command that works on a folder only."""
        return cls(data, None, None, config)

    def config(self, options: dict[str, object] | None = None) -> Config:
        """Return the configuration in force."""
        values = dict(options or {})
        if self.data is not None:
            values["ledger.url"] = f"sqlite:{self.data}"
        file = self.config_file or os.environ.get("RANKD_CONFIG") or None
        return load_config(file, os.environ, values)

    @contextmanager
    def opened(self, *, creates: bool = False) -> Iterator[Boards | Client]:
        """Open the boards, of a folder or of a server."""
        if self.url is None:
            with self.opened_folder(creates=creates, or_server=True) as boards:
                yield boards
            return
        from rankd.client import Client  # noqa: PLC0415 - a slow import

        with Client(self.url, self.token, timeout_s=TIMEOUT_S, retry_total_s=RETRY_TOTAL_S) as client:
            yield client

    @contextmanager
    def opened_folder(
        self, *, creates: bool = False, or_server: bool = False, progress: Progress | None = None
    ) -> Iterator[Boards]:
        """Open the boards of the folder; only commands that write into it create it."""
        config = self.config({"ranks.as_of_wait_ms": AS_OF_WAIT_MS})
        if not creates and not is_shared(config):
            check_folder(data_folder(config))
        try:
            boards = installation_of(config).open_boards(progress)
        except FolderLocked as problem:
            raise in_use(config, problem, or_server=or_server) from None
        with boards:
            yield boards


def check_folder(folder: Path) -> None:
    """Refuse a folder without boards, rather than create an empty one after a typing mistake."""
    if not (folder / FILE_NAME).exists():
        raise InvalidValue(
            "--data", f"there are no boards in {folder}; name another folder, or begin with `rankd boards put`"
        )


def in_use(config: Config, problem: FolderLocked, *, or_server: bool = False) -> FolderLocked:
    """Name the process that has the folder, and the remedy: its server's URL, where the command can use one."""
    holder = _HOLDER.search(str(problem))
    by = f"process {holder[1]}" if holder else "another process"
    url = holder[2] if holder and or_server else None
    remedy = "stop it first" if url is None else f"use --url {url}, or stop it first"
    if not is_shared(config):
        return FolderLocked(f"{data_folder(config)} is in use by {by}; {remedy}")
    return FolderLocked(
        f"{config.ranks.folder} is in use by {by}; {remedy}, or name a folder of its own in ranks.folder: "
        "no two nodes can share one"
    )
