"""Models of others, compiled for the user of this process: in a child inside the boundary, as a worker's stages are."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

from compiler_service.boundary.policy import Grant, Policy
from compiler_service.boundary.private import held, private_places
from compiler_service.boundary.state import BEST_EFFORT, require, required_parts, say_standing, standing
from compiler_service.boundary.toolchain import toolchain
from compiler_service.compiler.codegen.toolchain.bundle import prepare
from compiler_service.compiler.codegen.toolchain.zig import cache_directory, zig_executable
from compiler_service.compiler.fallback import OptimisationFaultWarning
from compiler_service.compiler.frontend.reading.source import ModelSource
from compiler_service.compiler.options import CompileOptions
from compiler_service.compiler.program.kernels import TuningRecordWarning
from compiler_service.compiler.progress import Progress, silent
from compiler_service.stages.attend import attend
from compiler_service.stages.checked import read_check
from compiler_service.stages.keeping import keeping
from compiler_service.stages.kept import start_child
from compiler_service.stages.messages import MOST_LINE_CHARACTERS, MOST_LINES, Lines
from compiler_service.stages.outcome import (
    NO_SPACE,
    StageError,
    UnseenError,
    how_it_died,
    killed_for_memory,
    read_compiled,
    read_result,
)
from compiler_service.stages.process import ARTIFACT, JOURNAL, RECORDS, REPRODUCER
from compiler_service.stages.runner import BOUNDARY_FILE, REQUEST_FILE, StageLimits
from shared_ir.artifact.value import CompiledArtifact
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.machine.cores import usable_cores
from shared_ir.machine.target import Target, target_to_dict
from shared_ir.printable import printable
from shared_ir.storage.appended import add_lines
from shared_ir.storage.faults import require_writable, told
from shared_ir.storage.files import map_file, read_own, write_atomically

_PASSED_ON = ("DEBUG", "DUMP", "VERIFY")
_NO_LIMIT_SECONDS = 10.0 * 365 * 24 * 3600
_LIMITS = {"processes": StageLimits.processes}
"""It is the user's own machine and time: memory and seconds are for him to bound."""

_MOST_REPRODUCER_BYTES = 64 << 20
_LEAST_SECONDS = 1
"""That tuning is started again for where the time is over, once: a process that ends so late has not said which tasks it has settled."""

logger = logging.getLogger(__name__)


def compile_in_child(
    source: ModelSource,
    target: Target,
    options: CompileOptions,
    records: bytes,
    progress: Progress = silent,
    workers: int | None = None,
    journal: Path | None = None,
) -> CompiledArtifact:
    """What :func:`compiler_service.compiler.pipeline.compile_model` makes of a model of someone else's.

    Args:
        journal: file that trials are added to while ``options`` have it tuned, whether or not the compilation then succeeds.

    Raises:
        IngotError: as it does; UNAVAILABLE when a part of the boundary is missing that ``INGOT_SANDBOX`` requires.
    """
    prepare(target, options.bundle)
    order = {"target": target_to_dict(target), "workers": usable_cores() if workers is None else workers}
    with _work() as work, keeping(work / JOURNAL, lambda lines: _keep(lines, journal), 0.0) as trials:
        (work / RECORDS).write_bytes(records)

        def report(stage: str, done: int, total: int, message: str) -> None:
            trials.when_due()
            progress(stage, done, total, message)

        result = _run(work, {"stage": "compile", **order}, source, options, report)
        _warn(result.get("warnings", ()))
        artifact = read_compiled(work / ARTIFACT, StageLimits.memory)
        assert isinstance(artifact.weights, Path)
        return replace(artifact, weights=map_file(artifact.weights))


def _keep(lines: bytes, journal: Path | None) -> None:
    if journal is not None:
        with told("the tuning records cannot be written", journal):
            add_lines(journal, lines)


def tune_in_child(
    source: ModelSource,
    target: Target,
    options: CompileOptions,
    journal: Path,
    progress: Progress = silent,
    *,
    again: bool = False,
) -> frozenset[str]:
    """What :func:`compiler_service.compiler.pipeline.tune_model` finds out of a model of someone else's, written to ``journal``, which
    exists: the one file besides its own that the process may write, and lock, since several may be at work on it. The digests of the
    workloads of the model.

    NOTE: what the process may write is that very file, which `ingot records prune` puts another one in the place of. Then it is started
    again, for the seconds that are left, and goes on where the records say that it was.

    Raises:
        IngotError: as it does; UNAVAILABLE when a part of the boundary is missing that ``INGOT_SANDBOX`` requires.
    """
    prepare(target, options.bundle)
    path = journal.absolute()
    order = {"stage": "tune", "target": target_to_dict(target), "journal": str(path), "again": again}
    until, is_last = time.monotonic() + options.tune, False
    while True:
        granted = _opened(path)
        with granted, _work() as work:
            try:
                answer = _run(work, order, source, options, progress, ((str(path), "write"),))
                return frozenset(map(str, answer.get("workloads", ())))
            except StageError:
                if is_last or _is_at(granted, path):
                    raise
        left = until - time.monotonic()
        options, is_last = replace(options, tune=max(_LEAST_SECONDS, round(left))), left < _LEAST_SECONDS


def _opened(journal: Path) -> BinaryIO:
    """What lies at ``journal`` now, made where somebody has removed it. While it is open no other file gets its number."""
    with told("the tuning records cannot be written", journal):
        journal.touch()
        return journal.open("rb")


def _is_at(file: BinaryIO, path: Path) -> bool:
    """Whether a path still leads to an open file."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except OSError:
        return False


def check_in_child(source: ModelSource, options: CompileOptions) -> Mapping[str, Any]:
    """What keeps a model from being compiled, as :meth:`compiler_service.stages.process.Stages.check` answers it."""
    with _work() as work:
        return read_check(_run(work, {"stage": "check"}, source, options, silent))


def graph_text_in_child(source: ModelSource) -> str:
    """As :func:`compiler_service.stages.compiler.graph_text`."""
    with _work() as work:
        return str(_run(work, {"stage": "graph"}, source, CompileOptions(), silent).get("text", ""))


def _run(
    work: Path,
    order: Mapping[str, Any],
    source: ModelSource,
    options: CompileOptions,
    progress: Progress,
    shared: Sequence[Grant] = (),
) -> Mapping[str, Any]:
    """``shared``: files that others may write and lock at the same time."""
    required = _required()
    debug = os.environ.get("DEBUG", "0") not in ("", "0")
    request = {
        **order,
        "source": _written(source, work),
        "options": options.to_dict(),
        "folder": _here(),
        "limits": asdict(StageLimits()),
        "environment": {name: os.environ.get(name, "") for name in _PASSED_ON if name in os.environ}
        | {"INGOT_CACHE_DIR": str(cache_directory().absolute()), "TMPDIR": str(work), "HOME": str(work)},
    }
    grants = (*toolchain((zig_executable(),)), *_grants(source, work), *shared)
    locks = bool(options.bundle or shared)
    policy = Policy(grants, _LIMITS, required=required, locks=locks, kept_out=private_places())
    write_atomically(work / REQUEST_FILE, json.dumps(request).encode())
    write_atomically(work / BOUNDARY_FILE, policy.to_json())
    lines = Lines(lambda message: _pass_on(message, progress, debug), sys.maxsize if debug else MOST_LINES)
    killed = killed_for_memory()
    status = _attend(work, lines)
    if status == NO_SPACE:
        raise _lacks_room([Path(path) for path, access in grants if access == "write"])
    if status:
        raise how_it_died(status, StageLimits.seconds, StageLimits.file_size, killed, refused=False)
    try:
        return read_result(work)
    except StageError as error:
        raise _with_reproducer(error, work / REPRODUCER) from error


def _lacks_room(places: Sequence[Path]) -> StageError:
    """The error of a child that may write to ``places`` and found no room: those that have none now, or, where somebody has made some
    meanwhile, all of them."""
    full = [place for place in places if not _has_room(place if place.is_dir() else place.parent)]
    return UnseenError(
        ErrorCode.DISK_FULL,
        "the process that reads the model found no space to write in",
        field=", ".join(map(str, full or places)),
        remedy="Make room there; temporary files are where TMPDIR says, and tuning records where --records does.",
    )


def _has_room(folder: Path) -> bool:
    try:
        require_writable(folder, "")
    except IngotError as error:
        return error.code is not ErrorCode.DISK_FULL
    return True


def _with_reproducer(error: StageError, path: Path) -> StageError:
    """``error``, which says where what shows the fault again is kept, where the child left it."""
    if not path.is_file() or path.stat().st_size > _MOST_REPRODUCER_BYTES:
        return error
    text = read_own(path, _MOST_REPRODUCER_BYTES)
    with tempfile.NamedTemporaryFile("wb", prefix="ingot-fault-", suffix=".txt", delete=False) as kept:
        kept.write(text)
    return replace(error, remedy=f"{error.remedy} What shows it again is kept in {kept.name}.".strip())


def _attend(work: Path, lines: Lines) -> int:
    """Exit status of a child that works on the order in ``work``; whatever is raised here ends the child."""
    progress_end, progress = os.pipe()
    printed_end, printed = os.pipe()
    with os.fdopen(progress_end, "rb") as reports, os.fdopen(printed_end, "rb") as log:
        try:
            child = start_child(work, progress, printed)
        finally:
            os.close(progress)
            os.close(printed)
        with child.leash:
            attend(child, reports, log, lines, lambda: False, _NO_LIMIT_SECONDS)
            return child.wait()


def _grants(source: ModelSource, work: Path) -> Iterator[Grant]:
    yield str(work), "write"
    for name in ("native", "zig"):
        yield str(cache_directory().absolute() / name), "read"
    if os.environ.get("DUMP"):
        folder = Path(os.environ["DUMP"]).absolute()
        _refuse_private(folder)
        folder.mkdir(parents=True, exist_ok=True)
        yield str(folder), "write"
    yield from ((str(blob.absolute()), "read") for blob in source.blobs.values() if isinstance(blob, Path))
    if isinstance(source.model, Path):
        yield str(source.model.absolute()), "read"
        yield from _beside(source.model.absolute().parent)


def _refuse_private(folder: Path) -> None:
    """Raises IngotError INVALID_ARGUMENT: a process that reads a model would write where keys lie."""
    found = held(str(folder), private_places())
    if found:
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            "the folder for intermediate forms holds what a process that reads a model must not reach",
            field="DUMP",
            expected="a folder of its own",
            received=f"{folder}, in which {found[0]} lies",
        )


def _beside(folder: Path) -> Iterator[Grant]:
    """The files that may hold a model's data: what lies in its folder, but nothing hidden and nobody's home."""
    private = (*private_places(), *map(os.path.realpath, (Path.home(), cache_directory())))
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if not entry.name.startswith(".") and not held(entry.path, private):
                yield entry.path, "read"


def _written(source: ModelSource, work: Path) -> Mapping[str, Any]:
    """The source as an order names it; what is in memory becomes files."""
    blobs = {}
    for number, (location, blob) in enumerate(source.blobs.items()):
        path = blob.absolute() if isinstance(blob, Path) else work / f"blob-{number}"
        if not isinstance(blob, Path):
            path.write_bytes(blob)
        blobs[location] = str(path)
    if isinstance(source.model, Path):
        return {"model": str(source.model), "is_bytes": False, "blobs": blobs}
    (work / "model").write_bytes(source.model)
    return {"model": str(work / "model"), "is_bytes": True, "blobs": blobs}


def _pass_on(message: Mapping[str, Any], progress: Progress, debug: bool) -> None:
    if "log" in message:
        print(printable(str(message["log"])), file=sys.stdout if debug else sys.stderr)
        return
    progress(message["stage"], message["done"], message["total"], message["message"])


def _warn(said: Any) -> None:
    kinds = {kind.__name__: kind for kind in (OptimisationFaultWarning, TuningRecordWarning)}
    for pair in said[:MOST_LINES] if isinstance(said, list) else ():
        match pair:
            case [str(kind), str(text)]:
                warnings.warn(printable(text[:MOST_LINE_CHARACTERS]), kinds.get(kind, UserWarning), stacklevel=4)


def _here() -> str:
    """The working directory, which a relative path of the caller's is relative to; it may have been removed."""
    try:
        return os.getcwd()
    except OSError:
        return "/"


def _required() -> tuple[str, ...]:
    parts = required_parts(os.environ.get("INGOT_SANDBOX", BEST_EFFORT))
    require(parts)
    _say_once()
    return tuple(parts)


@cache
def _say_once() -> None:
    if not standing().is_whole:
        say_standing(logger)


@contextlib.contextmanager
def _work() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="ingot-compile-", ignore_cleanup_errors=True) as name:
        yield Path(name)
