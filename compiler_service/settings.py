"""Settings of the compiler service, read once from ``INGOT_*`` environment variables."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Self

from compiler_service.boundary.state import BEST_EFFORT, required_parts
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.machine.cores import usable_cores
from shared_ir.service_kit.access.secret_files import file_variables, with_secret_files
from shared_ir.service_kit.http.hosts import Hosts
from shared_ir.service_kit.settings import (
    MOST_BYTES,
    MOST_PORT,
    MOST_SECONDS,
    MOST_THINGS,
    MOST_THREADS,
    read_fields,
    refuse_blank,
    refuse_unknown,
    require_at_least,
    require_at_most,
    require_redis,
    require_token,
    require_whole_tls,
    without_service_links,
)

PREFIX = "INGOT_"
_OTHERS = "INGOT_RUNTIME_"
"""Settings of the runtime service may stand in the same environment."""
QUEUE_NAMES = ("compile", "tune", "verify")
_GUARDS = ("token", "api_tokens", "tls_certificate", "tls_key", "tls_client_ca")
LEAST_JOB_MEMORY = 256 << 20
"""Bytes with which a process that reads the smallest model starts; with less every job would be said to be too large."""
LEAST_VISIBILITY = 5
"""Seconds; with less, workers would spend their time on messages of stages that run, and find each time that they do."""
_SECONDS = ("job_seconds", "lease_seconds", "keep_jobs_seconds", "drain_seconds", "visibility_seconds")
_SECRETS = ("token", "redis_url", "store_url")
"""Fields whose value may stand in a file that the variable with ``_FILE`` behind its name says."""


@dataclass(frozen=True)
class CompilerSettings:
    """Every field is the environment variable ``INGOT_<FIELD>``. Sizes are in bytes, times in seconds.

    Attributes:
        redis_url: queue, job records and locks: ``redis://host:6379/0`` or ``unix:///path``.
        store_url: models and artifacts: ``file:///...``, ``s3://bucket/prefix``, ...
        home: keys and working directories.
        cache_dir: pieces that compilations share, and copies of remote objects; by default ``~/.cache/ingot``.
        trust: directory of trusted public keys; by default ``home/trust``.
        signing_key: private key of the workers; by default ``home/signing.pem``, made at first use.
        order_key: private key of the API, which signs orders for workers and nothing else; by default ``home/order.pem``, made at
            first use. Workers trust its public half in the folder ``orders`` of ``trust``.
        compiler_host, compiler_port: where the gRPC API listens; port 0 takes a free one.
        compiler_metrics_port: where ``/metrics`` of the API listens; 0 takes a free one, -1 none.
        compiler_hosts: names, separated by commas, of ``/metrics`` beside IP addresses and ``localhost``; ``*`` for all.
        token: bearer token that may do everything; with neither it nor ``api_tokens`` everyone may.
        api_tokens: file with the hashes of tokens, their scopes and namespaces, as ``ingot tokens`` writes it.
        tls_certificate, tls_key, tls_client_ca: PEM files; a client CA makes client certificates mandatory.
        max_model_bytes: largest uploaded file.
        max_jobs: unfinished jobs; more are refused with RESOURCE_EXHAUSTED.
        max_watchers: open WatchJob streams.
        liveness_file: touched by a worker every 2 seconds while it takes work, or has its hands full; by default ``home/worker.alive``.
        workers: stages that one worker process runs at once.
        queues: what a worker takes: ``compile``, ``tune``, ``verify``, with commas between; all of them by default.
        job_memory, job_seconds, job_threads: of a stage: memory of each process and size of each file, time, threads.
        lease_seconds: after this time without a sign of life a worker counts as lost.
        keep_jobs_seconds: how long finished jobs are remembered.
        drain_seconds: how long running calls may take when the server stops.
        sandbox: what must hold of the boundary around processes that read models: ``best-effort``, ``require`` (all of
            it), or the names of parts with commas between (docs/design/boundary.md).
        visibility_seconds: after this time the broker delivers an unacknowledged task again.
    """

    redis_url: str = "redis://127.0.0.1:6379/0"
    store_url: str = ""
    home: Path = Path.home() / ".ingot"
    cache_dir: str = ""
    trust: str = ""
    signing_key: str = ""
    order_key: str = ""
    compiler_host: str = "127.0.0.1"
    compiler_port: int = 8500
    compiler_metrics_port: int = 8501
    compiler_hosts: str = ""
    token: str = ""
    api_tokens: str = ""
    tls_certificate: str = ""
    tls_key: str = ""
    tls_client_ca: str = ""
    max_model_bytes: int = 8 * 1024**3
    max_jobs: int = 1000
    max_watchers: int = 2000
    liveness_file: str = ""
    workers: int = 1
    queues: str = "compile,tune,verify"
    job_memory: int = 16 * 1024**3
    job_seconds: float = 3600.0
    job_threads: int = 0
    lease_seconds: float = 30.0
    keep_jobs_seconds: int = 7 * 24 * 3600
    drain_seconds: float = 20.0
    sandbox: str = BEST_EFFORT
    visibility_seconds: int = 6 * 3600

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Self:
        """Raises IngotError INVALID_ARGUMENT naming the variable that is unknown, malformed, out of range, or blank where it guards."""
        own = without_service_links(environment)
        refuse_unknown({n: text for n, text in own.items() if not n.startswith(_OTHERS)}, PREFIX, variables())
        secrets = [variable(name) for name in _SECRETS]
        refuse_blank(own, [*(variable(name) for name in _GUARDS), *file_variables(secrets)])
        own = with_secret_files(own, secrets)
        settings = cls(**read_fields(cls, own, variable))
        settings._check()
        return settings

    def _check(self) -> None:
        required_parts(self.sandbox)
        require_whole_tls(self, variable)
        _require_queues(self.queues)
        require_at_least(self, 1, ("max_model_bytes", "max_jobs", "max_watchers", "workers", "job_memory"), variable)
        require_at_least(self, 1, ("lease_seconds", "keep_jobs_seconds", "job_seconds"), variable)
        require_at_least(self, LEAST_VISIBILITY, ("visibility_seconds",), variable)
        require_at_least(self, 0, ("compiler_port", "job_threads", "drain_seconds"), variable)
        require_at_least(self, -1, ("compiler_metrics_port",), variable)
        require_at_most(self, MOST_PORT, ("compiler_port", "compiler_metrics_port"), variable)
        require_at_most(self, MOST_SECONDS, _SECONDS, variable)
        require_at_most(self, MOST_BYTES, ("max_model_bytes", "job_memory"), variable)
        require_at_most(self, MOST_THINGS, ("max_jobs", "max_watchers"), variable)
        require_at_most(self, MOST_THREADS, ("workers", "job_threads"), variable)
        require_at_least(self, LEAST_JOB_MEMORY, ("job_memory",), variable)
        require_token(variable("token"), self.token)
        Hosts.parse(self.compiler_hosts, variable("compiler_hosts"))
        require_redis(variable("redis_url"), self.redis_url)

    @property
    def store(self) -> str:
        return self.store_url or (self.home / "store").absolute().as_uri()

    @property
    def cache(self) -> Path:
        if self.cache_dir:
            return Path(self.cache_dir)
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ingot"

    @property
    def trust_directory(self) -> Path:
        return Path(self.trust) if self.trust else self.home / "trust"

    @property
    def signing_key_file(self) -> Path:
        return Path(self.signing_key) if self.signing_key else self.home / "signing.pem"

    @property
    def order_key_file(self) -> Path:
        return Path(self.order_key) if self.order_key else self.home / "order.pem"

    @property
    def orders_directory(self) -> Path:
        return self.trust_directory / "orders"

    @property
    def tokens_file(self) -> Path | None:
        return Path(self.api_tokens) if self.api_tokens else None

    @property
    def liveness(self) -> Path:
        return Path(self.liveness_file) if self.liveness_file else self.home / "worker.alive"

    @property
    def broker_url(self) -> str:
        """The Redis URL in Celery's spelling."""
        return self.redis_url.replace("unix://", "redis+socket://", 1)

    @property
    def threads(self) -> int:
        """Threads per stage."""
        return self.job_threads or max(1, usable_cores() // self.workers)


def _require_queues(text: str) -> None:
    unknown = set(text.split(",")) - set(QUEUE_NAMES)
    if unknown:
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            "there is no such queue",
            field=variable("queues"),
            expected=f"some of {', '.join(QUEUE_NAMES)}, with commas between and no spaces",
            received=text[:100],
        )


def variable(field_name: str) -> str:
    """The environment variable of a field of :class:`CompilerSettings`."""
    return PREFIX + field_name.upper()


def variables() -> tuple[str, ...]:
    """Of all settings, and of the files that secrets among them may stand in."""
    named = tuple(variable(own.name) for own in fields(CompilerSettings))
    return named + file_variables(variable(name) for name in _SECRETS)
