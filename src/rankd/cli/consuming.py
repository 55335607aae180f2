"""`rankd consume` and `rankd dlq`: scores that arrive through Kafka, and those of them that were refused."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from rich.text import Text

from rankd.api import logs
from rankd.cli.options import UPKEEP_PANEL, ConfigFile, Data, Json, examples
from rankd.cli.output import answer, table
from rankd.cli.target import Target, check_folder, in_use
from rankd.cli.texts import counted
from rankd.config.checks import is_in_kafka, is_shared
from rankd.config.loading import data_folder
from rankd.config.masking import masking, secrets_of
from rankd.config.model import Config
from rankd.errors import FolderLocked, InvalidValue, Refused
from rankd.node.installation import installation_of

if TYPE_CHECKING:
    from rankd.consume.queue import DeadLetterQueue
    from rankd.consume.running import ConfiguredConsumer
    from rankd.intake.sources import SourceIntake

EXTRA = "pip install 'rankd[kafka]'"
LISTED = 20
_log = logging.getLogger("rankd")
app = typer.Typer()
dlq = typer.Typer(
    no_args_is_help=True, epilog=examples("rankd dlq list", "rankd dlq replay", "rankd dlq drop --limit 1")
)
Limit = Annotated[int, typer.Option(min=1, help="How many, from the first on.")]


class DeadLetterCounts(msgspec.Struct, frozen=True):
    """What `rankd dlq replay --json` and `drop --json` print."""

    taken: int
    appended: int
    refused: int


def consuming_of(config: Config) -> ConfiguredConsumer:
    """Return the configured consumer."""
    try:
        from rankd.consume.running import ConfiguredConsumer  # noqa: PLC0415 - its driver is an extra
    except ImportError as problem:
        raise InvalidValue("consume.url", f"Kafka needs a driver: {EXTRA} ({problem})") from None
    return ConfiguredConsumer(config)


@app.command(rich_help_panel=UPKEEP_PANEL, epilog=examples("rankd consume", "rankd consume --config production.toml"))
def consume(*, data: Data = None, config: ConfigFile = None) -> None:
    """Append the records of Kafka topics as scores, until it is stopped; each counts once.

    Run several beside a PostgreSQL ledger: they share the partitions. A data folder has one process at a time, so
    `rankd serve` consumes by itself where consume.url is set.
    """
    loaded = Target.folder_of(data, config).config()
    consuming = consuming_of(loaded)
    logs.set_up_logs(loaded.server.log_format, loaded.server.log_level, masking(secrets_of(loaded)))
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    with _opened_intake(loaded) as intake:
        _log.info("consuming %s", ", ".join(loaded.consume.topics))
        consuming.run(intake, stop, _log.warning)
    _log.info("stopped")


@dlq.command("list", epilog=examples("rankd dlq list", "rankd dlq list --limit 100 --json"))
def list_letters(*, limit: Limit = LISTED, data: Data = None, config: ConfigFile = None, as_json: Json = False) -> None:
    """List refused records: where they stood, and why; those of a ledger in Kafka from the first on."""
    loaded = Target.folder_of(data, config).config()
    if is_in_kafka(loaded.ledger.url):
        installation_of(loaded)  # raises where drivers are missing
        from rankd.consume.running import open_letters  # noqa: PLC0415 - its driver is an extra

        with closing(open_letters(loaded)) as reader:
            letters = reader.letters(limit)
    else:
        with _opened_queue(loaded) as queue:
            letters = queue.letters(limit)

    def drawn() -> Text | object:
        if not letters:
            return Text("there are no dead letters")
        made = table("offset", "topic", "partition", "at", "reason", "key", right=("offset", "partition", "at"))
        for letter in letters:
            place = (str(letter.partition), str(letter.record_offset))
            made.add_row(str(letter.offset), letter.topic, *place, letter.reason, letter.key or "")
        return made

    answer(letters, as_json, drawn, lambda: [msgspec.structs.astuple(letter) for letter in letters])  # type: ignore[arg-type]


@dlq.command(epilog=examples("rankd dlq replay", "rankd dlq replay --limit 10"))
def replay(*, limit: Limit = 1_000_000, data: Data = None, config: ConfigFile = None, as_json: Json = False) -> None:
    """Append refused records once their reason is gone; those refused again go to the end. Each counts once."""
    with _opened_queue(Target.folder_of(data, config).config()) as queue:
        taken = queue.replay(limit)
        done = DeadLetterCounts(taken, queue.figures.consumed, queue.figures.refused)
    text = f"{counted(done.taken, 'record')}: {done.appended:,} appended, {done.refused:,} refused again"
    answer(done, as_json, lambda: Text(text), lambda: [msgspec.structs.astuple(done)])


@dlq.command(epilog=examples("rankd dlq drop --limit 1", "rankd dlq drop"))
def drop(*, limit: Limit = 1_000_000, data: Data = None, config: ConfigFile = None, as_json: Json = False) -> None:
    """Give refused records up; Kafka deletes them when their retention ends."""
    with _opened_queue(Target.folder_of(data, config).config()) as queue:
        done = DeadLetterCounts(queue.drop(limit), 0, 0)
    answer(
        done, as_json, lambda: Text(f"{counted(done.taken, 'record')} dropped"), lambda: [msgspec.structs.astuple(done)]
    )


@contextmanager
def _opened_queue(loaded: Config) -> Iterator[DeadLetterQueue]:
    if is_in_kafka(loaded.ledger.url):
        raise Refused(
            "the ledger of this installation is a log, which cannot store how far its dead letters were read; send "
            "corrected scores to the API"
        )
    consuming = consuming_of(loaded)
    with _opened_intake(loaded) as intake, closing(consuming.open_queue(intake)) as queue:
        yield queue


@contextmanager
def _opened_intake(config: Config) -> Iterator[SourceIntake]:
    if not is_shared(config):
        check_folder(data_folder(config))
    try:
        with installation_of(config).open_intake() as intake:
            yield intake
    except FolderLocked as problem:
        raise in_use(config, problem) from None
