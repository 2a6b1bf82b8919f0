"""The kernels that a fused graph launches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeAlias

import numpy as np

from compiler_service.compiler.graph_passes.analysis.aliases import is_empty, runs_no_kernel
from compiler_service.compiler.graph_passes.analysis.known import known_values
from compiler_service.compiler.graph_passes.memory.parts import find_strides
from compiler_service.compiler.program.variants import Variant
from compiler_service.compiler.tensor_expr.kernel.algorithm import algorithm_kernel
from compiler_service.compiler.tensor_expr.kernel.external import external_kernel
from compiler_service.compiler.tensor_expr.kernel.group import KernelDefinition, Known, body_scalars, group_kernels
from compiler_service.compiler.tensor_expr.operators.sequential import EXTERNAL_OP, SEQUENTIAL
from compiler_service.compiler.tensor_expr.strides import Strides
from shared_ir.graph.ir import GROUP_OP, Graph, Node, Value

_MOST_ALIKE = 128
"""Groups that differ in the numbers they hold and have kernels of their own; of more, the numbers are arguments of one kernel."""

_Form: TypeAlias = tuple[object, ...]
_Define: TypeAlias = Callable[..., tuple[KernelDefinition, ...]]
_Scalars: TypeAlias = Mapping[Value, np.ndarray]


def define_kernels(variant: Variant) -> Variant:
    """With the kernels that its fused graph launches, in order, bodies of control flow included; views launch nothing. Numbers
    that groups hold and that are arguments of their kernels become constants of the graph."""
    kernels, graph = _Kernels(), variant.module.graph
    with variant.within():
        kernels.add(graph, {})
    if kernels.numbers:
        graph = graph.with_(constants={**graph.constants, **kernels.numbers})
        variant = replace(variant, module=replace(variant.module, graph=graph))
    return replace(variant, definitions=tuple(kernels.found.values()))


@dataclass
class _Alike:
    """Groups of one form: the numbers that they hold, and how the first of them are defined."""

    scalars: set[tuple[bytes, ...]] = field(default_factory=set)
    first: list[tuple[_Define, _Scalars]] = field(default_factory=list)

    @property
    def are_many(self) -> bool:
        return len(self.scalars) > _MOST_ALIKE


@dataclass
class _Kernels:
    """The kernels by their results, in the order of the launches, and the numbers that are arguments of theirs."""

    found: dict[Value, KernelDefinition] = field(default_factory=dict)
    numbers: dict[Value, np.ndarray] = field(default_factory=dict)
    forms: dict[_Form, _Alike] = field(default_factory=dict)

    def add(self, graph: Graph, outer: Known) -> None:
        known, strides = known_values(graph, outer), find_strides(graph)
        for node in graph.nodes:
            if node.op == EXTERNAL_OP:
                self._keep([external_kernel(node)])
            elif node.op in SEQUENTIAL:
                self._keep(algorithm_kernel(node) for value in node.results if not is_empty(value))
            elif node.op != GROUP_OP:
                for body in node.subgraphs:
                    self.add(body, known)
            elif not runs_no_kernel(node):
                self._add_group(node, known, strides)

    def _add_group(self, group: Node, known: Known, strides: Mapping[Value, Strides]) -> None:
        (body,) = group.subgraphs
        define = partial(group_kernels, group, known, strides)
        scalars = body_scalars(body)
        if not scalars:
            self._keep(define())
            return
        alike = self.forms.setdefault(_form(group, body), _Alike())
        if alike.are_many:
            self._keep_apart(define, scalars)
            return
        alike.scalars.add(tuple(a.tobytes() for a in scalars.values()))
        alike.first.append((define, scalars))
        if alike.are_many:
            for earlier in alike.first:
                self._keep_apart(*earlier)
            alike.first.clear()
        else:
            self._keep(define())

    def _keep_apart(self, define: _Define, scalars: _Scalars) -> None:
        definitions = define(scalars=False)
        self._keep(definitions)
        read = {v for d in definitions for v in d.operands}
        self.numbers |= {v: a for v, a in scalars.items() if v in read}

    def _keep(self, definitions: Iterable[KernelDefinition]) -> None:
        self.found |= {d.result: d for d in definitions if not is_empty(d.result)}


def _form(group: Node, body: Graph) -> _Form:
    """What groups have in common that may be one kernel but for numbers: operators, element types and numbers of axes."""
    values = (*group.operands, *group.results, *body.constants)
    return tuple(n.op for n in body.nodes), tuple((v.dtype, v.type.rank) for v in values)
