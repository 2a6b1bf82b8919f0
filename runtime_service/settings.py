"""Settings of the runtime service, from ``INGOT_*`` environment variables."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Self

from runtime_service.model_settings import (
    EVERY_MODEL,
    MOST_QUEUE_DELAY,
    PRESETS,
    ModelSettings,
    read_models_file,
    require_model,
)
from runtime_service.policies import VersionPolicy
from runtime_service.readiness import ReadyRule
from shared_ir.errors import IngotError
from shared_ir.service_kit.access.secret_files import file_variables, with_secret_files
from shared_ir.service_kit.http.hosts import Hosts
from shared_ir.service_kit.settings import (
    MOST_BYTES,
    MOST_SECONDS,
    MOST_THINGS,
    MOST_THREADS,
    is_loopback,
    out_of_range,
    read_fields,
    refuse_blank,
    refuse_unknown,
    require_address,
    require_address_or_path,
    require_at_least,
    require_at_most,
    require_token,
    require_whole_tls,
    without_service_links,
)
from shared_ir.service_kit.unix_sockets import UNIX

PREFIX = "INGOT_RUNTIME_"
SHARED = ("store_url", "home", "trust", "triton_metrics")
"""Fields whose variables have no ``RUNTIME_`` in their name: other services read them too, or there is no other that could mean it."""
_GUARDS = ("token", "tls_certificate", "tls_key", "tls_client_ca")
_BYTES = ("max_request_bytes", "max_bytes_in_flight", "run_memory_bytes", "kept_memory_bytes", "cache_bytes")
_MOST_PROCESSES = 256
_MOST_IN_FLIGHT = 1 << 15
"""Each may have a thread: as many as a system gives one process as a rule."""
_LEAST_POLL = 0.1
"""Seconds; with less, looks at the store would take a core, or be a burden to who keeps it."""
_SECRETS = ("token", "store_url")
"""Fields whose value may stand in a file that the variable with ``_FILE`` behind its name says."""


@dataclass(frozen=True)
class RuntimeSettings:
    """Each field is read from ``INGOT_RUNTIME_<FIELD>``, but for those of :data:`SHARED`."""

    home: Path = Path.home() / ".ingot"
    """Folder of this installation: trusted keys in ``trust/``, downloaded artifacts in ``cache/``."""
    trust: str = ""
    """Folder with the public keys of those whose models may be loaded. Empty: ``trust/`` in the home folder."""
    store_url: str = ""
    """Artifact store: a path, ``file://``, ``s3://``, ``gs://`` or ``az://``. Empty: ``store/`` in the home folder."""
    layout: str = ""
    """Folder with one model as an OCI image layout (``ingot compile --out``), served in place of a store under the name that ``models``
    gives it, such as ``resnet@latest``; it may appear after the server has started."""
    models: str = ""
    """What to serve: ``name@policy`` separated by commas, ``*@policy`` for every model of the store that has one.
    Policies: labels (``stable``), ``latest``, ``latest:2``, numbers (``3+4``), ``all``; without one, ``stable``. Labels and numbers with
    weights (``stable:95+canary:5``) share the requests that name no version."""
    models_file: str = ""
    """JSON file with settings per model: ``{"resnet": {"policy": "stable", "max_batch_size": 16, ...}}``."""
    model_control: str = "configured"
    """``explicit`` lets clients load and unload models over the repository API, where there is a token or a
    ``control_address``; ``configured`` refuses that."""
    control_address: str = ""
    """Where models are loaded and unloaded with ``explicit`` control, and settings of log and traces changed, and nowhere else:
    ``unix:/path`` of a socket for this user alone, or ``host:port``, which asks for the token and the certificate that REST asks for, and
    is of the loopback interface where there are none. Empty: on the ports of gRPC and REST, for those who have the token."""
    ready: str = "all"
    """When the server is ready: ``all`` models that were there when it started are loaded and warm, and there is one; ``any`` of them
    answers, and the others were tried; ``none`` has to, but all were tried; or the names, separated by commas, of those that have to."""
    poll_interval: float = 2.0
    """Seconds between two looks at the store, each one request as long as nothing changes there."""
    cache_bytes: int = 20 << 30
    """Bytes of copies of remote objects in ``cache/`` of the home folder: of those that nobody uses any more the least recently used
    go first. 0: no limit."""
    grpc_address: str = "127.0.0.1:8001"
    """Where gRPC listens; port 0 takes a free one. Empty turns it off."""
    http_address: str = "127.0.0.1:8000"
    """Where REST listens (with ``/metrics`` as well). Empty turns it off."""
    metrics_address: str = "127.0.0.1:8002"
    """Where ``/metrics`` alone listens. Empty turns it off."""
    triton_metrics: bool = False
    """``1``: Triton's metrics (``nv_inference_*``) are there beside ours, for dashboards and autoscalers that were made for it."""
    max_histograms: int = 200
    """Versions of models that have histograms of their own in ``/metrics``; of those that get requests later, one set is kept together."""
    access_log: bool = False
    """``1``: every inference has a line in the log (``ingot.access``), with the id of the request; else refused ones have."""
    address_file: str = ""
    """JSON file that gets the addresses in use once the server listens; for ports chosen by the system."""
    shared_memory: str = ""
    """How the names of those objects of shared memory begin that clients of this machine may name instead of sending tensors, such as
    ``ingot-``; ``*`` for every object that the user of the server may open. Empty: none."""
    max_request_bytes: int = 256 * 1024 * 1024
    """Largest request, in bytes, for both protocols."""
    max_bytes_in_flight: int = 0
    """Bytes that all requests together may hold, bodies, what is made of them, and answers that are not taken yet; one
    address may hold half of them. 0: eight times the largest request."""
    max_in_flight: int = 256
    """Inference requests beyond which new ones are refused at once; also the number of serving threads."""
    max_batch_size: int = 64
    """Rows of one execution, for models with a batch dim; larger requests run in pieces. 0 turns batching off."""
    max_queue_delay_microseconds: int = 0
    """How long a request may wait for others while an instance is free."""
    max_queue_size: int = 512
    """Waiting requests per model version beyond which new ones are refused."""
    preset: str = "latency"
    """What models are served for, where nothing else is said: ``latency``, one execution at a time on all cores, or ``throughput``, as many
    as there are cores, each on one."""
    instances: int = 0
    """Executions of one model version that may run at once; the cores are divided among them. 0: as the preset says."""
    run_memory_bytes: int = 4 << 30
    """Bytes that the outputs of one run may take, and again its intermediate values, strings and sequences, beside weights; 0: no limit."""
    kept_memory_bytes: int = 1 << 30
    """Bytes of intermediate values that an instance keeps from one run for the next; what is more is given back. 0: all are kept."""
    kept_threads: int = 512
    """Threads that all models keep together between their runs: those of the least recently used end, and begin again with the next
    request for their model. 0: no limit."""
    cores: int = 0
    """Cores to use; 0 takes the smaller of the affinity mask and the container's CPU quota."""
    processes: int = 1
    """Processes that serve together behind the same addresses, each with its part of the cores and of the bytes in flight; weights are in
    memory once. For many small requests, which one interpreter answers slower than the models compute. A connection stays
    with one process, and what is said per model (queues, batches, requests in flight) is so per process."""
    drain_delay: float = 0.0
    """Seconds to keep serving after SIGTERM while not ready any more, for load balancers to notice."""
    drain_timeout: float = 30.0
    """Seconds to wait for the requests in flight before exiting regardless."""
    tls_certificate: str = ""
    """PEM file with the server's certificate chain; with ``tls_key`` it turns TLS on for gRPC and REST."""
    tls_key: str = ""
    """PEM file with the private key of ``tls_certificate``."""
    tls_client_ca: str = ""
    """PEM file with the authorities of client certificates; makes client certificates mandatory."""
    token: str = ""
    """Bearer token that every call must carry, health checks and metrics excepted. Unset: none."""
    hosts: str = ""
    """Names, separated by commas, by which clients may address the server where there is no token, beside IP addresses and
    ``localhost``; ``.example.com`` stands for all names below it, ``*`` for every name. Pages of other sites are refused."""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Self:
        """Raises IngotError INVALID_ARGUMENT naming the variable: unknown, malformed, out of range, or blank where it guards."""
        own, secrets = without_service_links(environment), [variable(name) for name in _SECRETS]
        refuse_unknown(own, PREFIX, variables())
        refuse_blank(own, [*(variable(name) for name in _GUARDS), *file_variables(secrets)])
        own = with_secret_files(own, secrets)
        settings = cls(**read_fields(cls, own, variable))
        settings._check()
        return settings

    def _check(self) -> None:
        if self.model_control not in ("configured", "explicit"):
            raise _invalid("model_control", "'configured' or 'explicit'", self.model_control)
        if self.model_control == "explicit" and not (self.token or self.control_address):
            raise _invalid(
                "model_control",
                f"{variable('token')} or {variable('control_address')} beside 'explicit'",
                "neither: anyone who reaches the server could unload its models",
            )
        if self._is_open_control():
            raise _invalid(
                "control_address",
                f"a Unix socket, an address of the loopback interface, or {variable('token')} or {variable('tls_client_ca')} beside it",
                f"{self.control_address}: anyone who reaches it could unload models",
            )
        require_whole_tls(self, variable)
        self._check_ranges()
        self._check_processes()
        if not (self.grpc_address or self.http_address):
            expected = f"an address there, or in {variable('http_address')}"
            raise _invalid("grpc_address", expected, "neither: nobody could ask for anything")
        require_token(variable("token"), self.token)
        self._check_addresses()
        if self.preset not in PRESETS:
            raise _invalid("preset", " or ".join(PRESETS), repr(self.preset)[:100])
        if self.layout and self.store_url:
            raise _invalid("layout", f"only one of it and {variable('store_url')}", "both")
        self._check_shared_memory()
        self.ready_rule()

    def _check_addresses(self) -> None:
        require_address(variable("grpc_address"), self.grpc_address)
        for name in ("http_address", "metrics_address", "control_address"):
            require_address_or_path(variable(name), getattr(self, name))
        Hosts.parse(self.hosts, variable("hosts"))

    def _check_ranges(self) -> None:
        require_at_least(self, 1, ("max_in_flight", "max_queue_size", "max_request_bytes", "processes"), variable)
        require_at_most(self, _MOST_PROCESSES, ("processes",), variable)
        counts = (
            "max_batch_size",
            "max_queue_delay_microseconds",
            "cores",
            "drain_delay",
            "drain_timeout",
            "run_memory_bytes",
            "kept_memory_bytes",
            "max_bytes_in_flight",
            "cache_bytes",
            "kept_threads",
            "instances",
            "max_histograms",
        )
        require_at_least(self, 0, counts, variable)
        require_at_most(self, MOST_BYTES, _BYTES, variable)
        require_at_most(self, MOST_SECONDS, ("poll_interval", "drain_delay", "drain_timeout"), variable)
        require_at_most(self, _MOST_IN_FLIGHT, ("max_in_flight",), variable)
        require_at_most(self, MOST_THREADS, ("instances", "cores"), variable)
        things = ("max_queue_size", "max_batch_size", "max_histograms", "kept_threads")
        require_at_most(self, MOST_THINGS, things, variable)
        require_at_most(self, MOST_QUEUE_DELAY, ("max_queue_delay_microseconds",), variable)
        require_at_least(self, _LEAST_POLL, ("poll_interval",), variable)
        if 0 < self.max_bytes_in_flight < 4 * self.max_request_bytes:
            expected = f"0, or at least four times {variable('max_request_bytes')}"
            raise _invalid("max_bytes_in_flight", expected, str(self.max_bytes_in_flight))

    def _check_processes(self) -> None:
        """Of several, a call reaches one: what is changed by calls would be so for some connections alone."""
        changed = [name for name in ("control_address", "shared_memory") if getattr(self, name)]
        if self.model_control == "explicit":
            changed.append("model_control")
        if self.processes > 1 and not hasattr(os, "memfd_create"):
            raise _invalid("processes", "1 on this system, which has no memory that can be sealed", str(self.processes))
        if self.processes > 1 and changed:
            expected = f"1 where {variable(changed[0])} is {getattr(self, changed[0])!r}"
            raise _invalid("processes", expected, f"{self.processes}: a call would reach one of them alone")

    def _check_shared_memory(self) -> None:
        given = self.shared_memory.removeprefix("/")
        if self.shared_memory and (not given.strip() or "/" in given):
            expected = "the beginning of the names of objects, without a slash in it, or *"
            raise _invalid("shared_memory", expected, repr(self.shared_memory[:100]))
        addresses = filter(None, (self.grpc_address, self.http_address))
        reached = [each for each in addresses if not (each.startswith(UNIX) or is_loopback(each))]
        if self.shared_memory and reached and not (self.token or self.tls_client_ca):
            expected = (
                f"addresses of the loopback interface, or {variable('token')} or {variable('tls_client_ca')} beside it"
            )
            raise _invalid(
                "shared_memory", expected, f"{reached[0]}: anyone who reaches it could read objects of this machine"
            )

    def _is_open_control(self) -> bool:
        """Whether models may be unloaded from other machines by whoever asks."""
        own = not self.control_address or self.control_address.startswith(UNIX) or is_loopback(self.control_address)
        return not own and not (self.token or self.tls_client_ca)

    @property
    def bytes_in_flight(self) -> int:
        return self.max_bytes_in_flight or 8 * self.max_request_bytes

    @property
    def trust_directory(self) -> Path:
        return Path(self.trust) if self.trust else self.home / "trust"

    def ready_rule(self) -> ReadyRule:
        """Raises IngotError INVALID_ARGUMENT."""
        return ReadyRule.parse(self.ready, variable("ready"))

    def model_settings(self) -> tuple[ModelSettings, ...]:
        """Every configured model, once.

        Raises:
            IngotError: INVALID_ARGUMENT, the list or the file is malformed.
        """
        found = read_models_file(Path(self.models_file)) if self.models_file else {}
        for item in filter(None, (part.strip() for part in self.models.split(","))):
            name, _, policy = item.partition("@")
            if name in found:
                raise _invalid("models", "each model once", name)
            require_model(name, variable("models"))
            found[name] = ModelSettings(name, VersionPolicy.parse(policy or "stable", variable("models")))
        for model in found.values():
            self._check_sizes(model)
        self._check_ready(found)
        return tuple(found.values())

    def _check_ready(self, found: Mapping[str, ModelSettings]) -> None:
        """Where nobody loads models by request, those that are not served are waited for in vain."""
        strange = [name for name in self.ready_rule().names if name not in found]
        if strange and EVERY_MODEL not in found and self.model_control != "explicit":
            expected = f"all, any, none, or names of models that {variable('models')} or {variable('models_file')} has"
            raise _invalid("ready", expected, ",".join(strange)[:100])

    def _check_sizes(self, model: ModelSettings) -> None:
        most = self.max_batch_size if model.max_batch_size is None else model.max_batch_size
        if max(model.preferred_batch_sizes, default=0) > most:
            where = f"{self.models_file}: {model.name}: preferred_batch_sizes"
            raise out_of_range(where, f"at most max_batch_size, {most}", str(list(model.preferred_batch_sizes))[:100])


def variable(field_name: str) -> str:
    """The environment variable of a field of :class:`RuntimeSettings`."""
    return ("INGOT_" if field_name in SHARED else PREFIX) + field_name.upper()


def variables() -> tuple[str, ...]:
    """Of all settings, and of the files that secrets among them may stand in."""
    named = tuple(variable(own.name) for own in fields(RuntimeSettings))
    return named + file_variables(variable(name) for name in _SECRETS)


def _invalid(field_name: str, expected: str, received: str) -> IngotError:
    return out_of_range(variable(field_name), expected, received)
