"""Importing one node: the signature of functions that know how, and what they need of the importer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

import onnx

from compiler_service.compiler.frontend.importing.context import Context
from compiler_service.compiler.frontend.importing.node import SourceNode
from compiler_service.compiler.frontend.importing.scope import Binding, Frame, GraphDraft
from shared_ir.expr import Expr
from shared_ir.graph.ir import Graph, Value
from shared_ir.types import TensorType

Types: TypeAlias = "Sequence[TensorType | None]"
"""``None`` is a type that is not known, because a node before could not be imported."""


class Importer(Protocol):
    """What handlers may ask of the importer: that of graphs, which is built from them."""

    @property
    def context(self) -> Context: ...

    def operands(self, node: SourceNode, frame: Frame) -> tuple[Value | None, ...]: ...

    def operator(self, node: SourceNode, frame: Frame, draft: GraphDraft) -> None: ...

    def by_definition(self, node: SourceNode, frame: Frame, draft: GraphDraft) -> None: ...

    def has_unknown_inputs(self, node: SourceNode, frame: Frame) -> bool: ...

    def bind_unknown(self, node: SourceNode, frame: Frame) -> None: ...

    def body(
        self, proto: onnx.GraphProto, frame: Frame, types: Types = (), number: Expr | None = None
    ) -> tuple[Graph, tuple[Binding, ...]]: ...

    def inline(
        self, proto: onnx.GraphProto, frame: Frame, draft: GraphDraft, inputs: tuple[Binding, ...] = ()
    ) -> tuple[Binding, ...]: ...


Handler: TypeAlias = Callable[[SourceNode, Frame, GraphDraft, Importer], None]
