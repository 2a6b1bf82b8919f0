"""Inputs that need not be given: initializers that the graph lists among its inputs too (from IR version 4 on; before, every
initializer was listed).

Some exporters list all weights of a network so, and no caller means to replace them. What a caller might replace cannot be
folded, packed or fused, so such a model would run several times slower: unless options name the inputs, they stay inputs
only where they are few numbers, and where the model can be compiled without knowing them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import onnx

from compiler_service.compiler.frontend.reading.tensors import dtype_of
from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode, IngotError

MOST_ELEMENTS = 1 << 14
"""Largest number of elements of all defaults of a model together: more are the weights of a network."""
_FIRST_IR_VERSION = 4


def overridable(proto: onnx.ModelProto, wanted: Sequence[str] | None) -> Iterator[frozenset[str]]:
    """Sets of names of initializers that become inputs, the next to be tried where a model is refused with the one before.

    Args:
        wanted: the names, where the user says them.

    Raises:
        IngotError: INVALID_ARGUMENT, a name of ``wanted`` is not one of an initializer that is an input.
    """
    inputs = {i.name for i in proto.graph.input}
    listed = {t.name: t for t in proto.graph.initializer if t.name in inputs}
    if wanted is not None:
        yield _checked(wanted, listed)
        return
    tensors = [t for t in listed.values() if _is_plain(t)]
    if proto.ir_version >= _FIRST_IR_VERSION and 0 < sum(math.prod(t.dims) for t in tensors) <= MOST_ELEMENTS:
        yield frozenset(t.name for t in tensors)
        yield frozenset(t.name for t in tensors if dtype_of(t.data_type, t.name).is_float)
    yield frozenset()


def _checked(wanted: Sequence[str], listed: dict[str, onnx.TensorProto]) -> frozenset[str]:
    for name in wanted:
        if name not in listed or not _is_plain(listed[name]):
            raise IngotError(
                ErrorCode.INVALID_ARGUMENT,
                "an input that is to be overridable is no initializer that is an input",
                tensor=name,
                field="overridable",
                expected=", ".join(n for n, t in listed.items() if _is_plain(t)) or "none: the model has none",
                received=name,
            )
    return frozenset(wanted)


def _is_plain(tensor: onnx.TensorProto) -> bool:
    """Whether it is of numbers of whole bytes."""
    dtype = dtype_of(tensor.data_type, tensor.name)
    return dtype is not DType.STRING and dtype.bits >= 8
