"""A loaded model: checks what callers hand in, and runs it from any number of threads."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType, TracebackType
from typing import Any, NoReturn, Self

import numpy as np

from runtime_service.arrays import Array
from runtime_service.executors.executor import Executor, LaunchProfile
from runtime_service.executors.graph import GraphExecutor
from runtime_service.executors.objects import ObjectAllowance, Objects
from runtime_service.executors.resources import UNBOUNDED, Resources
from runtime_service.executors.signature import CallSignature
from runtime_service.executors.stop import Stop
from runtime_service.loading.interface import from_memory, is_plain, to_memory
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.plan.program import TensorSpec

_NOT_GIVEN = object()


class Model:
    """A compiled model, mapped and ready.

    Concurrent calls of :meth:`run` each get an executor of their own (threads and arena; code and weights are shared),
    made when first needed, up to ``instances``; further calls wait.

    Attributes:
        name: of the model.
        weights_bytes: of memory that the weights are in.
    """

    def __init__(
        self,
        name: str,
        signature: CallSignature,
        make_executor: Callable[[], Executor],
        make_profiler: Callable[[], GraphExecutor],
        on_close: Callable[[], None],
        instances: int = 1,
        defaults: Mapping[str, Array] = MappingProxyType({}),
        resources: Resources = UNBOUNDED,
        weights_bytes: int = 0,
    ) -> None:
        self.name = name
        self.weights_bytes = weights_bytes
        self._resources = resources
        self._defaults = defaults
        self._signature = signature
        self._make_executor = make_executor
        self._make_profiler = make_profiler
        self._on_close = on_close
        self._limit = instances
        self._plain = all(is_plain(spec) for spec in (*signature.inputs, *signature.outputs))
        self._taken = tuple(
            (spec, spec.name, dtype, is_plain(spec))
            for spec, dtype in zip(signature.inputs, signature.input_dtypes, strict=True)
        )
        self._given = tuple(spec.name for spec in signature.outputs)
        self._lock = threading.Lock()
        self._closed = True
        self._idle: queue.SimpleQueue[Executor | None] = queue.SimpleQueue()
        self._idle.put(make_executor())
        self._made = 1
        self._closed = False

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """Name, element type and shape of each input, in order."""
        return self._signature.inputs

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """The same of the outputs."""
        return self._signature.outputs

    @property
    def is_steady(self) -> bool:
        """Whether what it does depends on the sizes of its inputs alone, and not on what is in them."""
        return self._signature.is_steady

    @property
    def batch(self) -> str:
        """The symbol that counts rows which are proven not to see each other; empty without a proof."""
        return self._signature.batch

    def run(self, feeds: Mapping[str, Array], /, stop: Stop | None = None) -> dict[str, Array]:
        """Outputs by name for ``feeds``, one array per input that has no default. May be called from any thread; releases the GIL.

        Tensors of strings are object arrays of str; a sequence is a list of arrays, an empty optional None.

        Raises:
            IngotError: INVALID_ARGUMENT (an input is missing, unknown, or of the wrong dtype, rank or extent),
                RESOURCE_EXHAUSTED (no memory for inputs of this size), UNAVAILABLE (the model is closed),
                CANCELLED (another thread has set ``stop``).
        """
        objects = None if self._plain else Objects(self._signature.strings, self._resources, stop)
        arrays = self._arrays(feeds, objects)
        executor = self._take()
        try:
            results = executor.run(arrays, objects, stop)
        finally:
            self._idle.put(executor)
        if objects is None:
            return dict(zip(self._given, results))  # noqa: B905 - as many as there are; checking takes as long again
        outputs, room = zip(self._signature.outputs, results, strict=True), ObjectAllowance(objects.require)
        return {spec.name: from_memory(spec, array, objects, room) for spec, array in outputs}

    def run_in_order(self, arrays: Sequence[Array], into: Sequence[Array] | None = None) -> list[Array]:
        """As :meth:`run`, without what that does to arrays: these are in the order of the inputs, of their element types, C-contiguous
        and aligned, which is not looked at again. No input is a string, a sequence or an optional.

        Args:
            into: arrays of this kind for the outputs, in order; they may be written to, and overlap neither each other nor ``arrays``.

        Raises:
            IngotError: INVALID_ARGUMENT (a wrong rank or extent), RESOURCE_EXHAUSTED, UNAVAILABLE, as :meth:`run`.
        """
        executor = self._take()
        try:
            return executor.run(arrays, None, None, into)
        finally:
            self._idle.put(executor)

    def profile(self, feeds: Mapping[str, Array], repeat: int = 10, warm: int = 0) -> tuple[LaunchProfile, ...]:
        """Median time of every launch of the plan, in order, over ``repeat`` runs after one to warm up.

        With ``warm``, of launches repeated so many times where they stand, so that their data is in the caches.
        """
        objects = Objects(self._signature.strings, self._resources)
        arrays = self._arrays(feeds, objects)
        executor = self._take()  # a profile counts as a run: no more threads than allowed
        try:
            profiler = self._make_profiler()
            try:
                profiler.run(arrays, objects)
                return profiler.profile(arrays, repeat, objects, warm)
            finally:
                profiler.close()
        finally:
            self._idle.put(executor)

    def rest(self) -> bool:
        """Free the threads of an executor that does not run until it does; whether there was one."""
        try:
            executor = self._idle.get_nowait()
        except queue.Empty:
            return False
        try:
            if executor is not None:
                executor.rest()
        finally:
            self._idle.put(executor)
        return True

    def close(self) -> None:
        """Wait for running calls, then free threads and memory and unmap the code. Later calls fail."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            made = self._made
        for _ in range(made):
            executor = self._idle.get()
            assert executor is not None
            executor.close()
        self._idle.put(None)
        self._make_executor = self._make_profiler = self._refuse  # they hold the weights
        self._defaults = MappingProxyType({})
        self._on_close()

    def __del__(self) -> None:
        if not getattr(self, "_closed", True):  # nobody refers to the model, so nothing runs: this does not wait
            self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _take(self) -> Executor:
        """An idle executor, a new one while that is allowed, or the next that becomes idle."""
        try:
            executor = self._idle.get_nowait()
        except queue.Empty:
            executor = self._grow() or self._idle.get()
        if executor is None or self._closed:
            self._idle.put(executor)
            self._refuse()
        assert executor is not None
        return executor

    def _refuse(self) -> NoReturn:
        raise IngotError(ErrorCode.UNAVAILABLE, f"model {self.name!r} is closed", remedy="Load it again.")

    def _grow(self) -> Executor | None:
        with self._lock:
            if self._closed or self._made >= self._limit:
                return None
            executor = self._make_executor()
            self._made += 1
            return executor

    def _arrays(self, feeds: Mapping[str, Array], objects: Objects | None) -> list[Array]:
        """The arrays in the order of the inputs, as the C ABI wants them. Most are so already, and no function is called for
        them: a small model computes in less time than that takes."""
        arrays = []
        if self._defaults:
            feeds = {**self._defaults, **feeds}
        for spec, name, dtype, plain in self._taken:
            array = feeds.get(name)
            if not plain or type(array) is not np.ndarray or array.dtype != dtype or not array.flags.carray:
                array = self._fitted(spec, dtype, feeds, objects)
            arrays.append(array)
        if len(feeds) != len(arrays):
            raise self._unfit(feeds)
        return arrays

    def _fitted(
        self, spec: TensorSpec, dtype: np.dtype[Any], feeds: Mapping[str, Array], objects: Objects | None
    ) -> Array:
        """The array of one input, converted where that loses nothing; what stands for it where it is no plain array."""
        array = feeds.get(spec.name)
        if not is_plain(spec) and spec.name in feeds:
            assert objects is not None  # a run has them where an input is not plain
            return to_memory(spec, array, objects)
        if array is None:
            raise self._unfit(feeds)
        array = np.asarray(array)
        if array.dtype != dtype:
            raise _wrong_dtype(spec, array)
        flags = array.flags
        return array if flags.c_contiguous and flags.aligned else np.array(array, order="C", copy=True)

    def _unfit(self, feeds: Mapping[str, Array]) -> IngotError:
        names = [spec.name for spec in self._signature.inputs]
        optional = {spec.name for spec in self._signature.inputs if spec.is_optional}
        nothing = {s.name for s in self._signature.inputs if s.kind.is_optional and s.name in feeds}
        missing = [name for name in names if feeds.get(name) is None and name not in nothing]
        given = [name for name, array in feeds.items() if array is not self._defaults.get(name, _NOT_GIVEN)]
        unknown = [name for name in feeds if name not in names]
        message = " and ".join(
            [f"no value for input {', '.join(map(repr, missing))}"] * bool(missing)
            + [f"no input is called {', '.join(map(repr, unknown))}"] * bool(unknown)
        )
        return IngotError(
            ErrorCode.INVALID_ARGUMENT,
            f"model {self.name!r}: {message}",
            tensor=(missing or unknown or [""])[0],
            expected=", ".join(f"{name} (optional)" if name in optional else name for name in names),
            received=", ".join(given) or "nothing",
            remedy=f"Give every input of the model{' that is not optional' * bool(optional)} exactly once."
            + " An initializer that is an input is a constant unless it was named when the model was compiled (overridable)."
            * bool(unknown),
        )


def _wrong_dtype(spec: TensorSpec, array: Array) -> IngotError:
    order = "" if array.dtype.isnative else " of foreign byte order"
    return IngotError(
        ErrorCode.INVALID_ARGUMENT,
        f"input {spec.name!r} has the wrong element type",
        tensor=spec.name,
        expected=str(spec.dtype),
        received=f"{array.dtype.name}{order}",
        remedy=f"Convert it first: array.astype({str(spec.dtype)!r}).",
    )
