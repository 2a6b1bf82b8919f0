"""``python -m compiler_service.stages.nursery DESCRIPTOR``: a process that has imported the compiler and forks a child per order.

An order is one packet on the socket ``DESCRIPTOR``: the folder of the order, with three descriptors: a leash (a socket that
hears the child's exit status, and whose other end, closed, kills the child), the pipes for progress and for what is printed.
This process reads no model, and has one thread: the child enters the boundary after the fork, by the policy in its folder.
See :mod:`compiler_service.stages.local` for the other side.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from compiler_service.boundary.enter import enter_inner
from compiler_service.boundary.policy import Policy
from compiler_service.compiler.frontend.reading.source import ModelSource
from compiler_service.compiler.options import CompileOptions
from compiler_service.compiler.pipeline import check_model, compile_model, tune_model
from compiler_service.stages.compiler import check_to_dict, graph_text
from compiler_service.stages.group import adopt_orphans, end_group, kill_group
from compiler_service.stages.nursery_protocol import LONGEST_ORDER, READY, STATUS
from compiler_service.stages.process import ARTIFACT, JOURNAL, RECORDS, Progress, answer
from compiler_service.stages.runner import BOUNDARY_FILE
from shared_ir.artifact.exchange import write_artifact
from shared_ir.machine.target import target_from_dict

_WEIGHTS = "weights.bin"


class Nursery:
    """Serves orders until the socket is closed."""

    def __init__(self, orders: socket.socket) -> None:
        self._orders = orders
        self._selector = selectors.DefaultSelector()
        self._leashes: dict[int, socket.socket] = {}

    def serve(self) -> None:
        """Who started it may have been ended before it is ready: then there is nobody to serve, and nobody to tell."""
        adopt_orphans()
        try:
            self._orders.send(READY)
        except BrokenPipeError:
            return
        self._selector.register(self._orders, selectors.EVENT_READ, self._order)
        while self._selector.get_map().get(self._orders.fileno()):
            for key, _ in self._selector.select():
                act: Callable[[], None] = key.data
                act()
        for child in list(self._leashes):
            self._kill(child)

    def _order(self) -> None:
        try:
            message, descriptors, _, _ = socket.recv_fds(self._orders, LONGEST_ORDER, 3)
        except ConnectionResetError:  # whoever orders ended before it had read that this one is ready
            message, descriptors = b"", []
        if not message:
            self._selector.unregister(self._orders)
            return
        leash, progress, printed = descriptors
        child = os.fork()
        if child == 0:
            _become(Path(os.fsdecode(message)), progress, printed)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.setpgid(child, child)  # the child does it too: whoever comes first
        for descriptor in (progress, printed):
            os.close(descriptor)
        self._leashes[child] = socket.socket(fileno=leash)
        ending = os.pidfd_open(child)
        self._selector.register(self._leashes[child], selectors.EVENT_READ, lambda: self._kill(child))
        self._selector.register(ending, selectors.EVENT_READ, lambda: self._ended(child, ending))

    def _kill(self, child: int) -> None:
        """Its user let go of it."""
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(self._leashes[child])
        kill_group(child)

    def _ended(self, child: int, ending: int) -> None:
        self._selector.unregister(ending)
        os.close(ending)
        self._kill(child)  # and what it started
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        end_group(child)
        with self._leashes.pop(child) as leash, contextlib.suppress(OSError):
            leash.send(STATUS.pack(status))


def _become(work: Path, progress: int, printed: int) -> None:
    """The child: never returns."""
    try:
        os.setpgid(0, 0)
        for descriptor in (1, 2):
            os.dup2(printed, descriptor)
        os.dup2(progress, 3)
        os.closerange(4, os.sysconf("SC_OPEN_MAX"))
        policy = Policy.from_json((work / BOUNDARY_FILE).read_bytes())
        missing: dict[Any, str] = {}
        enter_inner(policy, missing)
        if any(part in policy.required for part in missing):
            raise OSError(f"the boundary lacks what INGOT_SANDBOX requires: {missing}")
        os._exit(answer(work, 3, lambda request, report: _act(request, work, report)))
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)


def _act(request: Mapping[str, Any], work: Path, progress: Progress) -> Mapping[str, Any]:
    os.environ.update(request["environment"])
    tempfile.tempdir = str(work)
    os.chdir(request["folder"])
    options = CompileOptions.from_dict(request["options"])
    source = _source(request["source"])
    if request["stage"] == "check":
        return {"report": check_to_dict(check_model(source, options))}
    if request["stage"] == "graph":
        return {"text": graph_text(source)}
    target = target_from_dict(request["target"])
    if request["stage"] == "tune":
        journal, workloads = Path(request["journal"]), list[str]()
        tune_model(source, target, options, progress, journal=journal, again=request["again"], workloads=workloads)
        return {"workloads": workloads}
    records = (work / RECORDS).read_bytes()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        measured = tune_model(source, target, options, progress, records, work / JOURNAL)
        weights = work / _WEIGHTS
        artifact = compile_model(source, target, options, progress, measured, request["workers"], weights)
    write_artifact(work / ARTIFACT, artifact)
    said = [(type(warning.message).__name__, str(warning.message)) for warning in caught]
    return {"warnings": said}


def _source(document: Mapping[str, Any]) -> ModelSource:
    path = Path(document["model"])
    blobs = {location: Path(blob) for location, blob in document["blobs"].items()}
    return ModelSource(path.read_bytes() if document["is_bytes"] else path, blobs)


if __name__ == "__main__":
    Nursery(socket.socket(fileno=int(sys.argv[1]))).serve()
