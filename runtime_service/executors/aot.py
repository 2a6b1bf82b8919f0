"""The ahead-of-time executor: one native call runs the whole model."""

from __future__ import annotations

from collections.abc import Sequence

from runtime_service.arrays import Array
from runtime_service.executors.library import Handle
from runtime_service.executors.objects import Objects
from runtime_service.executors.resources import Resources
from runtime_service.executors.signature import (
    CallShapes,
    CallSignature,
    ShapeCache,
    Shapes,
    copy_memory,
    point,
)
from runtime_service.executors.stop import Stop


class AotExecutor:
    """Everything but the data pointers is prepared once per combination of input shapes."""

    def __init__(self, signature: CallSignature, handle: Handle, resources: Resources) -> None:
        self._signature = signature
        self._resources = resources
        self._gives_back = bool(resources.kept_bytes)
        self._handle = handle
        self._calls = ShapeCache(self._prepare)

    def run(
        self,
        inputs: Sequence[Array],
        objects: Objects | None = None,
        stop: Stop | None = None,
        into: Sequence[Array] | None = None,
    ) -> list[Array]:
        call = self._calls.of(inputs)
        outputs = call.allocate() if into is None else call.fitting(into, self._signature.outputs)
        point(call.input_rows, inputs)
        point(call.output_rows, outputs)
        try:
            self._handle.run(*call.arguments, 0 if stop is None else stop.address)
            for index in call.owned:
                outputs[index] = self._owned(call, index)
        finally:
            if self._gives_back:
                self._handle.give_back()
        return outputs  # type: ignore[return-value]  # none is missing now

    def _owned(self, call: CallShapes, index: int) -> Array:
        """A copy of an output that the model sized."""
        row = call.outputs[index]
        shape = tuple(row.shape[axis] for axis in range(row.rank))
        return copy_memory(row.data, shape, self._signature.output_dtypes[index], self._resources)

    def rest(self) -> None:
        self._handle.rest()

    def close(self) -> None:
        self._handle.close()

    def _prepare(self, shapes: Shapes) -> CallShapes:
        return CallShapes.resolve(self._signature, self._handle, shapes, self._resources)
