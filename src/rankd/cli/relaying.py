"""`rankd relay`: every event of the ledger, and what stands at the top, to topics of Kafka."""

from __future__ import annotations

import logging
import signal
import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING

import typer

from rankd.api import logs
from rankd.cli.consuming import EXTRA
from rankd.cli.options import UPKEEP_PANEL, ConfigFile, Data, examples
from rankd.cli.target import Target
from rankd.config.checks import listen_address
from rankd.config.masking import masking, secrets_of
from rankd.config.model import Config
from rankd.errors import InvalidValue
from rankd.node.installation import installation_of

if TYPE_CHECKING:
    from rankd.outbox.running import ConfiguredRelay

_log = logging.getLogger("rankd")
app = typer.Typer()


def relay_of(config: Config) -> ConfiguredRelay:
    """Return the configured relay."""
    try:
        from rankd.outbox.running import ConfiguredRelay  # noqa: PLC0415 - its driver is an extra
    except ImportError as problem:
        raise InvalidValue("outbox.url", f"Kafka needs a driver: {EXTRA} ({problem})") from None
    return ConfiguredRelay(config)


@app.command(rich_help_panel=UPKEEP_PANEL, epilog=examples("rankd relay", "rankd relay --config production.toml"))
def relay(*, data: Data = None, config: ConfigFile = None) -> None:
    """Send every event of the ledger to Kafka, in order, and what stands at the top, until it is stopped.

    Run several beside a PostgreSQL ledger: one works, and another takes over when it dies. A data folder has one
    process at a time, so `rankd serve` relays by itself where outbox.url is set.
    """
    target = Target.folder_of(data, config)
    loaded = target.config()
    relaying = relay_of(loaded)
    logs.set_up_logs(loaded.server.log_format, loaded.server.log_level, masking(secrets_of(loaded)))
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    with ExitStack() as opened:
        if loaded.outbox.listen:
            from rankd.node.probe_server import ProbeServer  # noqa: PLC0415 - with an extra
            from rankd.outbox.relay_metrics import RelayMetrics  # noqa: PLC0415

            address = listen_address("outbox.listen", loaded.outbox.listen)
            opened.callback(ProbeServer("outbox.listen", *address, RelayMetrics(relaying.figures)).close)
        boards = opened.enter_context(target.opened_folder())
        tail = opened.enter_context(installation_of(loaded).open_tail(boards))
        _log.info("relaying to %s", loaded.outbox.topic)
        relaying.run(boards, tail, stop, _log.warning)
    _log.info("stopped")
