"""The supervisor: starts the workers of a folder, starts those again that die, and stops them all.

    rankd serve --workers n → Supervisor ─fork─▸ worker 0, which writes
                                         └─fork─▸ workers 1 … n-1, which read

It has no threads and opens neither the ledger nor the boards, so that a fork of it is as good as a new process. A
worker holds one end of a socket pair: the supervisor notices a worker's death by it, and a worker the supervisor's.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import NoReturn

from rankd.api.http.listening import check_local_path, reserved_addresses
from rankd.config.loading import data_folder
from rankd.config.model import Config
from rankd.folder import make_private_folder
from rankd.workers.commit_signal import CommitSignal
from rankd.workers.worker import WRITER, Worker, local_path

BACK_OFF_FIRST_S, BACK_OFF_MAX_S = 0.1, 10.0
STEADY_S = 30.0  # a worker that has served so long starts without back-off again
READER_END_S = 10.0  # beyond server.stop_wait_ms; a worker that reads has nothing to save
_log = logging.getLogger("rankd")


class _Slot:
    """One worker's place: the process in it, or when the next one starts."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.process: int | None = None
        self.channel: socket.socket | None = None
        self.ready_at_s: float | None = None
        self.back_off_s = 0.0
        self.start_at_s = 0.0


class Supervisor:
    """The parent of the workers of one folder."""

    def __init__(self, config: Config) -> None:
        """Reserve the public address; raises AddressTaken."""
        self._config = config
        self._folder: Path = data_folder(config)
        make_private_folder(self._folder)
        count = config.server.workers
        check_local_path(local_path(self._folder, count - 1))
        self._addresses, self._reserved = reserved_addresses(config.server.host, config.server.port)
        self._commit_signal = CommitSignal(count - 1)
        self._slots = [_Slot(number) for number in range(count)]
        self._was_ready = False  # whether the worker that writes ever served
        self._signals, self._wake = socket.socketpair()
        self._is_stopping = False

    def run(self) -> Worker | None:
        """Run until all workers have ended; returns the worker in each of them, and None in the supervisor."""
        self._signals.setblocking(False)
        self._wake.setblocking(False)
        signal.set_wakeup_fd(self._wake.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._note_stop)
        while not self._is_stopping:
            worker = self._start_due()
            if worker is not None:
                return worker
            self._watch(self._pause_s())
        self._stop()
        return None

    def _note_stop(self, _number: int, _frame: object) -> None:
        self._is_stopping = True

    # Starting

    @property
    def _startable(self) -> list[_Slot]:
        # Until the worker that writes has the folder, this and its local sockets may be another server's.
        return self._slots if self._was_ready else self._slots[:1]

    def _start_due(self) -> Worker | None:
        for slot in self._startable:
            if slot.process is None and monotonic() >= slot.start_at_s and not self._is_stopping:
                worker = self._start(slot)
                if worker is not None:
                    return worker
        return None

    def _start(self, slot: _Slot) -> Worker | None:
        ours, theirs = socket.socketpair()
        sys.stdout.flush()
        sys.stderr.flush()
        parent, process = os.getpid(), os.fork()
        if process == 0:
            self._become_worker()
            ours.close()
            return Worker(
                slot.number,
                len(self._slots),
                self._folder,
                addresses=self._addresses,
                commit_signal=self._commit_signal,
                supervisor=theirs,
                supervisor_process=parent,
            )
        theirs.close()
        slot.process, slot.channel, slot.ready_at_s = process, ours, None
        return None

    def _become_worker(self) -> None:
        """Give up what is the supervisor's, in a fork of it."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        for end in (self._signals, self._wake, *self._reserved, *(slot.channel for slot in self._slots)):
            if end is not None:
                end.close()

    def _pause_s(self) -> float | None:
        due = [slot.start_at_s for slot in self._startable if slot.process is None]
        return max(0.0, min(due) - monotonic()) if due else None

    # Watching

    def _watch(self, timeout_s: float | None) -> None:
        """Wait for a signal, or for a message of a worker: that it serves or, by its end, that it has died."""
        channels = {slot.channel: slot for slot in self._slots if slot.channel is not None}
        readable, _, _ = select.select([self._signals, *channels], [], [], timeout_s)
        for end in readable:
            received = end.recv(64)
            if end is not self._signals:
                if received:
                    self._note_ready(channels[end])
                else:
                    self._note_end(channels[end])

    def _note_ready(self, slot: _Slot) -> None:
        slot.ready_at_s = monotonic()
        if slot.number == WRITER:
            self._was_ready = True

    def _note_end(self, slot: _Slot) -> None:
        if slot.process is None or slot.channel is None:
            raise AssertionError("only a worker that runs can end")
        _, status = os.waitpid(slot.process, 0)
        slot.channel.close()
        process, slot.process, slot.channel = slot.process, None, None
        if self._is_stopping:
            return
        code = os.waitstatus_to_exitcode(status)
        if slot.number == WRITER and not self._was_ready:
            self._fail(code)
        was_steady = slot.ready_at_s is not None and monotonic() - slot.ready_at_s >= STEADY_S
        slot.back_off_s = BACK_OFF_FIRST_S if was_steady or not slot.back_off_s else slot.back_off_s * 2
        slot.back_off_s = min(slot.back_off_s, BACK_OFF_MAX_S)
        slot.start_at_s = monotonic() + slot.back_off_s
        how = f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
        _log.warning(
            "worker %d, process %d, %s; it is started again in %.1f s", slot.number, process, how, slot.back_off_s
        )

    def _fail(self, code: int) -> NoReturn:
        """End as the worker that writes did: it cannot open the folder, and has said why."""
        self._is_stopping = True
        self._stop()
        raise SystemExit(code if code > 0 else 1)

    # Stopping

    def _stop(self) -> None:
        """Stop the workers that read first: the changes they have handed over still find the one that writes."""
        readers = [slot for slot in self._slots if slot.number != WRITER]
        self._end(readers, signal.SIGTERM, self._config.server.stop_wait_ms / 1_000 + READER_END_S)
        self._end(readers, signal.SIGKILL, None)
        self._end(self._slots[:1], signal.SIGTERM, None)
        if self._was_ready:
            for slot in self._slots:
                local_path(self._folder, slot.number).unlink(missing_ok=True)
        self._commit_signal.close()
        for reserved in self._reserved:
            reserved.close()

    def _end(self, slots: list[_Slot], number: signal.Signals, within_s: float | None) -> None:
        """Send a signal to workers, and wait for their end."""
        for slot in slots:
            if slot.process is not None:
                with suppress(ProcessLookupError):
                    os.kill(slot.process, number)
        deadline_s = None if within_s is None else monotonic() + within_s
        while any(slot.process is not None for slot in slots):
            left_s = None if deadline_s is None else deadline_s - monotonic()
            if left_s is not None and left_s <= 0:
                return
            self._watch(left_s)
