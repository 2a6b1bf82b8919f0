"""Several processes that serve the same models behind the same addresses: one starts the others, and serves nothing itself.

The addresses are bound here, and all processes accept from the same sockets: who has fewest connections goes first, what waits to be
accepted is not lost with a process that ends, and port 0 and sockets in folders need no second way. (With a socket of its own for each
process, ``SO_REUSEPORT``, the kernel deals connections out by a hash of the client's address, whoever is busy.)
"""

from __future__ import annotations

import json
import logging
import math
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from runtime_service.processes.lending import Lender
from runtime_service.processes.observing import AllObserved, Asked, Vital
from runtime_service.processes.told import ALL, Told
from runtime_service.settings import RuntimeSettings, variable
from shared_ir.service_kit.connection_counts import ConnectionCounts, shared_counts
from shared_ir.service_kit.http.hosts import Hosts
from shared_ir.service_kit.http1.limits import HttpLimits
from shared_ir.service_kit.http1.server import HttpServer
from shared_ir.service_kit.listening import SharedSockets, address_of, listening, port_of
from shared_ir.service_kit.starting import at_start, require_place
from shared_ir.service_kit.telemetry.descriptors import DESCRIPTORS
from shared_ir.service_kit.unix_sockets import UNIX
from shared_ir.signals import STOP_SIGNALS, StopSignals
from shared_ir.storage.files import write_atomically

_LOG = logging.getLogger(__name__)
_MOST_OBSERVERS = 64
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.5, 30.0
"""Before a process that has ended is started anew: longer each time, until one has lived as long as the longest."""
_WRONG_SETTINGS = 2
"""The status with which a service ends that cannot start."""
_SHORT_SECONDS = 0.1
_GRACE_SECONDS = 10.0
"""Beyond what a process may take to drain, until it is killed."""
_KILLED_SECONDS = 5.0
"""What is waited for one that was killed, which may be within the system for good."""
_LOOK_SECONDS = 5.0
_MOST_SILENT, _MOST_ABSENT = 6, 60
"""Looks in a row at which a process listens and does not answer, or does not listen, as one that begins, until it is killed. NOTE: looks,
not seconds: when all go on that were stopped together, such as a container that was paused, nobody has been silent for long."""


@dataclass
class _Serving:
    process: subprocess.Popen[bytes]
    started: float
    silent: int = 0
    absent: int = 0

    def note(self, vital: Vital) -> bool:
        """How it was found at a look; whether it hangs."""
        self.silent = self.silent + 1 if vital is Vital.SILENT else 0
        self.absent = self.absent + 1 if vital is Vital.ABSENT else 0
        return self.silent >= _MOST_SILENT or self.absent >= _MOST_ABSENT


def most_seconds_to_stop(settings: RuntimeSettings) -> float:
    """After which a process is killed that was told to end."""
    return settings.drain_delay + settings.drain_timeout + _GRACE_SECONDS


class Parent:
    """Everything is bound when it is made; :meth:`run` starts the processes."""

    @at_start
    def __init__(self, settings: RuntimeSettings, command: Sequence[str]) -> None:
        """``command`` starts a process, with the descriptor of a socket behind it, from which it is :class:`Told` the rest."""
        if settings.address_file:
            require_place(Path(settings.address_file), variable("address_file"))
        self._settings = settings
        self._command = command
        self._lender = Lender()
        self._lock = threading.Lock()
        self._serving: dict[int, _Serving] = {}
        self._stopping = threading.Event()
        self._killed_at = math.inf
        """When those are killed that were told to end, and have not."""
        self._statuses: list[int] = []
        self._folder = Path(tempfile.mkdtemp(prefix="ingot-runtime-"))  # for this user alone
        served = {"grpc": settings.grpc_address, "http": settings.http_address}
        self._sockets = {name: listening(address, name) for name, address in served.items() if address}
        self._counts = {name: shared_counts(settings.processes) for name in self._sockets}
        self._asked = Asked(self._folder, settings.processes)
        self.addresses = {name: address_of(served[name], port_of(sockets)) for name, sockets in self._sockets.items()}
        hosts = Hosts.parse(settings.hosts, variable("hosts"))
        pages = AllObserved(self._folder, settings.processes, hosts)
        limits = HttpLimits(max_connections=_MOST_OBSERVERS)
        self._observed = [HttpServer(pages, f"{UNIX}{self._folder / ALL}", limits)]
        if settings.metrics_address:
            self._observed.append(HttpServer(pages, settings.metrics_address, limits))
            self.addresses["metrics"] = address_of(settings.metrics_address, self._observed[-1].port)

    def run(self) -> int:
        """Until SIGTERM or SIGINT, which the processes get too; 1 when one of them left requests unfinished, 2 when they cannot start."""
        signals = StopSignals()
        for server in self._observed:
            server.start()
        numbers = range(self._settings.processes)
        keepers = [threading.Thread(target=self._keep, args=(number,), daemon=True) for number in numbers]
        for keeper in keepers:
            keeper.start()
        if self._settings.address_file:
            write_atomically(Path(self._settings.address_file), json.dumps(self.addresses).encode())
        listed = ", ".join(f"{name} on {at}" for name, at in sorted(self.addresses.items()))
        _LOG.info("serving %s with %d processes", listed, len(keepers))
        threading.Thread(target=self._forward, args=(signals,), name="signals", daemon=True).start()
        threading.Thread(target=self._watch, name="watch", daemon=True).start()
        self._await_end(keepers)
        for server in self._observed:
            server.stop(0.0)
        shutil.rmtree(self._folder, ignore_errors=True)
        return max(self._statuses, default=0)

    def _forward(self, signals: StopSignals) -> None:
        while True:
            number = signals.wait()
            _LOG.info("received %s, draining", number.name)
            self._stop(number)

    def _stop(self, number: int) -> None:
        with self._lock:
            self._killed_at = min(self._killed_at, time.monotonic() + most_seconds_to_stop(self._settings))
            self._stopping.set()
            for listener in chain.from_iterable(self._sockets.values()):
                listener.close()  # else clients would wait for who accepts no more, until the last process has drained
            for serving in self._serving.values():
                serving.process.send_signal(number)

    def _await_end(self, keepers: Sequence[threading.Thread]) -> None:
        """Until all processes have ended; after a stop those are killed that take too long."""
        self._stopping.wait()
        while any(keeper.is_alive() for keeper in keepers) and time.monotonic() < self._killed_at:
            self._join(keepers, time.monotonic() + _SHORT_SECONDS)
        for number, keeper in enumerate(keepers):
            if keeper.is_alive():
                _LOG.error("the serving process %d has not ended in time and is killed", number)
                self._kill(number)
        self._join(keepers, time.monotonic() + _KILLED_SECONDS)
        if any(keeper.is_alive() for keeper in keepers):
            self._statuses.append(1)

    def _join(self, keepers: Sequence[threading.Thread], end: float) -> None:
        for keeper in keepers:
            keeper.join(max(0.0, end - time.monotonic()))

    def _kill(self, number: int) -> None:
        with self._lock:
            self._serving[number].process.kill()

    def _watch(self) -> None:
        """Kill what does not answer, so that it is started anew. What is loading does: its answers come from threads of their own."""
        while not self._stopping.wait(_LOOK_SECONDS):
            watched, vitals = dict(self._serving), self._asked.vitals()
            for number, serving in watched.items():
                if serving.process.returncode is not None:  # it is started anew after a pause
                    continue
                if serving.note(vitals[number]) and not self._stopping.is_set():
                    times = serving.silent + serving.absent
                    _LOG.error("the serving process %d has not answered %d times and is killed", number, times)
                    serving.process.kill()

    # ---- one process each

    def _keep(self, number: int) -> None:
        """See to it that a process runs, until all stop."""
        pause = _FIRST_PAUSE_SECONDS
        while (serving := self._start(number)) is not None:
            status = serving.process.wait()
            for each in self._counts.values():
                ConnectionCounts(each, number).tell_end()
            if self._stopping.is_set():
                # NOTE: a stop signal ends a process that does not serve yet; one that does minds it
                self._statuses.append(0 if -status in STOP_SIGNALS else int(status != 0))
                return
            if status == _WRONG_SETTINGS:  # it has said why, and will again
                self._statuses.append(status)
                self._stop(signal.SIGTERM)
                return
            lived = time.monotonic() - serving.started
            pause = _FIRST_PAUSE_SECONDS if lived > _LONGEST_PAUSE_SECONDS else min(2 * pause, _LONGEST_PAUSE_SECONDS)
            _LOG.error(
                "the serving process %d has ended with status %d; it starts anew in %.1f s", number, status, pause
            )
            self._stopping.wait(pause)

    def _start(self, number: int) -> _Serving | None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with self._lock, theirs:
            if self._stopping.is_set():
                ours.close()
                return None
            command = [*self._command, str(theirs.fileno())]
            log = DESCRIPTORS.before
            # NOTE: a session of its own, so that Ctrl-C comes from here, and once
            process = subprocess.Popen(
                command, pass_fds=[theirs.fileno()], start_new_session=True, stdout=log, stderr=log
            )
            self._serving[number] = serving = _Serving(process, time.monotonic())
        threading.Thread(target=self._serve, args=(ours, number), name="lender", daemon=True).start()
        return serving

    def _serve(self, channel: socket.socket, number: int) -> None:
        with channel:
            sockets = {
                name: SharedSockets(each, ConnectionCounts(self._counts[name], number))
                for name, each in self._sockets.items()
            }
            try:
                Told(number, self._settings.processes, self._folder, sockets, channel).send()
            except OSError as error:  # it has ended
                _LOG.debug("the process %d was not reached: %s", number, error)
            else:
                self._lender.serve(channel, number)
