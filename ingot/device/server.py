"""The measuring server of a device: ``ingot device serve``.

It speaks gRPC by the library of gRPC itself, since a device has nothing else: few calls come, and what they cost does not matter.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import grpc

from ingot.device.answering import AnsweringInterceptor
from ingot.device.contents import ContentCache
from ingot.device.leases import Leases
from ingot.device.machine import DeviceMachine
from ingot.device.servicer import DeviceServicer
from ingot.device.settings import DeviceSettings
from ingot.device.trust import trust_at
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.pb.ingot.device.v1 import device_pb2_grpc
from shared_ir.service_kit.access.bearer import AccessInterceptor
from shared_ir.service_kit.access.gate import make_gate
from shared_ir.service_kit.tls import TlsFiles

_THREADS = 12
_MOST_CALLS = 32
"""At once; more are refused."""
_MOST_MESSAGE_BYTES = 4 << 20
_MOST_METADATA_BYTES = 16 << 10
_GRACE_SECONDS = 1.0


@dataclass
class RunningDevice:
    """A server that listens at ``address``, with the real port."""

    address: str
    _server: grpc.Server
    _stopping: threading.Event
    _contents: ContentCache

    def stop(self) -> None:
        """Calls end within a second; what runs is killed."""
        self._stopping.set()
        self._server.stop(_GRACE_SECONDS).wait()
        self._contents.close()


def start_device(settings: DeviceSettings) -> RunningDevice:
    """Listen as ``settings`` say.

    Raises:
        IngotError: UNAVAILABLE, the address cannot be used; NOT_FOUND or INVALID_ARGUMENT for unreadable keys and TLS files.
    """
    stopping, leases, contents = threading.Event(), Leases(), ContentCache(settings.cache_bytes)
    machine, trust = DeviceMachine.here(settings), trust_at(settings.trust)
    server = grpc.server(
        ThreadPoolExecutor(_THREADS, thread_name_prefix="device"),
        interceptors=[AccessInterceptor(make_gate(settings.token, None)), AnsweringInterceptor()],
        options=[
            ("grpc.so_reuseport", 0),  # a second server on a port is an error, and no half of the calls
            ("grpc.max_receive_message_length", _MOST_MESSAGE_BYTES),
            ("grpc.max_metadata_size", _MOST_METADATA_BYTES),
        ],
        maximum_concurrent_rpcs=_MOST_CALLS,
    )
    servicer = DeviceServicer(machine, trust, leases, contents, settings.memory)
    device_pb2_grpc.add_DeviceServiceServicer_to_server(servicer, server)
    port = _bind(server, settings.listen, settings.tls)
    server.start()
    leases.watch(stopping)
    return RunningDevice(f"{settings.listen.rpartition(':')[0]}:{port}", server, stopping, contents)


def _bind(server: grpc.Server, address: str, tls: TlsFiles | None) -> int:
    try:
        port = server.add_insecure_port(address) if tls is None else server.add_secure_port(address, _credentials(tls))
    except RuntimeError:  # newer releases raise what older ones say by port 0
        port = 0
    if not port:
        remedy = "Choose another address with --listen: it may be in use by another process."
        raise IngotError(ErrorCode.UNAVAILABLE, "cannot listen for gRPC", field=address, remedy=remedy)
    return port


def _credentials(tls: TlsFiles) -> grpc.ServerCredentials:
    tls.context()  # gRPC itself takes any bytes, and then fails every handshake
    authorities = tls.client_ca.read_bytes() if tls.client_ca else None
    pair = (tls.key.read_bytes(), tls.certificate.read_bytes())
    return grpc.ssl_server_credentials([pair], authorities, require_client_auth=authorities is not None)
