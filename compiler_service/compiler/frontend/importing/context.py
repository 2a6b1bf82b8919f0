"""What all parts of one import share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx

from compiler_service.compiler.frontend.importing.choices import Choices
from compiler_service.compiler.frontend.importing.index_ranges import IndexRanges
from compiler_service.compiler.frontend.importing.inference import Inference, KnownValues
from compiler_service.compiler.frontend.importing.names import Names, Symbols
from compiler_service.compiler.frontend.importing.problems import Problems
from compiler_service.compiler.frontend.importing.scope import Frame, FunctionKey, GraphDraft
from compiler_service.compiler.frontend.reading.external_data import ExternalData
from compiler_service.compiler.frontend.reading.limits import ImportBudget
from compiler_service.compiler.frontend.reading.tensors import dense, to_array
from shared_ir.dtype import DType
from shared_ir.graph.ir import Value
from shared_ir.types import TensorType


@dataclass
class Context:
    """One import: its services, and what it has used of its budget."""

    inference: Inference
    problems: Problems
    budget: ImportBudget
    external: ExternalData
    functions: Mapping[FunctionKey, onnx.FunctionProto]
    known: KnownValues
    names: Names = field(default_factory=Names)
    symbols: Symbols = field(default_factory=Symbols)
    choices: Choices = field(default_factory=Choices)
    main: GraphDraft = field(default_factory=GraphDraft)
    """Builds the graph of the model itself."""
    ranges: IndexRanges = field(init=False)

    def __post_init__(self) -> None:
        self.ranges = IndexRanges(self.known)

    def value(self, onnx_name: str, type: TensorType) -> Value:
        """A new value of the graph IR, counted against the budget."""
        self.budget.spend_tensor(type, onnx_name)
        return Value(self.names.fresh(onnx_name), type)

    def constant(self, onnx_name: str, array: np.ndarray, frame: Frame, draft: GraphDraft) -> Value:
        """``array`` as a constant of the graph, bound to ``onnx_name`` in ``frame``."""
        value = Value(self.names.fresh(onnx_name), TensorType(DType.of(array), tuple(array.shape)))
        draft.constants[value] = array
        frame.bindings[onnx_name] = value
        self.known.add_constant(value, array)
        self.ranges.arrays[value] = array
        return value

    def array(self, tensor: onnx.TensorProto | onnx.SparseTensorProto, where: str) -> np.ndarray:
        """The elements of a tensor of the model."""
        if isinstance(tensor, onnx.SparseTensorProto):
            return dense(tensor, self.external, self.budget)
        return to_array(tensor, self.external, self.budget, where)
