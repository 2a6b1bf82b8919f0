"""How far two right answers of a model may be apart, by the narrowest type that it computes in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import onnx
from onnx import TensorProto

from compiler_service.compiler.frontend.reading.source import ModelSource

TOLERANCE = 1e-3
"""Largest accepted error, relative to the largest element of the output."""
_SPACING = {
    TensorProto.FLOAT16: 2.0**-10,
    TensorProto.BFLOAT16: 2.0**-7,
    TensorProto.FLOAT8E4M3FN: 2.0**-3,
    TensorProto.FLOAT8E4M3FNUZ: 2.0**-3,
    TensorProto.FLOAT8E5M2: 2.0**-2,
    TensorProto.FLOAT8E5M2FNUZ: 2.0**-2,
}
"""Between 1 and the next number of the type."""
_ROUNDINGS, _LARGEST = 4, 0.5
"""What is rounded by one and not by the other, one after the other; and what says nothing any more."""
_NAMES_TYPE = frozenset({"to", "dtype", "output_dtype", "stash_type"})


def tolerance_of(source: ModelSource) -> float:
    """The largest accepted error of a model: some roundings of its narrowest type, and no less than :data:`TOLERANCE`."""
    data = source.model.read_bytes() if isinstance(source.model, Path) else source.model
    model = onnx.load_from_string(data)
    spacing = max((_SPACING.get(kind, 0.0) for kind in element_types(model)), default=0.0)
    return max(TOLERANCE, min(_ROUNDINGS * spacing, _LARGEST))


def element_types(model: onnx.ModelProto) -> Iterator[int]:
    """Of what the model names: inputs, values, initializers, and what its nodes convert to."""
    nodes = [node for function in model.functions for node in function.node]
    graphs = [model.graph]
    while graphs:
        graph = graphs.pop()
        nodes += graph.node
        yield from (each.type.tensor_type.elem_type for each in (*graph.input, *graph.output, *graph.value_info))
        yield from (each.data_type for each in graph.initializer)
        while nodes:
            for attribute in nodes.pop().attribute:
                graphs += [attribute.g] if attribute.HasField("g") else []
                graphs += attribute.graphs
                if attribute.name in _NAMES_TYPE:
                    yield attribute.i
                if attribute.HasField("t"):
                    yield attribute.t.data_type
