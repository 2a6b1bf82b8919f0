"""The methods of the measuring server."""

from __future__ import annotations

import hashlib
import logging
import re
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import grpc

from ingot.device.contents import ContentCache, size_of
from ingot.device.leases import Leases
from ingot.device.machine import DeviceMachine, processor, require_made_for
from ingot.device.measuring import MeasuredTrial, measure
from ingot.device.process import RunnerProcess, RunnerSettings
from shared_ir.artifact.signature import Trust
from shared_ir.device.order import MOST_BUFFERS, MOST_SECONDS, MOST_TRIALS, MeasuringOrder, OrderedTrial, read_order
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.machine.cores import machine_cores
from shared_ir.pb.ingot.device.v1 import device_pb2 as pb
from shared_ir.pb.ingot.device.v1 import device_pb2_grpc
from shared_ir.service_kit.calls.lanes import peer_name
from shared_ir.service_kit.telemetry.log import EXTRA
from shared_ir.versions import VERSION

_LOG = logging.getLogger(__name__)
_PIECE_BYTES = 1 << 20
_MOST_DIGESTS = MOST_TRIALS * (MOST_BUFFERS + 1) + 1
_UPLOADS = 2
"""At once; they hold threads, which others need as well."""
_UPLOAD_SECONDS = 300.0
_DIGEST = re.compile(r"[0-9a-f]{64}")


class DeviceServicer(device_pb2_grpc.DeviceServiceServicer):  # type: ignore[misc]  # stubs have no types
    """``memory_bytes`` as in the settings."""

    def __init__(
        self, machine: DeviceMachine, trust: Trust, leases: Leases, contents: ContentCache, memory_bytes: int
    ) -> None:
        self._machine = machine
        self._trust = trust
        self._leases = leases
        self._contents = contents
        self._memory_bytes = memory_bytes
        self._running = threading.Lock()
        self._uploads = threading.Semaphore(_UPLOADS)
        self._runs = 0
        self._failed = 0

    def GetStatus(self, request: Any, context: grpc.ServicerContext) -> Any:
        left = self._leases.seconds_left
        return pb.DeviceStatus(
            version=VERSION,
            architecture=self._machine.architecture,
            processor=processor(),
            features=sorted(self._machine.flags),
            emulates=sorted(self._machine.emulators),
            cores=machine_cores(),
            is_leased=left is not None,
            lease_seconds=left or 0.0,
            runs=self._runs,
            failed_trials=self._failed,
            trusted_keys=sorted(self._trust.keys),
            cache_bytes=self._contents.most_bytes,
            memory_bytes=self._memory_bytes,
            most_trials=MOST_TRIALS,
            most_seconds=MOST_SECONDS,
        )

    def TakeLease(self, request: Any, context: grpc.ServicerContext) -> Any:
        return pb.DeviceLease(id=self._leases.take(request.seconds), seconds=request.seconds)

    def RenewLease(self, request: Any, context: grpc.ServicerContext) -> Any:
        return pb.DeviceLease(id=request.id, seconds=self._leases.renew(request.id))

    def ReleaseLease(self, request: Any, context: grpc.ServicerContext) -> Any:
        self._leases.release(request.id)
        return pb.ReleaseLeaseResponse()

    def FindMissing(self, request: Any, context: grpc.ServicerContext) -> Any:
        self._leases.require(request.lease)
        if len(request.digests) > _MOST_DIGESTS:
            message, expected = "too many digests in one call", f"at most {_MOST_DIGESTS}"
            raise IngotError(ErrorCode.INVALID_ARGUMENT, message, field="digests", expected=expected)
        for digest in request.digests:
            _require_digest(digest)
        return pb.FindMissingResponse(digests=self._contents.missing(request.digests))

    def PutContent(self, requests: Iterable[Any], context: grpc.ServicerContext) -> Any:
        if not self._uploads.acquire(blocking=False):
            message = f"{_UPLOADS} contents are being sent to the device already"
            raise IngotError(ErrorCode.RESOURCE_EXHAUSTED, message, remedy="Send one after the other.")
        patience = threading.Timer(_UPLOAD_SECONDS, context.cancel)
        patience.daemon = True
        patience.start()
        try:
            self._receive(iter(requests), context)
        finally:
            patience.cancel()
            self._uploads.release()
        return pb.PutContentResponse()

    def _receive(self, requests: Iterator[Any], context: grpc.ServicerContext) -> None:
        first = next(requests, None)
        if first is None or first.WhichOneof("part") != "header":
            raise _no_header()
        header = first.header
        with self._leases.under(header.lease, context.cancel):
            _require_digest(header.digest)
            if header.size < 0:
                message, received = "a content has no size below zero", str(header.size)
                raise IngotError(ErrorCode.INVALID_ARGUMENT, message, field="size", received=received)
            if self._contents.missing([header.digest]):
                self._contents.put(header.digest, header.size, map(_data, requests))

    def Run(self, request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        self._leases.require(request.lease)
        order = read_order(request.order, self._trust)
        if order.lease != request.lease:
            message = "the order was signed for another lease"
            raise IngotError(ErrorCode.INVALID_ARGUMENT, message, field="lease", remedy="Sign one for this lease.")
        settings = self._machine.runner_for(order)
        self._require_room(order)
        if not self._running.acquire(blocking=False):
            message = "the device runs another order of this lease"
            raise IngotError(ErrorCode.CONFLICT, message, remedy="Send the next order when its outcomes are there.")
        try:
            with self._contents.borrowed(order.digests) as contents:
                _require_files(order, contents)
                found = self._measure(order, settings, contents, context)
        finally:
            self._running.release()
        kinds = Counter(trial.kind for trial in found)
        told = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
        _LOG.info("an order was run: %s", told, extra={EXTRA: {"peer": peer_name(context)}})
        self._runs += 1
        self._failed += sum(trial.kind in ("crashed", "late") for trial in found)
        yield from _told(order, found)

    def _measure(
        self,
        order: MeasuringOrder,
        settings: RunnerSettings,
        contents: Mapping[str, int],
        context: grpc.ServicerContext,
    ) -> list[MeasuredTrial]:
        """Raises IngotError NOT_FOUND, the lease has ended meanwhile; UNAVAILABLE, trials cannot be locked here."""
        processes = _Processes()
        if not context.add_callback(processes.end):  # it is over already
            processes.end()

        def start(trial: OrderedTrial) -> RunnerProcess:
            process = RunnerProcess(settings, contents[order.runner], trial, contents, order.seconds + 10 * order.limit)
            processes.add(process)
            return process

        with self._leases.under(order.lease, processes.end):
            try:
                starts = [partial(start, trial) for trial in order.trials]
                found = measure(starts, order.seconds, order.limit, lambda: not processes.is_over)
            except RuntimeError as error:
                remedy = "Start the measuring server with --no-seccomp, if you trust every tuner that it trusts."
                raise IngotError(ErrorCode.UNAVAILABLE, str(error), remedy=remedy) from error
        if processes.is_over:
            self._leases.require(order.lease)
            raise IngotError(ErrorCode.CANCELLED, "the call was cancelled while it ran")
        return found

    def _require_room(self, order: MeasuringOrder) -> None:
        needed = sum(trial.memory + sum(b.size for b in trial.buffers if b.is_result) for trial in order.trials)
        if needed > self._memory_bytes:
            raise IngotError(
                ErrorCode.LIMIT_EXCEEDED,
                "the trials of the order take more memory than the device gives them",
                field="trials",
                expected=f"at most {self._memory_bytes} bytes",
                received=f"{needed} bytes",
                remedy="Order fewer trials at once, or start the measuring server with a larger --memory-bytes.",
            )


class _Processes:
    """Of one order: all are killed at once, by whoever finds that nobody wants them any more."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: list[RunnerProcess] = []
        self.is_over = False

    def add(self, process: RunnerProcess) -> None:
        with self._lock:
            self._found.append(process)
            is_over = self.is_over
        if is_over:
            process.kill()

    def end(self) -> None:
        with self._lock:
            self.is_over = True
            found = list(self._found)
        for process in found:
            process.kill()


def _told(order: MeasuringOrder, found: list[MeasuredTrial]) -> Iterator[Any]:
    """Each distinct result once, then the outcomes in the order of the trials."""
    sent: set[str] = set()
    outcomes = []
    for trial, own in zip(order.trials, found, strict=True):
        digests, at = [], 0
        for size in (b.size for b in trial.buffers if b.is_result) if own.results or own.kind == "measured" else ():
            data = own.results[at : at + size]
            at += size
            digests.append(hashlib.sha256(data).hexdigest())
            if digests[-1] not in sent:
                sent.add(digests[-1])
                yield from _pieces(digests[-1], data)
        outcomes.append(pb.TrialOutcome(kind=own.kind, rounds=own.rounds, results=digests, reason=own.reason))
    for outcome in outcomes:
        yield pb.RunResponse(outcome=outcome)


def _pieces(digest: str, data: bytes) -> Iterator[Any]:
    for start in range(0, max(len(data), 1), _PIECE_BYTES):
        yield pb.RunResponse(piece=pb.ResultPiece(digest=digest, data=data[start : start + _PIECE_BYTES]))


def _require_files(order: MeasuringOrder, contents: Mapping[str, int]) -> None:
    """Raises IngotError: ARTIFACT_INCOMPATIBLE, INVALID_ARGUMENT."""
    require_made_for(order.triple, contents[order.runner], is_program=True)
    for number, trial in enumerate(order.trials):
        for digest in trial.libraries:
            require_made_for(order.triple, contents[digest], is_program=False)
        for index, buffer in enumerate(trial.buffers):
            if buffer.content and size_of(contents[buffer.content]) != buffer.size:
                raise IngotError(
                    ErrorCode.INVALID_ARGUMENT,
                    "a content has another size than its buffer",
                    field=f"trials[{number}].buffers[{index}]",
                    expected=f"{buffer.size} bytes",
                    received=f"{size_of(contents[buffer.content])} bytes",
                )


def _data(request: Any) -> bytes:
    if request.WhichOneof("part") != "data":
        raise _no_header()
    return bytes(request.data)


def _no_header() -> IngotError:
    message, expected = "a content is sent in another order", "one header, then data"
    return IngotError(ErrorCode.INVALID_ARGUMENT, message, field="part", expected=expected)


def _require_digest(digest: str) -> None:
    if not _DIGEST.fullmatch(digest):
        message, expected = "not a digest", "64 small hexadecimal digits"
        raise IngotError(ErrorCode.INVALID_ARGUMENT, message, field="digest", expected=expected, received=digest[:100])
