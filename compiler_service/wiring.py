"""Puts together, from settings, what the API server and the worker both have."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from redis import Redis

from compiler_service.boundary.state import require, required_parts
from compiler_service.compiler.codegen.toolchain.zig import zig_executable
from compiler_service.jobs.counters import Counters
from compiler_service.jobs.orders import Orders
from compiler_service.jobs.seal import Seal
from compiler_service.jobs.service import Compiler, JobService, Queue
from compiler_service.jobs.store import JobStore
from compiler_service.settings import Settings, variable
from compiler_service.stages.runner import StageLimits, StageRunner
from compiler_service.store.reproducers import Reproducers
from compiler_service.store.sources import SourceStore
from compiler_service.store.tuning_store import TuningStore
from shared_ir.artifact.memory import MEMORY_FILE, Memory
from shared_ir.artifact.repository import ArtifactRepository
from shared_ir.artifact.signature import SigningKey, Trust, TrustFolder, add_trusted
from shared_ir.errors import IngotError
from shared_ir.service_kit.starting import at_start, require_place
from shared_ir.storage.faults import require_writable
from shared_ir.storage.store import open_store

STAGE_COMMAND = (sys.executable, "-m", "compiler_service.stages.compiler")
"""Starts the process of one stage."""


@dataclass(frozen=True)
class Parts:
    """What both processes have."""

    service: JobService
    counters: Counters
    repository: ArtifactRepository
    sources: SourceStore
    tuning: TuningStore
    runner: StageRunner
    signer: SigningKey
    reproducers: Reproducers


@at_start
def make_parts(settings: Settings, compiler: Compiler, queue: Queue, command: Sequence[str] = STAGE_COMMAND) -> Parts:
    """Connects to nothing yet: Redis and remote stores are reached at first use.

    Raises:
        IngotError: UNAVAILABLE when a part of the boundary is missing that ``settings`` require.
    """
    required = required_parts(settings.sandbox)
    require(required)
    for name, place in (("home", settings.home), ("cache_dir", settings.cache)):
        require_writable(place, f"the folder of {variable(name)}")
    require_place(settings.liveness, variable("liveness_file"))
    redis = Redis.from_url(settings.redis_url, decode_responses=True, health_check_interval=30)
    store = open_store(settings.store, settings.cache / "objects")
    signer, trust = installation_keys(settings)
    repository = ArtifactRepository(store, trust, signer, Memory(settings.home / MEMORY_FILE))
    sources = SourceStore(store, settings.home / "uploads", settings.max_model_bytes)
    counters, tuning = Counters(redis), TuningStore(store)
    jobs = JobStore(redis, settings.keep_jobs_seconds, Seal(signer, repository.trust))
    service = JobService(jobs, Orders(store), counters, repository, sources, tuning, compiler, queue, settings.max_jobs)
    limits = StageLimits(memory=settings.job_memory, seconds=settings.job_seconds, threads=settings.threads)
    runner = StageRunner(command, limits, settings.cache.absolute(), _programs(), required)
    return Parts(service, counters, repository, sources, tuning, runner, signer, Reproducers(store))


def _programs() -> tuple[Path, ...]:
    """What a stage starts beside Python: the linker, where it is installed."""
    try:
        return (zig_executable(),)
    except IngotError:
        return ()


def installation_keys(settings: Settings) -> tuple[SigningKey, Trust]:
    """The installation's signing key, made at first use and trusted here."""
    signer = SigningKey.load_or_create(settings.signing_key_file)
    if not (settings.trust_directory / f"{signer.key_id}.pub").exists():
        add_trusted(settings.trust_directory, signer.public)
    return signer, TrustFolder(settings.trust_directory)
