"""LSTM, GRU and RNN as graphs: one matrix product for the inputs of all time steps, and a loop over the steps.

The loop multiplies the state by R and applies the gates; everything symbolic stays symbolic.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from compiler_service.compiler.graph_passes.normal_form.recurrent_cells import Cell, CellWeights, activation_functions
from compiler_service.compiler.graph_passes.rewriting.attributes import float_attribute, int_attribute
from compiler_service.compiler.graph_passes.rewriting.builder import Builder
from compiler_service.compiler.graph_passes.rewriting.rewrite import Replacement, RewriteRule, Site, rule
from shared_ir.arrays import storage_dtype
from shared_ir.dtype import DType
from shared_ir.expr import Var
from shared_ir.expr.dim import Dim, as_dim
from shared_ir.graph.ir import REPEAT_OP, Attribute, Graph, Node, Value
from shared_ir.types import TensorType

_DEFAULTS = {"LSTM": ("Sigmoid", "Tanh", "Tanh"), "GRU": ("Sigmoid", "Tanh"), "RNN": ("Tanh",)}


def recurrent_rules(symbol: Callable[[str], Var]) -> tuple[RewriteRule, ...]:
    """The expansions; ``symbol`` is a source of new symbols."""
    return (rule("LSTM GRU RNN", lambda node, site: _Expansion(node, site, symbol).run()),)


@dataclass(frozen=True)
class _Direction:
    """Results of one direction: rows [steps, batch, hidden], where wanted, and the last state, each [batch, hidden]."""

    rows: Value | None
    state: tuple[Value, ...]


class _Expansion:
    def __init__(self, node: Node, site: Site, symbol: Callable[[str], Var]) -> None:
        self.node, self.site, self.symbol = node, site, symbol
        self.layout = int_attribute(node, "layout")
        direction = node.attributes.get("direction", "forward")
        self.backward = {"forward": (False,), "reverse": (True,)}.get(str(direction), (False, True))
        self.lengths = self._operand(4)
        x = self._operand(0)
        assert x is not None
        self.x = self.site.transpose(x, (1, 0, 2)) if self.layout else x
        self.steps, self.batch = self.x.shape[0], self.x.shape[1]
        self.cells = self._cells()
        outputs = (*node.outputs, None, None)
        self.wants_rows = outputs[0] is not None
        self.states = 2 if node.op == "LSTM" else 1

    def run(self) -> Replacement:
        found = [self._direction(number, backward) for number, backward in enumerate(self.backward)]
        rows = None
        if self.wants_rows:
            parts = [self._unsqueezed(d.rows, 1) for d in found if d.rows is not None]
            rows = self._joined(parts, 1)
            rows = self.site.transpose(rows, (2, 0, 1, 3)) if self.layout else rows
        states = [self._joined([self._unsqueezed(d.state[i], 0) for d in found], 0) for i in range(self.states)]
        if self.layout:
            states = [self.site.transpose(s, (1, 0, 2)) for s in states]
        outputs = self.node.outputs
        return tuple(v for v, _ in zip((rows, *states), outputs, strict=False))

    # -- operands

    def _operand(self, index: int) -> Value | None:
        return self.node.inputs[index] if index < len(self.node.inputs) else None

    def _cells(self) -> tuple[Cell, ...]:
        """One per direction."""
        op, attributes = self.node.op, self.node.attributes
        defaults = _DEFAULTS[op]
        names = attributes.get("activations") or defaults * len(self.backward)
        alphas, betas = attributes.get("activation_alpha") or (), attributes.get("activation_beta") or ()
        assert isinstance(names, tuple)
        assert isinstance(alphas, tuple)
        assert isinstance(betas, tuple)
        floats = [tuple(float(str(v)) for v in values) for values in (alphas, betas)]
        functions = activation_functions([str(n) for n in names], *floats)
        clip = float_attribute(self.node, "clip", 0.0) if attributes.get("clip") is not None else None
        hidden = self.node.operands[2].shape[2]
        assert isinstance(hidden, int)
        count = len(defaults)
        return tuple(
            Cell(
                op,
                hidden,
                functions[d * count : (d + 1) * count],
                clip,
                bool(int_attribute(self.node, "input_forget")),
                bool(int_attribute(self.node, "linear_before_reset")),
            )
            for d in range(len(self.backward))
        )

    def _part(self, value: Value, number: int) -> Value:
        """The share of one direction of an operand with directions along axis 0, without that axis."""
        site = self.site
        if len(self.backward) == 1:
            return site.node("Squeeze", value, site.integers(0))
        index = site.constant(np.array(number, np.int64), "direction")
        return site.node("Gather", value, index, axis=0)

    def _unsqueezed(self, value: Value, axis: int) -> Value:
        return self.site.node("Unsqueeze", value, self.site.integers(axis))

    def _joined(self, parts: list[Value], axis: int) -> Value:
        return parts[0] if len(parts) == 1 else self.site.node("Concat", *parts, axis=axis)

    # -- one direction

    def _direction(self, number: int, backward: bool) -> _Direction:
        site, cell = self.site, self.cells[number]
        x = self.x
        turned = backward and self.lengths is not None
        if turned:
            x = self._turned(x)
        share, weights = self._share(x, number)
        state = tuple(self._initial(index, number) for index in range(self.states))
        counter = self.symbol(f"{self.node.name or self.node.op}_t")
        at = as_dim(self.steps - 1 - counter) if backward and not turned else counter
        body = self._body(cell, share, weights, state, counter, at)
        results = [Value(site.fresh(f"{v.name}_last"), v.type) for v in body.inputs]
        hidden = body.inputs[0].type
        rows = None
        if self.wants_rows:
            shape = (self.steps, *hidden.shape)
            rows = Value(site.fresh(f"{self.node.outputs[0].name}_rows"), TensorType(hidden.dtype, shape))  # type: ignore[union-attr]
        attributes: dict[str, Attribute] = {
            "body": body,
            "counter": counter,
            "conditional": 0,
            "limit": self.steps,
            "reverse": (int(backward and not turned),) if self.wants_rows else (),
        }
        outputs = (*results, rows) if self.wants_rows else tuple(results)
        site.nodes.append(Node(REPEAT_OP, (None, None, *state), outputs, attributes, self.node.name))
        if rows is not None and turned:
            rows = self._turned(rows)
        return _Direction(rows, tuple(results))

    def _turned(self, sequence: Value) -> Value:
        assert self.lengths is not None
        return self.site.node("ReverseSequence", sequence, self.lengths, time_axis=0, batch_axis=1)

    def _share(self, x: Value, number: int) -> tuple[Value, CellWeights]:
        """X W^T and what can be added to it before the loop, [steps, batch, gates * hidden]; the rest."""
        site, cell = self.site, self.cells[number]
        w, r = (self._part(v, number) for v in self.node.operands[1:3])
        share = site.node("MatMul", x, site.transpose(w, (1, 0)))
        bias, inner = self._operand(3), None
        if bias is not None:
            both = self._part(bias, number)
            width = cell.gates * cell.hidden
            own, past = site.slice(both, 0, 0, width), site.slice(both, 0, width, 2 * width)
            if cell.op == "GRU" and cell.linear_before_reset:
                inner = site.slice(past, 0, 2 * cell.hidden, width)
                zeros = site.constant(np.zeros(cell.hidden, storage_dtype(bias.dtype)), "zeros")
                past = site.node("Concat", site.slice(past, 0, 0, 2 * cell.hidden), zeros, axis=0)
            share = site.node("Add", share, site.node("Add", own, past))
        peepholes = self._operand(7)
        return share, CellWeights(
            site.transpose(r, (1, 0)), inner, None if peepholes is None else self._part(peepholes, number)
        )

    def _initial(self, index: int, number: int) -> Value:
        """The initial state, [batch, hidden]."""
        site, given = self.site, self._operand(5 + index)
        shape: tuple[Dim, ...] = (self.batch, self.cells[number].hidden)
        if given is None:
            zero: dict[str, Attribute] = {"value": 0.0, "dtype": self.x.dtype}
            return site.write("ConstantOfShape", (site.dims(shape),), zero)
        own = self._part(site.transpose(given, (1, 0, 2)) if self.layout else given, number)
        return own if own.shape == shape else site.reshape(own, shape)

    # -- the loop

    def _body(
        self, cell: Cell, share: Value, weights: CellWeights, state: tuple[Value, ...], counter: Var, at: Dim
    ) -> Graph:
        builder = Builder(self.site.fresh, dict(self.site.constants))
        inputs = tuple(
            Value(builder.fresh(f"{self.node.op.lower()}_{n}"), v.type) for n, v in zip("hc", state, strict=False)
        )
        own = builder.node("Gather", share, _number(builder, at), axis=0)
        new = cell.step(builder, own, inputs, weights)
        row = new[0]
        if self.lengths is not None:
            running = self._running(builder, counter)
            new = tuple(builder.node("Where", running, n, old) for n, old in zip(new, inputs, strict=True))
            if self.wants_rows:
                zero = builder.constant(np.zeros((), storage_dtype(row.dtype)), "zero")
                row = builder.node("Where", running, row, zero)
        new = tuple(
            v if v.type == old.type else builder.reshape(v, old.shape) for v, old in zip(new, inputs, strict=True)
        )
        outputs = (*new, row) if self.wants_rows else new
        return Graph("step", inputs, outputs, tuple(builder.nodes), builder.added)

    def _running(self, builder: Builder, counter: Var) -> Value:
        """bool [batch, 1]: the sequences that this step belongs to."""
        assert self.lengths is not None
        lengths = builder.node("Cast", self.lengths, to=DType.INT64)
        lengths = builder.node("Unsqueeze", lengths, builder.integers(1))
        return builder.node("Less", _number(builder, counter), lengths)


def _number(builder: Builder, dim: Dim) -> Value:
    """An int64 scalar with the value of ``dim``."""
    return builder.node("Squeeze", builder.dims([dim], "number"))
