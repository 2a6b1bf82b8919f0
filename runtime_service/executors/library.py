"""``model.so`` through its C ABI (``ingot.h``). Calls release the GIL."""

from __future__ import annotations

import _ctypes
import ctypes
import errno
import fcntl
import os
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from runtime_service.executors.resources import Resources
from shared_ir.errors import ErrorCode, IngotError

_NEVER_A_PROGRAM = 0x8
"""``MFD_NOEXEC_SEAL``."""


class CTensor(ctypes.Structure):
    """``ingot_tensor``."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("rank", ctypes.c_int32),
        ("dtype", ctypes.c_int32),
    )


class _CTensorInfo(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("dtype", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("shape_symbols", ctypes.POINTER(ctypes.c_char_p)),
    )


class _COptions(ctypes.Structure):
    _fields_ = (
        ("struct_size", ctypes.c_size_t),
        ("weights", ctypes.c_void_p),
        ("weights_size", ctypes.c_size_t),
        ("threads", ctypes.c_int32),
        ("thread_pool", ctypes.c_void_p),
        ("memory_limit", ctypes.c_size_t),
        ("memory_kept", ctypes.c_size_t),
    )


_SIGNATURES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "ingot_abi_version": (ctypes.c_uint32, ()),
    "ingot_compiler_version": (ctypes.c_char_p, ()),
    "ingot_weights_size": (ctypes.c_size_t, ()),
    "ingot_input_count": (ctypes.c_int32, ()),
    "ingot_output_count": (ctypes.c_int32, ()),
    "ingot_kernel_count": (ctypes.c_int32, ()),
    "ingot_input_info": (ctypes.POINTER(_CTensorInfo), (ctypes.c_int32,)),
    "ingot_output_info": (ctypes.POINTER(_CTensorInfo), (ctypes.c_int32,)),
    "ingot_kernel_name": (ctypes.c_char_p, (ctypes.c_int32,)),
    "ingot_create": (ctypes.c_int, (ctypes.c_void_p, ctypes.c_void_p)),
    "ingot_destroy": (None, (ctypes.c_void_p,)),
    "ingot_output_shapes": (
        ctypes.c_int,
        (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p, ctypes.c_int32),
    ),
    "ingot_run": (
        ctypes.c_int,
        (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p, ctypes.c_int32),
    ),
    "ingot_run_kernel": (
        ctypes.c_int,
        (ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64),
    ),
    "ingot_last_error": (ctypes.c_char_p, (ctypes.c_void_p,)),
}
_LATER_SIGNATURES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "ingot_run_stoppable": (
        ctypes.c_int,
        (
            *(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p, ctypes.c_int32),
            ctypes.c_void_p,
        ),
    ),
    "ingot_run_kernel_stoppable": (
        ctypes.c_int,
        (
            *(ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p),
            *(ctypes.c_int64, ctypes.c_void_p),
        ),
    ),
    "ingot_give_back": (None, (ctypes.c_void_p,)),
    "ingot_plan_digest": (ctypes.c_char_p, ()),
    "ingot_time_kernel": (
        ctypes.c_int,
        (
            *(ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p),
            *(ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p),
        ),
    ),
}
"""Functions that libraries of this ABI version lack where they were built before those were added."""

_CODES = {
    1: ErrorCode.INVALID_ARGUMENT,
    2: ErrorCode.RESOURCE_EXHAUSTED,
    3: ErrorCode.ARTIFACT_INCOMPATIBLE,
    4: ErrorCode.INTERNAL,
    5: ErrorCode.CANCELLED,
}
_REMEDIES = {2: "Send a smaller batch or give the process more memory."}
_EQUAL = "Extents of one name are equal; send them so, or compile the model with names of their own for those that differ (shapes={...})."
_BROADCAST = "Extents of one name are equal; compile the model with a name of its own for an extent that may be 1 (shapes={...})."


class Library:
    """One mapped ``model.so``, shared by any number of handles.

    It is unmapped when the last user has called :meth:`release`; the first use is counted by the constructor.
    """

    def __init__(self, data: bytes, name: str) -> None:
        """Map the code in ``data``; what is mapped is a private copy that nobody else can change.

        Raises:
            IngotError: ARTIFACT_CORRUPT, the dynamic loader refuses it or a function is missing.
        """
        self._descriptor, path = _private_copy(data, name)
        self._users = 1
        self._lock = threading.Lock()
        self._dll: ctypes.CDLL | None = None
        try:
            self._dll = ctypes.CDLL(path, mode=os.RTLD_NOW | os.RTLD_LOCAL)
            later = {n: s for n, s in _LATER_SIGNATURES.items() if hasattr(self._dll, n)}
            for function, (result, arguments) in (_SIGNATURES | later).items():
                getattr(self._dll, function).restype = result
                getattr(self._dll, function).argtypes = arguments
        except (OSError, AttributeError) as error:
            self.release()
            raise IngotError(
                ErrorCode.ARTIFACT_CORRUPT,
                f"the library of model {name!r} cannot be loaded: {error}",
                remedy="Compile the model again.",
            ) from error
        finally:
            if self._descriptor < 0:
                shutil.rmtree(Path(path).parent, ignore_errors=True)

    @property
    def functions(self) -> ctypes.CDLL:
        """The functions of ``ingot.h``.

        Raises:
            IngotError: UNAVAILABLE, the library has been unmapped.
        """
        if self._dll is None:
            raise IngotError(ErrorCode.UNAVAILABLE, "the model is closed", remedy="Load it again.")
        return self._dll

    @property
    def kernel_names(self) -> tuple[str, ...]:
        dll = self.functions
        return tuple(dll.ingot_kernel_name(i).decode() for i in range(dll.ingot_kernel_count()))

    @property
    def plan_digest(self) -> str:
        """Of the plan that it was generated from; empty where it was built before libraries said so."""
        dll = self.functions
        return (dll.ingot_plan_digest() or b"").decode() if hasattr(dll, "ingot_plan_digest") else ""

    @property
    def input_dtypes(self) -> tuple[int, ...]:
        """onnx.TensorProto.DataType of each input."""
        dll = self.functions
        return tuple(dll.ingot_input_info(i).contents.dtype for i in range(dll.ingot_input_count()))

    @property
    def output_dtypes(self) -> tuple[int, ...]:
        dll = self.functions
        return tuple(dll.ingot_output_info(i).contents.dtype for i in range(dll.ingot_output_count()))

    def retain(self) -> None:
        """Count one more user."""
        with self._lock:
            self._users += 1

    def release(self) -> None:
        """Count one user less; the last one unmaps the library."""
        with self._lock:
            self._users -= 1
            if self._users:
                return
            dll, self._dll = self._dll, None
        if dll is not None:
            _ctypes.dlclose(dll._handle)
        if self._descriptor >= 0:
            os.close(self._descriptor)


class Handle:
    """One ``ingot_model``: an arena and a pool of threads. One call at a time."""

    def __init__(self, library: Library, weights_address: int, weights_size: int, resources: Resources) -> None:
        """
        Raises:
            IngotError: ARTIFACT_INCOMPATIBLE (CPU features, weights of another model), RESOURCE_EXHAUSTED.
        """
        self._library = library
        dll = library.functions
        limits = resources.memory_bytes, resources.kept_bytes
        self._options = _COptions(
            ctypes.sizeof(_COptions), weights_address or None, weights_size, resources.threads, None, *limits
        )
        self._pointer: ctypes.c_void_p | None = None  # ctypes passes on objects of its own in half the time
        self._is_open = True
        self._wake()
        library.retain()
        self._run = dll.ingot_run
        self._run_stoppable = getattr(dll, "ingot_run_stoppable", None)
        self._run_kernel = dll.ingot_run_kernel
        self._run_kernel_stoppable = getattr(dll, "ingot_run_kernel_stoppable", None)
        self._give_back = getattr(dll, "ingot_give_back", None)
        self._time_kernel = getattr(dll, "ingot_time_kernel", None)

    def run(
        self,
        inputs: ctypes.c_void_p,
        input_count: ctypes.c_int32,
        outputs: ctypes.c_void_p,
        output_count: ctypes.c_int32,
        stop: int = 0,
    ) -> None:
        """Run the model on arrays of ``ingot_tensor`` at these addresses, which ctypes passes on in less time than the arrays.

        Args:
            stop: address of an int32 that ends the run when it is no longer 0; 0: none.
                NOTE: a library that was built before it had a function for this runs to its end.

        Raises:
            IngotError: INVALID_ARGUMENT, RESOURCE_EXHAUSTED, CANCELLED, INTERNAL.
        """
        pointer = self._pointer or self._wake()
        if stop and self._run_stoppable is not None:
            status = self._run_stoppable(pointer, inputs, input_count, outputs, output_count, stop)
        else:
            status = self._run(pointer, inputs, input_count, outputs, output_count)
        if status:
            raise self._error(status)

    def give_back(self) -> None:
        """Free what the run took beyond the bytes that are kept, outputs that belong to the model included."""
        if self._give_back is not None and self._pointer is not None:
            self._give_back(self._pointer)

    def output_shapes(self, inputs: ctypes.Array[CTensor], outputs: ctypes.Array[CTensor]) -> None:
        """Fill in the extents of every output for these inputs. Raises IngotError INVALID_ARGUMENT."""
        call = self._library.functions.ingot_output_shapes
        status = call(self._pointer or self._wake(), inputs, len(inputs), outputs, len(outputs))
        if status:
            raise self._error(status)

    def run_kernel(
        self, kernel: int, buffers: ctypes.Array[Any], symbols: ctypes.Array[Any], tasks: int, stop: int = 0
    ) -> None:
        """Run one kernel over ``[0, tasks)``. The addresses in ``buffers`` are taken at their word; ``stop`` is that of :meth:`run`."""
        arguments = self._pointer or self._wake(), kernel, buffers, symbols, tasks
        if stop and self._run_kernel_stoppable is not None:
            status = self._run_kernel_stoppable(*arguments, stop)
        else:
            status = self._run_kernel(*arguments)
        if status:
            raise self._error(status)

    def time_kernel(
        self, kernel: int, buffers: ctypes.Array[Any], symbols: ctypes.Array[Any], tasks: int, times: int
    ) -> float:
        """Mean nanoseconds of ``times`` launches in a row, timed where they are made: no call from here is in them.

        NOTE: a library that was built before it had a function for this is called ``times`` times, about a microsecond each.
        """
        if self._time_kernel is None:
            start = time.perf_counter_ns()
            for _ in range(times):
                self.run_kernel(kernel, buffers, symbols, tasks)
            return (time.perf_counter_ns() - start) / times
        taken = ctypes.c_int64()
        pointer = self._pointer or self._wake()
        status = self._time_kernel(pointer, kernel, buffers, symbols, tasks, times, ctypes.byref(taken))
        if status:
            raise self._error(status)
        return taken.value / times

    def rest(self) -> None:
        """Join the threads and free the arena, until the next call."""
        pointer, self._pointer = self._pointer, None
        if pointer is not None:
            self._library.functions.ingot_destroy(pointer)

    def close(self) -> None:
        """The same, for good."""
        self.rest()
        if self._is_open:
            self._is_open = False
            self._library.release()

    def _wake(self) -> ctypes.c_void_p:
        if not self._is_open:
            raise IngotError(ErrorCode.UNAVAILABLE, "the model is closed", remedy="Load it again.")
        dll, pointer = self._library.functions, ctypes.c_void_p()
        status = dll.ingot_create(ctypes.byref(self._options), ctypes.byref(pointer))
        if status or pointer.value is None:
            raise _typed(status, dll.ingot_last_error(None))
        self._pointer = pointer
        return pointer

    def _error(self, status: int) -> IngotError:
        return _typed(status, self._library.functions.ingot_last_error(self._pointer))


def tensors(shapes: Sequence[Sequence[int]], dtypes: Sequence[int]) -> ctypes.Array[CTensor]:
    """An array of ``ingot_tensor`` without data pointers; it keeps the extents alive."""
    rows = (CTensor * len(shapes))()
    for row, shape, dtype in zip(rows, shapes, dtypes, strict=True):
        row.shape, row.rank, row.dtype = (ctypes.c_int64 * len(shape))(*shape), len(shape), dtype
    return rows


def _typed(status: int, text: bytes | None) -> IngotError:
    message = (text or b"").decode(errors="replace") or f"the native runtime failed with status {status}"
    code = _CODES.get(status, ErrorCode.INTERNAL)
    what, _, rest = message.partition(": expected ")
    expected, is_sentence, received = rest.rpartition(", received ")
    if is_sentence and code is ErrorCode.INVALID_ARGUMENT:
        return unequal(what, expected, received)
    found = {"message": what, "expected": expected, "received": received} if is_sentence else {"message": message}
    return IngotError(code, **found, remedy=_REMEDIES.get(status, ""))


def unequal(message: str, expected: str, received: str) -> IngotError:
    """INVALID_ARGUMENT: something of the inputs is not what it must be."""
    extents = {int(text) for text in (expected, received) if text.isdecimal()}
    is_of_names = not message.startswith("node ")  # what nodes ask of extents of different names has another cure
    remedy = ""
    if is_of_names and len(extents) > 1:
        remedy = _BROADCAST if 1 in extents and max(extents) > 1 else _EQUAL
    return IngotError(ErrorCode.INVALID_ARGUMENT, message, expected=expected, received=received, remedy=remedy)


def _private_copy(data: bytes, name: str) -> tuple[int, str]:
    """A copy of verified code that cannot change before or while it is mapped: an open descriptor and a path.

    NOTE: the loader takes two open libraries of one path for the same, so the descriptor, whose number is in the path,
    stays open while the library is in use. Without memfd it is a file of a fresh private folder, and descriptor -1.
    """
    label = re.sub(r"[^A-Za-z0-9_.-]", "_", name)[:100]
    try:
        descriptor = _memory(f"ingot-{label}")
    except OSError:  # forbidden by vm.memfd_noexec or a sandbox
        path = Path(tempfile.mkdtemp(prefix="ingot-")) / "model.so"
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o500), "wb") as file:
            file.write(data)
        return -1, str(path)
    with os.fdopen(os.dup(descriptor), "wb") as file:
        file.write(data)
    seals = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
    return descriptor, f"/proc/self/fd/{descriptor}"


def _memory(name: str) -> int:
    """A file in memory that is no program to execute, where the kernel can say so (Linux 6.3). Raises OSError."""
    flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
    try:
        return os.memfd_create(name, flags | _NEVER_A_PROGRAM)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return os.memfd_create(name, flags)
