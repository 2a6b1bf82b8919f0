"""Tensors in shared memory of the system, which clients of the same machine name instead of sending them.

Source of the calls: triton-inference-server, ``docs/protocol/extension_shared_memory.md``. An object is a file of ``/dev/shm`` that any
process may change or cut short at any time; so nothing of it is mapped here. What is read is copied before it is looked at, and a
file that has become too short gives fewer bytes, where a mapping of it would end the process.
"""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from runtime_service.arrays import Array
from runtime_service.batching.datatypes import from_bytes, to_bytes
from runtime_service.batching.messages import InferRequest, RegionSlice, SharedTensor, Take, TensorData
from shared_ir.errors import ErrorCode, IngotError

_FOLDER = Path("/dev/shm")
MOST_REGIONS = 1024
"""Each holds a descriptor, and what memory its object has."""
MOST_NAME = 255
_SLICE_BYTES = 64 << 20
_MOST_OFFSET = 1 << 62
ANY = "*"
"""As a prefix: every object that this user may open."""


@dataclass(frozen=True, slots=True)
class SharedRegion:
    """``byte_size`` bytes of the object called ``key``, from ``offset`` on."""

    name: str
    key: str
    offset: int
    byte_size: int


class SharedMemory:
    """The regions that clients have registered. All methods may be called from any thread and raise IngotError."""

    def __init__(self, prefix: str = "", most_bytes: int = 1 << 30, folder: Path = _FOLDER) -> None:
        """``prefix`` begins the names of objects that clients may register, without the first slash; empty for none at all.
        ``most_bytes`` is what the inputs of one request may have there together."""
        self._prefix = prefix.removeprefix("/")
        self._most_bytes = most_bytes
        self._folder = folder
        self._lock = threading.Lock()
        self._regions: dict[str, tuple[SharedRegion, int]] = {}

    @property
    def is_on(self) -> bool:
        return bool(self._prefix)

    def register(self, name: str, key: str, offset: int, byte_size: int) -> None:
        """Raises IngotError INVALID_ARGUMENT, ALREADY_EXISTS, NOT_FOUND, RESOURCE_EXHAUSTED."""
        self._require_on()
        if not 0 < len(name) <= MOST_NAME:
            raise _invalid("name", f"a name of 1 to {MOST_NAME} characters", name)
        if not 0 <= offset < _MOST_OFFSET or not 0 < byte_size < _MOST_OFFSET:
            raise _invalid("byte_size", "an offset >= 0 and a size > 0, in bytes", f"offset {offset}, size {byte_size}")
        region = SharedRegion(name, key, offset, byte_size)
        opened = self._open(key)
        try:
            _require_inside(region, opened)
            with self._lock:
                self._require_free(name)
                self._regions[name] = region, opened
        except BaseException:
            os.close(opened)
            raise

    def unregister(self, name: str = "") -> None:
        """Forget one region, or all of them; one that is not there is forgotten already."""
        self._require_on()
        with self._lock:
            names = [name] if name else list(self._regions)
            closing = [self._regions.pop(each) for each in names if each in self._regions]
        for _, opened in closing:
            os.close(opened)

    def status(self, name: str = "") -> tuple[SharedRegion, ...]:
        """One region, or all of them. Raises IngotError NOT_FOUND."""
        self._require_on()
        with self._lock:
            found = tuple(region for region, _ in self._regions.values())
        if name:
            found = tuple(region for region in found if region.name == name)
            if not found:
                raise _unknown(name, "")
        return found

    def close(self) -> None:
        if self.is_on:
            self.unregister()

    def filled(self, inputs: Sequence[TensorData | SharedTensor], request: InferRequest) -> list[TensorData]:
        """``inputs`` with copies of those that lie in shared memory, which ``request`` holds.

        Raises:
            IngotError: INVALID_ARGUMENT, naming the tensor; RESOURCE_EXHAUSTED.
        """
        size = sum(each.place.byte_size for each in inputs if isinstance(each, SharedTensor))
        if size > self._most_bytes:
            expected = f"at most {self._most_bytes} bytes of inputs together"
            raise _invalid("shared_memory_byte_size", expected, f"{size} bytes")
        request.hold(size)
        return [self._read(each) if isinstance(each, SharedTensor) else each for each in inputs]

    def require(self, place: RegionSlice, tensor: str) -> None:
        """Raises IngotError INVALID_ARGUMENT: there is no such region, or the place is not in it."""
        with self._used(place, tensor):
            pass

    def write(self, output: TensorData, place: RegionSlice, take: Take) -> TensorData:
        """``output``, which is not to be sent any more: its bytes were written to ``place``.

        Raises:
            IngotError: INVALID_ARGUMENT, the place is too small, or gone; RESOURCE_EXHAUSTED, the memory of its object is.
        """
        data = to_bytes(output.array, take) if output.array.dtype == object else _bytes_in(output.array)
        if len(data) > place.byte_size:
            raise IngotError(
                ErrorCode.INVALID_ARGUMENT,
                "the shared memory of an output is too small",
                tensor=output.name,
                field="shared_memory_byte_size",
                expected=f"at least {len(data)} bytes",
                received=f"{place.byte_size} bytes",
            )
        view = memoryview(data)
        with self._used(place, output.name) as (opened, start):
            for at in range(0, len(view), _SLICE_BYTES):
                take(0)
                _write(opened, view[at : at + _SLICE_BYTES], start + at, output.name)
        return TensorData(output.name, output.dtype, output.array, RegionSlice(place.region, len(data), place.offset))

    def _read(self, tensor: SharedTensor) -> TensorData:
        with self._used(tensor.place, tensor.name) as (opened, start):
            data = np.empty(tensor.place.byte_size, np.uint8).data
            at = 0
            while at < len(data):
                count = os.preadv(opened, [data[at : at + _SLICE_BYTES]], start + at)
                if not count:
                    raise _shrunk(tensor.place.region, tensor.name)
                at += count
        return TensorData(tensor.name, tensor.dtype, from_bytes(data, tensor.dtype, tensor.shape, tensor.name))

    @contextmanager
    def _used(self, place: RegionSlice, tensor: str) -> Iterator[tuple[int, int]]:
        """A descriptor of the object of ``place``, and where it begins there; it stays open if the region is unregistered meanwhile."""
        self._require_on(tensor)
        with self._lock:
            found = self._regions.get(place.region)
            if found is None:
                raise _unknown(place.region, tensor)
            region, opened = found[0], os.dup(found[1])
        try:
            if place.offset + place.byte_size > region.byte_size:
                raise IngotError(
                    ErrorCode.INVALID_ARGUMENT,
                    "a tensor reaches outside of its region of shared memory",
                    tensor=tensor,
                    field="shared_memory_region",
                    expected=f"at most the {region.byte_size} bytes of {region.name!r}",
                    received=f"{place.byte_size} bytes from {place.offset} on",
                )
            if os.fstat(opened).st_size < region.offset + place.offset + place.byte_size:
                raise _shrunk(place.region, tensor)
            yield opened, region.offset + place.offset
        finally:
            os.close(opened)

    def _open(self, key: str) -> int:
        name = key.removeprefix("/")
        allowed = self._prefix == ANY or name.startswith(self._prefix)
        if (
            not allowed
            or not 0 < len(name.encode(errors="replace")) <= MOST_NAME
            or not set(name).isdisjoint("/\0")
            or name in (".", "..")
        ):
            raise _invalid(
                "key",
                f"the name of an object{'' if self._prefix == ANY else f' that begins with {self._prefix!r}'}",
                key,
            )
        try:
            opened = os.open(self._folder / name, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            message = "there is no such object of shared memory, or this server may not open it"
            remedy = "Create it first, for the user of the server to read and write."
            raise IngotError(
                ErrorCode.NOT_FOUND, message, field="key", received=repr(key[:100]), remedy=remedy
            ) from error
        found = os.fstat(opened)
        if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:  # another name of what is somebody else's
            os.close(opened)
            raise _invalid("key", "an object of shared memory", f"{key[:100]}, which is something else")
        return opened

    def _require_free(self, name: str) -> None:
        if name in self._regions:
            message, remedy = "a region of shared memory of this name is registered", "Unregister it first."
            raise IngotError(ErrorCode.ALREADY_EXISTS, message, field="name", received=repr(name), remedy=remedy)
        if len(self._regions) >= MOST_REGIONS:
            message, remedy = "too many regions of shared memory are registered", "Unregister some."
            expected = f"at most {MOST_REGIONS}"
            raise IngotError(ErrorCode.RESOURCE_EXHAUSTED, message, field="name", expected=expected, remedy=remedy)

    def _require_on(self, tensor: str = "") -> None:
        if not self.is_on:
            raise IngotError(
                ErrorCode.INVALID_ARGUMENT,
                "this server takes no tensors from shared memory",
                tensor=tensor,
                field="shared_memory_region",
                remedy="Send the tensor in the request, or start the server with INGOT_RUNTIME_SHARED_MEMORY.",
            )


def _bytes_in(array: Array) -> memoryview:
    """Of numbers, where they lie."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def no_cuda() -> IngotError:
    """What is told to who would register memory of a GPU."""
    return IngotError(
        ErrorCode.INVALID_ARGUMENT,
        "this server computes on processors, and takes no tensors from the memory of a GPU",
        field="cudasharedmemory",
        remedy="Use system shared memory, or send the tensor in the request.",
    )


def _write(opened: int, view: memoryview, start: int, tensor: str) -> None:
    """NOTE: an object that is cut short between the look at its size and this grows again, to no more than its region."""
    at = 0
    try:
        while at < len(view):
            at += os.pwrite(opened, view[at:], start + at)
    except OSError as error:  # the system has no memory left, or its owner has sealed it
        raise IngotError(
            ErrorCode.RESOURCE_EXHAUSTED,
            f"the shared memory of an output cannot be written: {error.strerror}",
            tensor=tensor,
            field="shared_memory_region",
        ) from error


def _require_inside(region: SharedRegion, opened: int) -> None:
    size = os.fstat(opened).st_size
    if region.offset + region.byte_size > size:
        expected = f"at most the {size} bytes of the object"
        raise _invalid("byte_size", expected, f"{region.byte_size} bytes from {region.offset} on")


def _shrunk(region: str, tensor: str) -> IngotError:
    return IngotError(
        ErrorCode.INVALID_ARGUMENT,
        "the object of a region of shared memory has become smaller than the region",
        tensor=tensor,
        field="shared_memory_region",
        received=repr(region[:100]),
        remedy="Unregister the region, and register what there is.",
    )


def _unknown(region: str, tensor: str) -> IngotError:
    return IngotError(
        ErrorCode.INVALID_ARGUMENT if tensor else ErrorCode.NOT_FOUND,
        "no region of shared memory of this name is registered",
        tensor=tensor,
        field="shared_memory_region",
        received=repr(region[:100]),
        remedy="Register it first.",
    )


def _invalid(field: str, expected: str, received: str) -> IngotError:
    message = "a region of shared memory cannot be used so"
    return IngotError(
        ErrorCode.INVALID_ARGUMENT, message, field=field, expected=expected, received=repr(received[:200])
    )
