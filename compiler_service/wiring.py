"""Puts together, from settings, what the API server and the worker both have."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError
from redis.retry import Retry

from compiler_service.boundary.state import require, required_parts
from compiler_service.compiler.codegen.toolchain.emulation import emulator_for
from compiler_service.compiler.codegen.toolchain.zig import zig_executable
from compiler_service.jobs.clerk import OrderedWrites, OrderingRegistry
from compiler_service.jobs.neighbours import Compiler, Queue
from compiler_service.jobs.orders import Orders
from compiler_service.jobs.persistence.counters import Counters
from compiler_service.jobs.persistence.marks import SharedMarks
from compiler_service.jobs.persistence.seal import Seal
from compiler_service.jobs.persistence.store import JobStore
from compiler_service.jobs.service import JobService
from compiler_service.keys import ProcessKeys, worker_keys
from compiler_service.settings import CompilerSettings, variable
from compiler_service.stages.runner import StageLimits, StageRunner
from compiler_service.store.reproducers import Reproducers
from compiler_service.store.sources import SourceStore
from compiler_service.store.tuning_store import TuningStore
from shared_ir.artifact.memory import MEMORY_FILE, Memory
from shared_ir.artifact.signature import OwnKey
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.machine.target import Target
from shared_ir.registry.registry import ArtifactRegistry
from shared_ir.service_kit.starting import at_start, require_place
from shared_ir.storage.faults import require_writable
from shared_ir.storage.protocol import ObjectStore
from shared_ir.storage.store import open_store
from shared_ir.storage.traced import traced

_MOST_SECONDS = 30.0
"""For an answer of Redis: longer than any that is waited for, so that one that hangs is one that is away."""
_CLIENTS_SECONDS = 5.0
"""The same where clients wait: they are told within seconds, and not when their own time is up."""
STAGE_COMMAND = (sys.executable, "-m", "compiler_service.stages.compiler")
"""Starts the process of one stage."""


@dataclass(frozen=True)
class Parts:
    """What both processes have."""

    service: JobService
    counters: Counters
    repository: ArtifactRegistry
    sources: SourceStore
    tuning: TuningStore
    runner: StageRunner
    keys: ProcessKeys
    reproducers: Reproducers

    @property
    def signer(self) -> OwnKey:
        """Raises IngotError INTERNAL in a process that has none."""
        if self.keys.signer is None:
            raise IngotError(ErrorCode.INTERNAL, "this process has no key to sign artifacts with")
        return self.keys.signer


@at_start
def make_parts(
    settings: CompilerSettings,
    compiler: Compiler,
    queue: Queue,
    command: Sequence[str] = STAGE_COMMAND,
    keys: ProcessKeys | None = None,
) -> Parts:
    """``keys`` are by default those of a worker; without one to sign with, workers are asked to.

    Connects to nothing yet: Redis and remote stores are reached at first use.

    Raises:
        IngotError: UNAVAILABLE when a part of the boundary is missing that ``settings`` require.
    """
    required = required_parts(settings.sandbox)
    require(required)
    for name, place in (("home", settings.home), ("cache_dir", settings.cache)):
        require_writable(place, f"the folder of {variable(name)}")
    require_place(settings.liveness, variable("liveness_file"))
    keys = keys or worker_keys(settings)
    redis = _redis(settings.redis_url, answers=keys.signer is None)
    memory = Memory(settings.home / MEMORY_FILE)
    store = traced(open_store(settings.store, settings.cache / "objects", SharedMarks(memory, redis)))
    repository = _repository(store, keys, memory, redis)
    sources = SourceStore(store, settings.max_model_bytes)
    counters, tuning = Counters(redis), TuningStore(store, compiler.merge_records)
    jobs = JobStore(redis, settings.keep_jobs_seconds, Seal(keys.sealer, keys.order_trust))
    service = JobService(jobs, Orders(store), counters, repository, sources, tuning, compiler, queue, settings.max_jobs)
    # A file of an artifact has been in memory; one that holds nothing costs a stage nothing, and the store its whole size.
    memory_and_files = {"memory": settings.job_memory, "file_size": settings.job_memory}
    limits = StageLimits(**memory_and_files, seconds=settings.job_seconds, threads=settings.threads)
    runner = StageRunner(command, limits, settings.cache.absolute(), _programs(), required, _emulator)
    return Parts(service, counters, repository, sources, tuning, runner, keys, Reproducers(store))


def _redis(url: str, *, answers: bool) -> Redis:
    """``answers``: to clients, who are not kept waiting. A connection that broke is made anew once, which a Redis that is back needs."""
    common: dict[str, Any] = {"decode_responses": True, "encoding_errors": "replace", "health_check_interval": 30}
    if not answers:
        return Redis.from_url(url, socket_timeout=_MOST_SECONDS, **common)
    once = Retry(NoBackoff(), 1, supported_errors=(ConnectionError,))
    return Redis.from_url(
        url, socket_timeout=_CLIENTS_SECONDS, socket_connect_timeout=_CLIENTS_SECONDS, retry=once, **common
    )


def _programs() -> tuple[Path, ...]:
    """What a stage starts beside Python: the linker, where it is installed."""
    try:
        return (zig_executable(),)
    except IngotError:
        return ()


def _emulator(target: Target) -> Path | None:
    found = emulator_for(target)
    return found.program if found else None


def _repository(store: ObjectStore, keys: ProcessKeys, memory: Memory, redis: Redis) -> ArtifactRegistry:
    if keys.signer is not None:
        return ArtifactRegistry(store, keys.trust, keys.signer, memory)
    return OrderingRegistry(store, keys.trust, memory, OrderedWrites.over(redis, keys.sealer))
