"""The process: wiring, start, orderly end. ``python -m runtime_service.server``, settings from the environment."""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import threading
from pathlib import Path

from runtime_service.api.grpc_server import GrpcServer
from runtime_service.api.rest import AccessRules, RestApplication, controlled, observed
from runtime_service.batching.watch import WATCH
from runtime_service.dataplane import DataPlane
from runtime_service.extensions.shared_memory import SharedMemory
from runtime_service.lifecycle import Lifecycle, ServerPhase
from runtime_service.loading.loader import load_models
from runtime_service.metrics import Metrics
from runtime_service.models.follower import Follower
from runtime_service.models.layout import LayoutSource
from runtime_service.models.registry import ModelRegistry
from runtime_service.models.repository import StoreSource
from runtime_service.models.source import VersionSource
from runtime_service.models.versions import ModelLoader
from runtime_service.processes.lending import Borrower
from runtime_service.processes.parent import Parent, most_seconds_to_stop
from runtime_service.processes.told import Told
from runtime_service.settings import RuntimeSettings, variable
from shared_ir.artifact.memory import MEMORY_FILE, Memory
from shared_ir.artifact.repository import ArtifactRepository
from shared_ir.artifact.signature import TrustFolder
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.service_kit.http.hosts import Hosts
from shared_ir.service_kit.http1.limits import HttpLimits
from shared_ir.service_kit.http1.server import HttpServer
from shared_ir.service_kit.listening import address_of
from shared_ir.service_kit.memory.room import RequestRoom
from shared_ir.service_kit.starting import at_start, prepare_process, require_place
from shared_ir.service_kit.telemetry.log import say_why_not, start_log
from shared_ir.service_kit.telemetry.tracing import TRACING, start_tracing
from shared_ir.service_kit.tls import TlsFiles, tls_files
from shared_ir.service_kit.unix_sockets import UNIX
from shared_ir.signals import StopSignals
from shared_ir.storage.files import write_atomically
from shared_ir.storage.sealed import borrow_from
from shared_ir.storage.store import open_store
from shared_ir.versions import VERSION

_LOG = logging.getLogger(__name__)
_MOST_OBSERVERS = 64
"""Connections of the ports for metrics and control, each."""
_SECONDS_TO_STOP = 1.0
"""What runs may take to end once they are stopped, and what is waited for a model that is being loaded."""
_ONE_OF_SEVERAL = (sys.executable, "-m", "runtime_service.server", "--process")


class RuntimeServer:
    """Everything that serves models from ``source``; addresses are bound when it is made."""

    @at_start
    def __init__(self, settings: RuntimeSettings, source: VersionSource, told: Told | None = None) -> None:
        """``told``: what makes it one of several processes; ``settings`` are its own."""
        if settings.address_file:
            require_place(Path(settings.address_file), variable("address_file"))
        self.settings = settings
        self._told = told
        self._sockets = {} if told is None else told.sockets
        self.is_loading = False
        """Whether a model was still being loaded when the server was through."""
        self._grpc: GrpcServer | None = None
        self.metrics = Metrics(settings.max_histograms, triton=settings.triton_metrics)
        self.lifecycle = Lifecycle(settings.max_in_flight)
        registry = ModelRegistry(self.metrics)
        self.follower = Follower(
            registry, ModelLoader(source, settings, self.metrics), self.metrics, self._publish_readiness
        )
        self.follower.configure(settings.model_settings())
        is_whole = told is None  # what one process is asked to change would be so for some connections alone
        has_admin = is_whole and bool(settings.control_address or settings.token)
        self.dataplane = DataPlane(
            registry,
            self.follower,
            self.lifecycle,
            self.metrics,
            version=VERSION,
            explicit_control=settings.model_control == "explicit",
            has_admin=has_admin,
            has_access_log=settings.access_log,
            shared_memory=SharedMemory(settings.shared_memory, settings.max_request_bytes),
            ready_rule=settings.ready_rule(),
        )
        tls = tls_files(settings.tls_certificate, settings.tls_key, settings.tls_client_ca)
        room = RequestRoom(settings.bytes_in_flight)
        controls = is_whole and not settings.control_address
        hosts, admin = Hosts.parse(settings.hosts, variable("hosts")), controls and bool(settings.token)
        access = AccessRules(settings.token, hosts, settings.max_request_bytes, controls, admin)
        self._http = self._http_servers(access, room, tls)
        if settings.grpc_address:
            self._grpc = GrpcServer(
                self.dataplane,
                self._sockets.get("grpc", settings.grpc_address),
                max_in_flight=settings.max_in_flight,
                max_request_bytes=settings.max_request_bytes,
                room=room,
                token=settings.token,
                tls=tls,
                control=controls,
                admin=admin,
            )
        self._following = threading.Thread(
            target=self.follower.run, args=(settings.poll_interval,), name="follower", daemon=True
        )

    def _http_servers(self, access: AccessRules, room: RequestRoom, tls: TlsFiles | None) -> dict[str, HttpServer]:
        settings, scrape = self.settings, self.metrics.scrape
        found = {}
        if settings.http_address:
            limits = HttpLimits(max_connections=2 * settings.max_in_flight)
            application = RestApplication(self.dataplane, self._told.scrape_all if self._told else scrape, access)
            place = self._sockets.get("http", settings.http_address)
            found["http"] = HttpServer(application, place, limits, tls, room)
        few = HttpLimits(max_connections=_MOST_OBSERVERS)
        if settings.metrics_address:
            metrics = observed(self.dataplane, scrape, access.hosts)
            found["metrics"] = HttpServer(metrics, settings.metrics_address, few)
        if settings.control_address:
            control = controlled(self.dataplane, scrape, access)
            own = None if settings.control_address.startswith(UNIX) else tls
            found["control"] = HttpServer(control, settings.control_address, few, own, room)
        return found

    @property
    def addresses(self) -> dict[str, str]:
        """``host:port`` in use for ``grpc``, ``http``, ``metrics`` and ``control``, as far as they are turned on."""
        configured = {name: getattr(self.settings, f"{name}_address") for name in self._http}
        found = {name: address_of(configured[name], server.port) for name, server in self._http.items()}
        if self._grpc is not None:
            found["grpc"] = address_of(self.settings.grpc_address, self._grpc.port)
        return found

    def start(self) -> None:
        """Answer at once (not ready, but live), then load the models in the background."""
        self._publish_readiness()
        for server in self._http.values():
            server.start()
        if self._grpc is not None:
            self._grpc.start()
        self._following.start()
        if self.settings.address_file:
            write_atomically(Path(self.settings.address_file), json.dumps(self.addresses).encode())
        _LOG.info("serving %s", ", ".join(f"{name} on {at}" for name, at in sorted(self.addresses.items())))

    def drain(self, hurry: threading.Event) -> bool:
        """Readiness first, then (after ``drain_delay``) refuse, finish what is in flight, and free the models.

        An idle server is through at once, also where it is loading models; ``hurry`` ends every wait. False when requests were left
        unfinished.
        """
        self.lifecycle.enter(ServerPhase.LAME_DUCK)
        self._publish_readiness()
        self.follower.stop()
        if self.settings.drain_delay:
            _LOG.info("not ready any more, still serving for %.0f s", self.settings.drain_delay)
            hurry.wait(self.settings.drain_delay)
        self.lifecycle.enter(ServerPhase.DRAINING)
        grace = 0.0 if hurry.is_set() else self.settings.drain_timeout
        stopped = self._grpc.stop(grace) if self._grpc is not None else None
        if not self.lifecycle.wait_idle(grace):
            _LOG.warning("%d requests were still in flight after %.0f s", self.lifecycle.in_flight, grace)
            WATCH.stop_all()
            self.lifecycle.wait_idle(_SECONDS_TO_STOP)
            grace = 0.0  # it has passed
        for server in self._http.values():
            server.stop(grace)
        if stopped is not None:
            stopped.wait(grace)
        if self.lifecycle.in_flight:
            return False
        self.is_loading = not self.follower.close(_SECONDS_TO_STOP)
        self.dataplane.close()
        return True

    def _publish_readiness(self) -> None:
        for shared in self._sockets.values():
            shared.counts.tell_rank(self._rank())
        if self._grpc is not None:
            self._grpc.publish_readiness()

    def _rank(self) -> int:
        """How far it has come, as one of several processes: models are not tried yet, were tried, are ready by the rule. NOTE: one that
        begins anew beside others has fewest connections, and would get all that come before it has anything to serve."""
        return 2 if self.dataplane.ready() else int(self.follower.has_tried)


def serve(server: RuntimeServer) -> None:
    """Run until SIGTERM or SIGINT, then drain; a second signal hurries.

    Ends the process with status 1 when requests were still unfinished after the drain timeout.
    """
    signals, hurry = StopSignals(), threading.Event()
    server.start()
    _LOG.info("received %s, draining", signals.wait().name)

    def watch() -> None:
        _LOG.info("received %s, hurrying", signals.wait().name)
        hurry.set()

    threading.Thread(target=watch, name="signals", daemon=True).start()
    is_drained = server.drain(hurry)
    if is_drained:
        TRACING.close()
        _LOG.info("drained")
    if not is_drained or server.is_loading:
        logging.shutdown()
        os._exit(int(not is_drained))  # an ordinary exit would wait for requests that are stuck, or meet half a model


@at_start
def version_source(settings: RuntimeSettings) -> VersionSource:
    """The layout or the store of ``settings``. Raises as :func:`store_source`."""
    if settings.layout:
        return LayoutSource(Path(settings.layout), _trust(settings), load_models)
    return store_source(settings)


@at_start
def store_source(settings: RuntimeSettings) -> StoreSource:
    """The artifact store and the trusted keys of ``settings``.

    Raises:
        IngotError: INVALID_ARGUMENT, the URL of the store; ARTIFACT_UNTRUSTED, no key is trusted.
    """
    trust = _trust(settings)
    memory = Memory(settings.home / MEMORY_FILE)
    url = settings.store_url or str(settings.home / "store")
    store = open_store(url, settings.home / "cache", memory, begins=False, cache_bytes=settings.cache_bytes)
    return StoreSource(ArtifactRepository(store, trust, memory=memory), load_models)


def _trust(settings: RuntimeSettings) -> TrustFolder:
    trust = TrustFolder(settings.trust_directory)
    if not trust.keys:
        raise IngotError(
            ErrorCode.ARTIFACT_UNTRUSTED,
            "no key is trusted here, so no model could be loaded",
            field=str(settings.trust_directory),
            expected="public keys (*.pub) of those who publish models",
            remedy="Copy the public key of the compiler service there, or set INGOT_TRUST.",
        )
    return trust


def main(*, is_whole: bool = False) -> int:
    """Exit status 2 when a setting is wrong, with one sentence on standard error. ``is_whole`` as in
    :func:`shared_ir.service_kit.telemetry.log.start_log`.
    """
    parser = argparse.ArgumentParser(
        prog="python -m runtime_service.server",
        description="The runtime service. Settings are INGOT_* environment variables (runtime_service/settings.py).",
    )
    parser.add_argument("--process", type=int, help=argparse.SUPPRESS)  # how a Parent starts the others
    channel = parser.parse_args().process
    prepare_process()
    try:
        start_log("runtime", is_whole=is_whole)
        start_tracing("runtime")
        settings = RuntimeSettings.from_environment(os.environ)
        if channel is None and settings.processes > 1:
            return Parent(settings, _ONE_OF_SEVERAL).run()
        server = _one_of_several(settings, channel) if channel else RuntimeServer(settings, version_source(settings))
    except IngotError as error:
        say_why_not(error)
        return 2
    serve(server)
    return 0


def _one_of_several(settings: RuntimeSettings, channel: int) -> RuntimeServer:
    told = Told.receive(channel)
    borrow_from(Borrower(told.channel).read)
    own = told.settings(settings)
    server = RuntimeServer(own, version_source(own), told)
    told.end_with_parent(most_seconds_to_stop(settings))
    return server


if __name__ == "__main__":
    sys.exit(main(is_whole=True))
