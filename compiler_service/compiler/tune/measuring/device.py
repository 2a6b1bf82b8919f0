"""Trials on another machine: linked and signed here, run by the measuring server there. How it is reached is the caller's matter.

A device that is lost in the middle has measured nothing: its trials go to another one (:class:`DevicePool`).
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Protocol

from compiler_service.compiler.codegen.toolchain.candidate import link_candidate, measuring_program
from compiler_service.compiler.tune.measuring.trial import Content, Measurer, Outcome, OutcomeKind, Trial
from shared_ir.artifact.signature import SigningKey
from shared_ir.device.order import (
    MOST_SECONDS,
    MOST_TRIALS,
    MeasuringOrder,
    OrderedBuffer,
    OrderedLaunch,
    OrderedTrial,
    sign_order,
)
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.machine.target import Target

LEASE_SECONDS = 15.0
LIMIT_SECONDS = 10.0
"""That a candidate may take for one answer, where nothing else is said."""
RETRY_SECONDS = 20.0
_LEAST_SECONDS = 0.001
_NO_ROOM = (ErrorCode.LIMIT_EXCEEDED, ErrorCode.NOT_FOUND)
"""The second where contents that are needed together do not fit the device together."""
_AWAY = (ErrorCode.DEVICE_TIMEOUT, ErrorCode.RESOURCE_EXHAUSTED)
"""Lost, or leased by another tuner: others may be free."""
_LOOK_SECONDS = 1.0
"""Between two looks for a free device."""
_linked = lru_cache(maxsize=64)(link_candidate)
"""What is confirmed is measured more than once."""


class MeasuringDevice(Protocol):
    """A connection to a measuring server. Calls that change nothing when they are done twice are tried again by it.

    Every method raises IngotError: DEVICE_TIMEOUT, the device is lost or the lease has ended; else what the device refuses.
    """

    name: str

    def take_lease(self, seconds: float) -> str:
        """The id of a lease; waits for a while where another has it."""

    def renew_lease(self, lease: str, timeout: float) -> None:
        """As much time again; waits for ``timeout`` seconds at most."""

    def release_lease(self, lease: str) -> None:
        """Give it back; no error where it has ended."""

    def send(self, lease: str, contents: Mapping[str, bytes]) -> None:
        """Whatever of these contents, by digest, the device does not have."""

    def run(self, lease: str, order: bytes, seconds: float) -> tuple[Outcome, ...]:
        """What came of the trials of a signed order, which should take ``seconds``."""

    def cancel(self) -> None:
        """End what :meth:`run` waits for, with DEVICE_TIMEOUT."""

    def close(self) -> None:
        """Hang up."""


def device_timeout(name: str, reason: str) -> IngotError:
    """A device gives no sign of life."""
    return IngotError(
        ErrorCode.DEVICE_TIMEOUT,
        f"the device {name} is lost: {reason.rstrip('.')[:300]}",
        remedy="See whether it runs and can be reached (`ingot device status HOST`); what it was to measure goes to another device, if "
        "there is one.",
    )


class DeviceMeasurer:
    """A device, leased when it is asked for or the first trials come, and until it is closed.

    Args:
        signer: whose public key the device was told to trust.
        limit: seconds that a candidate may take for one answer.
    """

    def __init__(
        self,
        device: MeasuringDevice,
        signer: SigningKey,
        limit: float = LIMIT_SECONDS,
        lease_seconds: float = LEASE_SECONDS,
    ) -> None:
        self._device = device
        self._signer = signer
        self._limit = limit
        self._lease_seconds = lease_seconds
        self._held: _HeldLease | None = None

    @property
    def machine(self) -> str:
        return self._device.name

    @property
    def size(self) -> int:
        return 1

    def run(self, trials: Sequence[Trial], seconds: float) -> tuple[Outcome, ...]:
        """As :meth:`Measurer.run`; more trials than the device has room for take their turns in several orders, and one alone that it has
        no room for is refused.

        Raises:
            IngotError: DEVICE_TIMEOUT; RESOURCE_EXHAUSTED, another tuner has it; ARTIFACT_UNTRUSTED, ARTIFACT_INCOMPATIBLE,
                UNAUTHENTICATED as the device says.
        """
        found: list[Outcome] = []
        for start in range(0, len(trials), MOST_TRIALS):
            found += self._fitting(trials[start : start + MOST_TRIALS], seconds)
        return tuple(found)

    def lease(self) -> None:
        """Have the device from now on. Raises IngotError: DEVICE_TIMEOUT; RESOURCE_EXHAUSTED, another tuner has it."""
        if self._held is None or self._held.is_lost:
            self._held = _HeldLease(self._device, self._lease_seconds)

    def close(self) -> None:
        """Give the device back."""
        if self._held is not None:
            self._held.release()
            self._held = None
        self._device.close()

    def _fitting(self, trials: Sequence[Trial], seconds: float) -> tuple[Outcome, ...]:
        """As many together as the device has room for."""
        try:
            return self._run(trials, seconds * len(trials))
        except IngotError as error:
            if error.code not in _NO_ROOM:
                raise
            if len(trials) == 1:
                return (Outcome(OutcomeKind.REFUSED, reason=f"the device has no room for it: {error.message}"),)
        middle = len(trials) // 2
        return (*self._fitting(trials[:middle], seconds), *self._fitting(trials[middle:], seconds))

    def _run(self, trials: Sequence[Trial], seconds: float) -> tuple[Outcome, ...]:
        target = trials[0].target
        asked = min(max(seconds, _LEAST_SECONDS), MOST_SECONDS)
        contents, orders = _prepared(trials)
        runner = _runner(target)
        contents[runner.digest] = runner.data
        with self._leased() as lease:
            self._device.send(lease, contents)
            order = MeasuringOrder(
                lease, target.triple, target.cpu, target.features, runner.digest, asked, self._limit, orders
            )
            # NOTE: each may take its limit for each of its answers before the time of the rounds begins, if it is as slow as it may be.
            most = asked + (len(trials) + 1) * 5 * self._limit
            return self._device.run(lease, sign_order(order, self._signer), most)

    @contextlib.contextmanager
    def _leased(self) -> Iterator[str]:
        self.lease()
        assert self._held is not None
        try:
            yield self._held.id
        except IngotError as error:
            if error.code is ErrorCode.DEVICE_TIMEOUT:
                self._held.abandon()
                self._held = None
            raise


class _HeldLease:
    """Renewed by a thread of its own until it is given back, or nobody has answered for as long as it lasts: then what runs is given up."""

    def __init__(self, device: MeasuringDevice, seconds: float) -> None:
        self._device = device
        self._over = threading.Event()
        self._seconds = seconds
        self.is_lost = False
        self.id = device.take_lease(seconds)
        self._thread = threading.Thread(target=self._renew, name="device-lease", daemon=True)
        self._thread.start()

    def release(self) -> None:
        self.abandon()
        self._thread.join()
        if not self.is_lost:
            with contextlib.suppress(IngotError):  # it ends by itself where the device cannot be told
                self._device.release_lease(self.id)

    def abandon(self) -> None:
        """It ends by itself."""
        self._over.set()

    def _renew(self) -> None:
        pause, until = self._seconds / 3, time.monotonic() + self._seconds
        while not self._over.wait(pause):
            try:
                began = time.monotonic()
                self._device.renew_lease(self.id, pause)
                until = began + self._seconds
            except IngotError:
                if time.monotonic() >= until and not self._over.is_set():
                    self.is_lost = True
                    self._device.cancel()
                    return


@lru_cache(maxsize=8)
def _runner(target: Target) -> Content:
    return Content.of(measuring_program(target).read_bytes())


def _prepared(trials: Sequence[Trial]) -> tuple[dict[str, bytes], tuple[OrderedTrial, ...]]:
    """What trials need by digest, and the trials in the words of an order."""
    contents: dict[str, bytes] = {}
    orders = []
    for trial in trials:
        linked = [
            Content.of(_linked(code, own.symbol, trial.target))
            for code, own in zip(trial.code, trial.launches, strict=True)
        ]
        libraries = tuple(dict.fromkeys(library.digest for library in linked))
        held = [*linked, *(b.content for b in trial.buffers if b.content is not None)]
        contents |= {content.digest: content.data for content in held}
        launches = tuple(
            OrderedLaunch(libraries.index(library.digest), own.symbol, own.buffers, own.symbols, own.tasks, own.scratch)
            for library, own in zip(linked, trial.launches, strict=True)
        )
        buffers = tuple(
            OrderedBuffer(b.size, b.content.digest if b.content else "", b.copies, b.is_result) for b in trial.buffers
        )
        orders.append(OrderedTrial(libraries, launches, buffers))
    return contents, tuple(orders)


@dataclass
class _Place:
    measurer: Measurer
    lost_until: float | None = None
    fault: IngotError | None = None
    is_busy: bool = False


class DevicePool:
    """Several devices of one kind. What a call brings is measured by one of them, since timings of different machines do not compare;
    calls of several threads are measured by several. A lost device is left out and tried again later.

    Args:
        measurers: of the devices, all of one target.
        retry_seconds: after which a lost device is tried again.
    """

    def __init__(
        self,
        measurers: Sequence[Measurer],
        retry_seconds: float = RETRY_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._places = [_Place(measurer) for measurer in measurers]
        self._retry_seconds = retry_seconds
        self._clock = clock
        self._changed = threading.Condition()

    @property
    def machine(self) -> str:
        return ", ".join(place.measurer.machine for place in self._places)

    @property
    def size(self) -> int:
        """Devices, lost ones among them: as many calls are measured at once."""
        return len(self._places)

    def run(self, trials: Sequence[Trial], seconds: float) -> tuple[Outcome, ...]:
        """As :meth:`Measurer.run`, by the first device that is free; by the next one where that is lost.

        Raises:
            IngotError: DEVICE_TIMEOUT, all of them are lost; RESOURCE_EXHAUSTED, the last one has another tuner.
        """
        lost: IngotError | None = None
        while True:
            place = self._take(lost)
            place.fault = None
            try:
                found = place.measurer.run(trials, seconds)
                place.lost_until = None
                return found
            except IngotError as error:
                if error.code not in _AWAY:
                    raise
                lost = place.fault = error
                place.lost_until = self._clock() + self._retry_seconds
            finally:
                self._give_back(place)

    def close(self) -> None:
        for place in self._places:
            place.measurer.close()

    def _take(self, lost: IngotError | None) -> _Place:
        with self._changed:
            while True:
                now = self._clock()
                usable = [p for p in self._places if p.lost_until is None or p.lost_until <= now]
                if not usable:
                    raise replace(lost or self._latest_fault())  # others may raise the same one at the same time
                free = [place for place in usable if not place.is_busy]
                if free:
                    place = min(free, key=lambda own: own.lost_until is not None)
                    place.is_busy = True
                    return place
                self._changed.wait(_LOOK_SECONDS)

    def _latest_fault(self) -> IngotError:
        """Why there is no device, where other calls have met the reasons."""
        latest = max((p for p in self._places if p.fault), key=lambda own: own.lost_until or 0.0, default=None)
        fault = latest.fault if latest is not None else None
        return fault or device_timeout("pool", f"so are all {self.size} devices")

    def _give_back(self, place: _Place) -> None:
        with self._changed:
            place.is_busy = False
            self._changed.notify_all()
