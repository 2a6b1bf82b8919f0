"""A model's inputs and outputs as both sides of the C ABI see them, and the shapes of one call."""

from __future__ import annotations

import ctypes
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Generic, TypeVar

import numpy as np

from runtime_service.arrays import Array, address_of, pointer_of
from runtime_service.executors.library import CTensor, Handle, tensors
from runtime_service.executors.resources import Resources
from shared_ir.arrays import storage_dtype
from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr.dim import dim_text, dims_text
from shared_ir.plan.program import ALIGNMENT_BYTES, Branch, Call, Plan, Read, Repeat, TensorSpec, walk_steps

Shapes = tuple[tuple[int, ...], ...]
_MOST_CACHED_SHAPES = 256
_LARGE_BYTES = 1 << 17
"""From here on allocators ask the system for memory of its own."""
_OF_DATA = (Branch, Repeat, Read, Call)
"""Steps whose time may depend on what is in the tensors."""
_T = TypeVar("_T")
_empty: Callable[[Any, Any], Array] = np.empty
"""Where outputs are written; tests put guard pages around them."""


def array_dtype(dtype: DType) -> np.dtype[Any]:
    """The numpy dtype of arrays of ``dtype``.

    Raises:
        IngotError: UNSUPPORTED_DTYPE, strings have no fixed size.
    """
    if dtype is DType.STRING:
        raise IngotError(ErrorCode.UNSUPPORTED_DTYPE, "string tensors cannot be passed to native code")
    return storage_dtype(dtype)


@dataclass(frozen=True)
class CallSignature:
    """Inputs and outputs of a model. ``*_codes`` are onnx.TensorProto.DataType; ``strings`` are those that the model
    holds, ``batch`` is the symbol along which requests may be merged, or empty; ``is_steady``: no step depends on data."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    input_dtypes: tuple[np.dtype[Any], ...]
    output_dtypes: tuple[np.dtype[Any], ...]
    input_codes: tuple[int, ...]
    output_codes: tuple[int, ...]
    strings: tuple[str, ...] = ()
    batch: str = ""
    is_steady: bool = False

    @classmethod
    def of(cls, plan: Plan, input_codes: tuple[int, ...], output_codes: tuple[int, ...]) -> CallSignature:
        return cls(
            plan.inputs,
            plan.outputs,
            tuple(array_dtype(t.memory_dtype) for t in plan.inputs),
            tuple(array_dtype(t.memory_dtype) for t in plan.outputs),
            input_codes,
            output_codes,
            plan.strings,
            plan.batch,
            not any(isinstance(step, _OF_DATA) for step in walk_steps(plan.steps)),
        )

    def check_extents(self, shapes: Shapes) -> None:
        """Fixed extents and rank, with a typed error; the library checks what symbols imply."""
        for tensor, shape in zip(self.inputs, shapes, strict=True):
            wrong = [
                axis
                for axis, (dim, extent) in enumerate(zip(tensor.shape, shape, strict=False))
                if isinstance(dim, int) and dim != extent
            ]
            if len(shape) == len(tensor.shape) and not wrong:
                continue
            where = f"axis {wrong[0]} of" if len(shape) == len(tensor.shape) else "the rank of"
            raise IngotError(
                ErrorCode.INVALID_ARGUMENT,
                f"{where} input {tensor.name!r} does not fit the model",
                tensor=tensor.name,
                expected=f"{tensor.dtype}[{dims_text(tensor.shape)}]",
                received=f"[{', '.join(str(d) for d in shape)}]",
                remedy=_free_axes(tensor),
            )


def _free_axes(tensor: TensorSpec) -> str:
    free = [f"{axis} ({dim_text(dim)})" for axis, dim in enumerate(tensor.shape) if not isinstance(dim, int)]
    return f"Only axis {', '.join(free)} may vary." if free else "This model was compiled for one shape."


@dataclass(frozen=True)
class CallShapes:
    """Arguments of one native call for given input shapes; only data pointers are missing.

    ``output_shapes[i]`` is None where only the run knows extents of output i; ``owned`` lists those outputs.
    """

    inputs: ctypes.Array[CTensor]
    outputs: ctypes.Array[CTensor]
    output_shapes: tuple[tuple[int, ...] | None, ...]
    output_dtypes: tuple[np.dtype[Any], ...]
    owned: tuple[int, ...] = ()

    @cached_property
    def arguments(self) -> tuple[ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p, ctypes.c_int32]:
        """Address and number of the rows of ``inputs`` and ``outputs``, which this keeps alive."""
        inputs, outputs = (ctypes.c_void_p(ctypes.addressof(rows)) for rows in (self.inputs, self.outputs))
        return inputs, ctypes.c_int32(len(self.inputs)), outputs, ctypes.c_int32(len(self.outputs))

    @cached_property
    def input_rows(self) -> tuple[CTensor, ...]:
        return tuple(self.inputs)

    @cached_property
    def output_rows(self) -> tuple[CTensor, ...]:
        return tuple(self.outputs)

    @classmethod
    def resolve(cls, signature: CallSignature, handle: Handle, shapes: Shapes, resources: Resources) -> CallShapes:
        """Ask the library for the output shapes. Raises IngotError INVALID_ARGUMENT, RESOURCE_EXHAUSTED."""
        signature.check_extents(shapes)
        inputs = tensors(shapes, signature.input_codes)
        outputs = tensors([[0] * len(t.shape) for t in signature.outputs], signature.output_codes)
        some_address = ctypes.addressof(inputs) if shapes else 0
        for row in inputs:
            row.data = some_address  # shapes do not depend on data, but NULL is refused
        handle.output_shapes(inputs, outputs)
        shapes = tuple(tuple(row.shape[axis] for axis in range(row.rank)) for row in outputs)
        owned = tuple(i for i, shape in enumerate(shapes) if any(extent < 0 for extent in shape))
        known = tuple(None if i in owned else s for i, s in enumerate(shapes))
        call = cls(inputs, outputs, known, tuple(signature.output_dtypes), owned)
        resources.require(call.output_bytes, "the outputs")
        return call

    def allocate(self) -> list[Array | None]:
        """Uninitialised arrays for the outputs; None for one whose shape is not known yet.

        Raises:
            IngotError: RESOURCE_EXHAUSTED.
        """
        try:
            return self._allocate_together() if self._together else [make() for make in self._makers]
        except (MemoryError, ValueError) as error:
            raise _no_memory(error, ", ".join(str(s) for s in self.output_shapes)) from error

    def fitting(self, arrays: Sequence[Array], specs: Sequence[TensorSpec]) -> list[Array | None]:
        """``arrays`` as a place for the outputs.

        Raises:
            IngotError: INVALID_ARGUMENT, one has other extents than its output, or only the run knows those.
        """
        for array, spec, shape in zip(arrays, specs, self.output_shapes, strict=True):
            if array.shape != shape:
                raise IngotError(
                    ErrorCode.INVALID_ARGUMENT,
                    f"the array for output {spec.name!r} does not fit it",
                    tensor=spec.name,
                    expected="none, since only the run knows its extents" if shape is None else str(list(shape)),
                    received=str(list(array.shape)),
                )
        return list(arrays)

    @property
    def _outputs(self) -> Iterator[tuple[tuple[int, ...] | None, np.dtype[Any]]]:
        return zip(self.output_shapes, self.output_dtypes, strict=True)

    @cached_property
    def output_bytes(self) -> int:
        """Of all outputs whose shape is known."""
        return sum(0 if s is None or d.hasobject else math.prod(s) * d.itemsize for s, d in self._outputs)

    @cached_property
    def _makers(self) -> tuple[Callable[[], Array | None], ...]:
        """What makes the array of each output."""
        return tuple(_nothing if s is None else partial(_empty, s, d) for s, d in self._outputs)

    @cached_property
    def _together(self) -> dict[int, int]:
        """Output -> its offset in a block that the large ones share, if there are several: an allocator keeps one block from run to
        run, where it gives several back to the system, which fills them with zeros, page by page, when they are written again."""
        sizes = [0 if s is None or d.hasobject else math.prod(s) * d.itemsize for s, d in self._outputs]
        large = [i for i, size in enumerate(sizes) if size >= _LARGE_BYTES]
        starts = itertools.accumulate((-(-sizes[i] // ALIGNMENT_BYTES) * ALIGNMENT_BYTES for i in large), initial=0)
        return dict(zip(large, starts, strict=False)) if len(large) > 1 else {}

    def _allocate_together(self) -> list[Array | None]:
        last = max(self._together)
        shape, dtype = self.output_shapes[last], self.output_dtypes[last]
        assert shape is not None
        block = _empty(self._together[last] + math.prod(shape) * dtype.itemsize, np.uint8)
        found: list[Array | None] = []
        for i, (shape, dtype) in enumerate(self._outputs):
            start = self._together.get(i)
            if shape is None:
                found.append(None)
            else:
                found.append(_empty(shape, dtype) if start is None else np.ndarray(shape, dtype, block, start))
        return found


def _nothing() -> None:
    """The array of an output that only the run can shape."""


class ShapeCache(Generic[_T]):
    """The last few hundred prepared calls, by input shapes. One thread at a time."""

    def __init__(self, prepare: Callable[[Shapes], _T]) -> None:
        self._prepare = prepare
        self._calls: dict[Shapes, _T] = {}

    def of(self, arrays: Sequence[Array]) -> _T:
        shapes = tuple([array.shape for array in arrays])
        call = self._calls.get(shapes)
        if call is None:
            call = self._prepare(shapes)
            if len(self._calls) >= _MOST_CACHED_SHAPES:
                self._calls.clear()
            self._calls[shapes] = call
        return call


def point(rows: Sequence[CTensor], arrays: Sequence[Array | None]) -> None:
    """Let every row point to the data of its array, or nowhere.

    ``rows`` and ``arrays`` are of one length; to have ``zip`` check it costs as much as an array.
    """
    for row, array in zip(rows, arrays):  # noqa: B905
        row.data = None if array is None else pointer_of(array)


def copy_memory(address: int, shape: tuple[int, ...], dtype: np.dtype[Any], resources: Resources) -> Array:
    """An array with a copy of what the model owns at ``address``.

    Raises:
        IngotError: RESOURCE_EXHAUSTED.
    """
    resources.require(math.prod(shape) * dtype.itemsize, "an output")
    try:
        array = _empty(shape, dtype)
    except (MemoryError, ValueError) as error:
        raise _no_memory(error, str(shape)) from error
    ctypes.memmove(address_of(array), address, array.nbytes)
    return array


def _no_memory(error: Exception, shapes: str) -> IngotError:
    return IngotError(
        ErrorCode.RESOURCE_EXHAUSTED,
        f"no memory for the outputs: {error}",
        received=shapes,
        remedy="Send a smaller batch or give the process more memory.",
    )
