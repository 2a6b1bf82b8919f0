"""Importing one node: the signature of functions that know how, and what they need of the importer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

from compiler_service.compiler.frontend.importing.context import Context
from compiler_service.compiler.frontend.importing.node import SourceNode
from compiler_service.compiler.frontend.importing.scope import Frame, NodeBuilder
from shared_ir.graph.ir import Value


class OperatorImporter(Protocol):
    """The part of the importer that handlers need."""

    @property
    def context(self) -> Context: ...

    def operands(self, node: SourceNode, frame: Frame) -> tuple[Value | None, ...]: ...

    def operator(self, node: SourceNode, frame: Frame, builder: NodeBuilder) -> None: ...

    def has_unknown_inputs(self, node: SourceNode, frame: Frame) -> bool: ...

    def bind_unknown(self, node: SourceNode, frame: Frame) -> None: ...


Handler: TypeAlias = Callable[[SourceNode, Frame, NodeBuilder, OperatorImporter], None]
