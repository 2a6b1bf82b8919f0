"""Devices that measure for a tuner here: connections to their measuring servers (``ingot device serve``)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import grpc

from ingot.channel import authorization, decode_error, open_channel
from ingot.server_address import device_address
from ingot.sources import compiler
from shared_ir.artifact.signature import SigningKey
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.pb.ingot.device.v1 import device_pb2 as pb
from shared_ir.pb.ingot.device.v1 import device_pb2_grpc
from shared_ir.service_kit.tls import client_tls

if TYPE_CHECKING:
    from compiler_service.compiler.tune.measuring.device import DeviceMeasurer, DevicePool
    from compiler_service.compiler.tune.measuring.trial import Outcome
    from ingot.compiling import Progress
    from shared_ir.machine.target import Target

TUNER_KEY_FILE = "tuner.pem"
PATIENCE_SECONDS = 60.0
"""To wait for a device that another tuner has."""
_CALL_SECONDS = 10.0
"""For a call that computes nothing."""
_LEAST_BYTES_PER_SECOND = 256 << 10
"""Bytes a second."""
_PIECE_BYTES = 1 << 20
_START_DEVICE = "Start it there with `ingot device serve`, on a port that this machine can reach, or name another one with --device."
_TRIES = 3
_PAUSE_SECONDS, _LOOK_SECONDS = 0.3, 1.0
_T = TypeVar("_T")
_LOST = frozenset({ErrorCode.UNAVAILABLE, ErrorCode.DEADLINE_EXCEEDED, ErrorCode.CANCELLED, ErrorCode.DEVICE_TIMEOUT})
_AGAIN = frozenset({ErrorCode.UNAVAILABLE, ErrorCode.DEADLINE_EXCEEDED})


@dataclass(frozen=True)
class DeviceInfo:
    """What ``ingot device status`` shows; fields as in ``device.proto``."""

    version: str
    architecture: str
    processor: str
    features: tuple[str, ...]
    emulates: tuple[str, ...]
    cores: int
    is_leased: bool
    lease_seconds: float
    runs: int
    failed_trials: int
    trusted_keys: tuple[str, ...]
    cache_bytes: int
    memory_bytes: int


class DeviceConnection:
    """A measuring server at ``host[:port]``.

    Args:
        credentials: ``token``, ``ca_certificate`` (turns TLS on), ``client_certificate`` and ``client_key``, as of :class:`ingot.Client`.
        patience: seconds to wait for a device that another tuner has.

    Raises:
        IngotError: INVALID_ARGUMENT, the address is none, or the token or a TLS file cannot be used.
    """

    def __init__(self, address: str, *, patience: float = PATIENCE_SECONDS, **credentials: Any) -> None:
        self.name = device_address(address)
        self._metadata = authorization(credentials.pop("token", ""))
        files = (credentials.pop(name, None) for name in ("ca_certificate", "client_certificate", "client_key"))
        self._channel = open_channel(self.name, client_tls(*files))
        self._stub = device_pb2_grpc.DeviceServiceStub(self._channel)
        self._patience = patience
        self._running: Any = None

    def status(self) -> DeviceInfo:
        """Raises IngotError: UNAVAILABLE, UNAUTHENTICATED."""
        found = self._asked(lambda: self._call(self._stub.GetStatus, pb.GetStatusRequest()))
        fields: dict[str, Any] = {name: getattr(found, name) for name in DeviceInfo.__dataclass_fields__}
        lists = {name: tuple(fields[name]) for name in ("features", "emulates", "trusted_keys")}
        return DeviceInfo(**fields | lists)

    def take_lease(self, seconds: float) -> str:
        """NOTE: it is not tried again when it fails: the device may have given a lease that nobody heard of, which ends by itself."""
        deadline = time.monotonic() + self._patience
        while True:
            try:
                found = self._measured(lambda: self._call(self._stub.TakeLease, pb.TakeLeaseRequest(seconds=seconds)))
                return str(found.id)
            except IngotError as error:
                if error.code is not ErrorCode.RESOURCE_EXHAUSTED or time.monotonic() >= deadline:
                    raise
            time.sleep(_PAUSE_SECONDS)

    def renew_lease(self, lease: str, timeout: float) -> None:
        request = pb.RenewLeaseRequest(id=lease)
        self._measured(lambda: self._stub.RenewLease(request, timeout=timeout, metadata=self._metadata))

    def release_lease(self, lease: str) -> None:
        request = pb.ReleaseLeaseRequest(id=lease)
        self._measured(lambda: self._call(self._stub.ReleaseLease, request))

    def send(self, lease: str, contents: Mapping[str, bytes]) -> None:
        request = pb.FindMissingRequest(lease=lease, digests=list(contents))
        missing = self._measured(lambda: self._asked(lambda: self._call(self._stub.FindMissing, request)))
        for digest in missing.digests:
            data = contents[digest]
            seconds = _CALL_SECONDS + len(data) / _LEAST_BYTES_PER_SECOND

            def put(digest: str = digest, data: bytes = data, seconds: float = seconds) -> Any:
                return self._stub.PutContent(_pieces(lease, digest, data), timeout=seconds, metadata=self._metadata)

            self._measured(lambda put=put: self._asked(put))  # type: ignore[misc]

    def run(self, lease: str, order: bytes, seconds: float) -> tuple[Outcome, ...]:
        request, timeout = pb.RunRequest(lease=lease, order=order), seconds + 2 * _CALL_SECONDS

        def run() -> tuple[Outcome, ...]:
            self._running = self._stub.Run(request, timeout=timeout, metadata=self._metadata)
            return _outcomes(self._running, self.name)

        return self._measured(run)

    def cancel(self) -> None:
        if self._running is not None:
            self._running.cancel()

    def close(self) -> None:
        self._channel.close()

    def _call(self, method: Any, request: Any) -> Any:
        return method(request, timeout=_CALL_SECONDS, metadata=self._metadata)

    def _asked(self, call: Callable[[], _T]) -> _T:
        """What ``call`` answers, which changes nothing when it is done twice: tried again where the device cannot be reached."""
        for _ in range(_TRIES - 1):
            try:
                return self._told(call)
            except IngotError as error:
                if error.code not in _AGAIN:
                    raise
            time.sleep(_PAUSE_SECONDS)
        return self._told(call)

    def _told(self, call: Callable[[], _T]) -> _T:
        try:
            return call()
        except grpc.RpcError as error:
            raise decode_error(self.name, error, _START_DEVICE) from error

    def _measured(self, call: Callable[[], _T]) -> _T:
        """As the tuner wants it: whatever says that the device or the lease is gone is DEVICE_TIMEOUT."""
        with compiler():
            from compiler_service.compiler.tune.measuring.device import device_timeout
        try:
            return self._told(call)
        except IngotError as error:
            if error.code in _LOST or (error.code is ErrorCode.NOT_FOUND and error.field == "lease"):
                raise device_timeout(self.name, error.message) from error
            raise
        except ValueError as error:  # what gRPC says of a channel that is closed
            raise device_timeout(self.name, "the connection is closed") from error


def tuner_key(home: Path) -> SigningKey:
    """The key that orders are signed with here, made at first use; devices are told to trust its public half."""
    return SigningKey.load_or_create(home / TUNER_KEY_FILE)


def connect(
    devices: Sequence[str],
    target: Target,
    signer: SigningKey,
    *,
    limit: float | None = None,
    patience: float = PATIENCE_SECONDS,
    progress: Progress | None = None,
    **credentials: Any,
) -> DevicePool:
    """A measurer on ``devices``, each ``host[:port]``, whose machines run code for ``target``. It has those that are free, and one at
    least, from now on and until it is closed; one that another tuner has is asked again from time to time.

    Args:
        limit: seconds that a candidate may take for one answer.
        patience: seconds to wait for one of them where other tuners have all.
        progress: told, once a second or so, of what is waited for.
        credentials: as of :class:`DeviceConnection`, the same for all.

    Raises:
        IngotError: UNAVAILABLE or DEVICE_TIMEOUT, none of them can be reached; UNAUTHENTICATED; ARTIFACT_INCOMPATIBLE, one is another
            machine; ARTIFACT_UNTRUSTED, one does not trust ``signer``; RESOURCE_EXHAUSTED, other tuners have all of them.
    """
    with compiler():
        from compiler_service.compiler.tune.measuring.device import LIMIT_SECONDS, DeviceMeasurer, DevicePool
    # Who has several devices does not wait for one that somebody else has: the pool leaves it out, and asks again later.
    names = dict.fromkeys(map(device_address, devices))
    connections = [DeviceConnection(address, patience=0.0, **credentials) for address in names]
    measurers = [DeviceMeasurer(own, signer, limit or LIMIT_SECONDS) for own in connections]
    pool = DevicePool(measurers)
    try:
        faults = [_fault(connection, target, signer) for connection in connections]
        reached = [own for own, fault in zip(measurers, faults, strict=True) if fault is None]
        if not reached:
            raise next(iter(faults), None) or IngotError(
                ErrorCode.INVALID_ARGUMENT, "no device is named", field="devices", expected="host[:port]"
            )
        _await_lease(reached, patience, progress)
    except BaseException:
        pool.close()
        raise
    return pool


def _await_lease(devices: Sequence[DeviceMeasurer], patience: float, progress: Progress | None) -> None:
    """Until one of them is this tuner's: all that are free become so.

    Raises:
        IngotError: RESOURCE_EXHAUSTED, none is after ``patience`` seconds; DEVICE_TIMEOUT, they are lost.
    """
    began = time.monotonic()
    while True:
        faults = [_unleased(own) for own in devices]
        if None in faults:
            return
        busy = [fault for fault in faults if fault is not None and fault.code is ErrorCode.RESOURCE_EXHAUSTED]
        if not busy:
            raise next(fault for fault in faults if fault is not None)
        waited, names = time.monotonic() - began, [own.machine for own in devices]
        if waited >= patience:
            raise _busy(names, patience, busy[0])
        if progress is not None:
            said = f"waiting until another tuner has gone from {', '.join(names)}"
            progress("device", int(waited), int(patience), said)
        time.sleep(min(_LOOK_SECONDS, patience - waited))


def _unleased(device: DeviceMeasurer) -> IngotError | None:
    """Why a device cannot be had now, which may pass."""
    try:
        device.lease()
    except IngotError as error:
        if error.code not in (ErrorCode.RESOURCE_EXHAUSTED, ErrorCode.DEVICE_TIMEOUT):
            raise
        return error
    return None


def _busy(names: Sequence[str], patience: float, said: IngotError) -> IngotError:
    are = f"device {names[0]} is" if len(names) == 1 else f"devices {', '.join(names)} are"
    return IngotError(
        ErrorCode.RESOURCE_EXHAUSTED,
        f"the {are} busy with another tuner",
        expected=f"one that is free within {patience:g} s",
        received=said.message,
        remedy="Try again when that tuner has ended (`ingot device status HOST` says when it has), or name another device too: "
        "one tuner measures on a device at a time.",
    )


def _fault(connection: DeviceConnection, target: Target, signer: SigningKey) -> IngotError | None:
    """Why a device cannot be reached now, which may pass. Raises IngotError for what does not."""
    try:
        info = connection.status()
    except IngotError as error:
        if error.code not in _LOST:
            raise
        return error
    if target.architecture not in (info.architecture, *info.emulates):
        raise IngotError(
            ErrorCode.ARTIFACT_INCOMPATIBLE,
            f"the device {connection.name} is another machine than the target",
            field="target",
            expected=", ".join((info.architecture, *info.emulates)),
            received=target.architecture,
            remedy="Name the device's target with --target; `ingot device status` shows what it is.",
        )
    if signer.key_id not in info.trusted_keys:
        raise IngotError(
            ErrorCode.ARTIFACT_UNTRUSTED,
            f"the device {connection.name} does not trust the key of this tuner",
            expected=", ".join(info.trusted_keys) or "(none)",
            received=signer.key_id,
            remedy="Write the key with `ingot device key --out FILE`, and start the device's server with --trust FILE.",
        )
    return None


def _pieces(lease: str, digest: str, data: bytes) -> Iterator[Any]:
    yield pb.PutContentRequest(header=pb.ContentHeader(lease=lease, digest=digest, size=len(data)))
    for start in range(0, len(data), _PIECE_BYTES):
        yield pb.PutContentRequest(data=data[start : start + _PIECE_BYTES])


def _outcomes(responses: Iterable[Any], name: str) -> tuple[Outcome, ...]:
    """Of a stream of responses. Raises IngotError INTERNAL: they are not what was asked for."""
    with compiler():
        from compiler_service.compiler.tune.measuring.trial import Outcome, OutcomeKind, TrialTiming
    results: dict[str, bytearray] = {}
    found: list[Outcome] = []
    try:
        for response in responses:
            if response.WhichOneof("part") == "piece":
                results.setdefault(response.piece.digest, bytearray()).extend(response.piece.data)
                continue
            own = response.outcome
            timing = TrialTiming(tuple(own.rounds)) if own.rounds else None
            data = tuple(bytes(results[digest]) for digest in own.results)
            found.append(Outcome(OutcomeKind(own.kind), timing, data, own.reason))
    except (KeyError, ValueError) as error:
        message = f"the device {name} answers what was not asked"
        raise IngotError(ErrorCode.INTERNAL, message, remedy="Install the same release on both sides.") from error
    return tuple(found)
