"""Random models of loops, scans and branches, nested, whose bodies hand on old values, views of them, and outer values.

Sizes are written as words: ``n`` is a size of the inputs, ``?3`` one that only the run knows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 18
FLOAT, INT64, INT32, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.INT32, TensorProto.BOOL
Choose = Callable[[Sequence[Any]], Any]
Dims = tuple[int | str, ...]
Feeds = dict[str, np.ndarray]
SHAPES: tuple[Dims, ...] = ((), (3,), ("n",), (2, 3), ("n", 3), (3, "n"), ("n", 2, 2))
DEEPEST = 2
UNREAD = "ends"


@dataclass(frozen=True)
class Typed:
    """A value: its name, element type and shape."""

    name: str
    dtype: int
    dims: Dims

    @property
    def kind(self) -> tuple[int, Dims]:
        return self.dtype, self.dims

    def info(self) -> onnx.ValueInfoProto:
        dims = [d if isinstance(d, int) or d.isalpha() else None for d in self.dims]
        return helper.make_tensor_value_info(self.name, self.dtype, dims)


@dataclass
class Scope:
    """A graph under construction; ``outer`` are values of the enclosing ones. ``trip`` is the number of the iteration, ``carried``
    what the iteration before handed on, ``made`` how values were made."""

    maker: Maker
    outer: list[Typed] = field(default_factory=list)
    own: list[Typed] = field(default_factory=list)
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    depth: int = 0
    trip: Typed | None = None
    carried: list[Typed] = field(default_factory=list)
    made: dict[Typed, tuple[str, ...]] = field(default_factory=dict)

    @property
    def values(self) -> list[Typed]:
        return [*self.outer, *self.own]

    def add(self, op: str, inputs: Sequence[Typed | str], dims: Dims, dtype: int, **attributes: Any) -> Typed:
        result = Typed(self.maker.fresh(op.lower()), dtype, dims)
        names = [i if isinstance(i, str) else i.name for i in inputs]
        self.nodes.append(helper.make_node(op, names, [result.name], **attributes))
        self.own.append(result)
        self.made[result] = tuple(names)
        return result

    def constant(self, values: Any, dtype: Any = np.int64) -> str:
        name = self.maker.fresh("k")
        tensor = numpy_helper.from_array(np.asarray(values, dtype))
        self.nodes.append(helper.make_node("Constant", [], [name], value=tensor))
        return name

    def inside(self) -> Scope:
        return Scope(self.maker, self.values, depth=self.depth + 1, trip=self.trip)

    def pick(self, accepts: Callable[[Typed], bool] = lambda _: True) -> Typed | None:
        """One of the values, more often of this graph than of those around it, and often of the last ones."""
        own, outer = ([v for v in vs if accepts(v) and not v.name.startswith(UNREAD)] for vs in (self.own, self.outer))
        groups = [g for g in (own[-3:], own, outer) if g]
        return self.maker.choose(self.maker.choose(groups)) if groups else None


def is_of(kind: tuple[int, Dims], value: Typed) -> bool:
    return value.kind == kind


def numeric(value: Typed) -> bool:
    return bool(value.dtype != BOOL)


@dataclass
class Maker:
    """Draws models; ``choose`` picks one of several."""

    choose: Choose
    count: int = 0

    def fresh(self, base: str) -> str:
        self.count += 1
        return f"{base}_{self.count}"

    def unknown(self) -> str:
        self.count += 1
        return f"?{self.count}"

    # -- arithmetic and movement

    def step(self, scope: Scope) -> None:
        makers = [self._binary, self._binary, self._unary, self._view, self._move, self._row, self._sum, self._number]
        makers += [self._constant]
        if scope.carried:
            makers += [self._update, self._update, self._update]
        if scope.depth < DEEPEST:
            makers += [self._branch, self.loop, self.scan]
        self.choose(makers)(scope)

    def _update(self, scope: Scope) -> None:
        """Something that may be computed in place of a carried value, of it and others of its kind."""
        old = self.choose(scope.carried)
        if old.dtype == BOOL:
            scope.add("Not", [old], old.dims, BOOL)
            return
        others = [v for v in scope.carried if v.kind == old.kind] + [v for v in scope.own if v.kind == old.kind][-2:]
        scope.add(self.choose(["Add", "Sub", "Max"]), [old, self.choose(others)], old.dims, old.dtype)

    def _binary(self, scope: Scope) -> None:
        first = scope.pick(numeric)
        if first is None:
            return
        second = scope.pick(lambda v: v.kind == first.kind)
        assert second is not None
        op = self.choose(["Add", "Add", "Sub", "Max", "Min"])
        scope.add(op, self.choose([(first, second), (second, first)]), first.dims, first.dtype)

    def _unary(self, scope: Scope) -> None:
        value = scope.pick(numeric)
        if value is not None:
            scope.add(self.choose(["Neg", "Abs", "Identity", "Identity"]), [value], value.dims, value.dtype)

    def _view(self, scope: Scope) -> None:
        """The same elements under another shape, and back."""
        value = scope.pick()
        if value is None or any(str(d).startswith("?") for d in value.dims):
            return
        flat: Dims = (_product(value.dims),)
        same = [d for d in SHAPES if _product(d) == flat[0]]
        dims = self.choose([flat, (1, *value.dims), *same])
        if dims == (1, *value.dims):
            scope.add("Unsqueeze", [value, scope.constant([0])], dims, value.dtype)
        elif dims == ():
            scope.add("Reshape", [value, scope.constant(np.zeros(0))], dims, value.dtype)
        else:
            numbers = [-1 if isinstance(d, str) else d for d in dims]
            scope.add("Reshape", [value, scope.constant(numbers)], dims, value.dtype)

    def _move(self, scope: Scope) -> None:
        value = scope.pick(lambda v: len(v.dims) > 0)
        if value is None:
            return
        last = len(value.dims) - 1
        kind = self.choose(["transpose", "turn", "roll", "roll"])
        if kind == "transpose":
            order = [*range(1, last + 1), 0]
            scope.add("Transpose", [value], tuple(value.dims[i] for i in order), value.dtype, perm=order)
        elif kind == "turn":
            ends = [scope.constant([k]) for k in (-1, -(1 << 31), last, -1)]
            scope.add("Slice", [value, *ends], value.dims, value.dtype)
        elif value.dims[0] != 1:
            one, end, zero = scope.constant([1]), scope.constant([1 << 31]), scope.constant([0])
            head = Typed(self.fresh("head"), value.dtype, (1, *value.dims[1:]))
            tail = Typed(self.fresh("tail"), value.dtype, ("?", *value.dims[1:]))
            scope.nodes.append(helper.make_node("Slice", [value.name, zero, one, zero], [head.name]))
            scope.nodes.append(helper.make_node("Slice", [value.name, one, end, zero], [tail.name]))
            scope.add("Concat", [tail, head], value.dims, value.dtype, axis=0)

    def _row(self, scope: Scope) -> None:
        """A row by the number of the iteration, read or written."""
        value = scope.pick(lambda v: len(v.dims) > 0 and isinstance(v.dims[0], int))
        if value is None or scope.trip is None:
            return
        index = scope.add("Mod", [scope.trip, scope.constant(value.dims[0])], (), INT64)
        row = scope.add("Gather", [value, index], value.dims[1:], value.dtype, axis=0)
        if self.choose([True, False]) and numeric(value):
            other = scope.add("Neg", [row], row.dims, row.dtype)
            place = scope.add("Reshape", [index, scope.constant([1, 1])], (1, 1), INT64)
            update = scope.add("Unsqueeze", [other, scope.constant([0])], (1, *row.dims), row.dtype)
            scope.add("ScatterND", [value, place, update], value.dims, value.dtype)

    def _constant(self, scope: Scope) -> None:
        like = scope.pick(lambda v: numeric(v) and not any(isinstance(d, str) for d in v.dims))
        if like is not None:
            size = [int(d) for d in like.dims]
            numbers = np.arange(np.prod(size, dtype=int)).reshape(size)
            dtype = helper.tensor_dtype_to_np_dtype(like.dtype)
            scope.add("Constant", [], like.dims, like.dtype, value=numpy_helper.from_array(numbers.astype(dtype)))

    def _sum(self, scope: Scope) -> None:
        value = scope.pick(lambda v: numeric(v) and len(v.dims) > 0)
        if value is not None:
            scope.add("ReduceSum", [value], (), value.dtype, keepdims=0)

    def _number(self, scope: Scope) -> None:
        """The number of the iteration, or a constant, added."""
        value = scope.pick(lambda v: v.dtype == INT64)
        if value is None:
            return
        number = scope.trip if scope.trip is not None else scope.constant(self.choose([1, 2, 5]))
        scope.add(self.choose(["Add", "Sub", "Mul"]), [value, number], value.dims, INT64)

    def condition(self, scope: Scope) -> Typed:
        """A truth of the data, or of the iteration."""
        options = [v for v in scope.values if v.kind == (BOOL, ())]
        if options and self.choose([True, False]):
            chosen: Typed = self.choose(options)
            return chosen
        number = scope.trip if scope.trip is not None else scope.pick(lambda v: v.kind == (INT64, ()))
        if number is None:
            number = scope.add("Identity", [scope.constant(3)], (), INT64)
        if self.choose([True, False]):
            return scope.add("Less", [number, scope.constant(self.choose([0, 1, 2, 3]))], (), BOOL)
        rest = scope.add("Mod", [number, scope.constant(2)], (), INT64)
        return scope.add("Equal", [rest, scope.constant(0)], (), BOOL)

    # -- control flow

    def _steps(self, scope: Scope, options: Sequence[int] = (1, 2, 3, 4, 6)) -> None:
        for _ in range(self.choose(options)):
            self.step(scope)

    def _handed_on(self, scope: Scope, value: Typed) -> Typed:
        """A copy of ``value`` as an output of the graph under construction, made at once or later."""
        result = Typed(self.fresh("out"), value.dtype, value.dims)
        first = next((i + 1 for i, n in enumerate(scope.nodes) if value.name in n.output), 0)
        copy = helper.make_node("Identity", [value.name], [result.name])
        scope.nodes.insert(self.choose([first, first, len(scope.nodes)]), copy)
        return result

    def _output(self, scope: Scope, value: Typed, taken: list[Typed]) -> Typed:
        """``value`` itself, though it be an output already or come from outside, or a copy of it."""
        made = {o for n in scope.nodes for o in n.output}
        is_free = value.name in made and value not in taken
        return value if self.choose([True, is_free, False]) else self._handed_on(scope, value)

    def _branch(self, scope: Scope) -> None:
        condition = self.condition(scope)
        kinds = [v.kind for v in (scope.pick() for _ in range(self.choose([1, 2, 3]))) if v is not None]
        if not kinds:
            return
        arms = []
        for _ in range(2):
            arm = scope.inside()
            self._steps(arm, (0, 1, 2, 3))
            outputs: list[Typed] = []
            for kind in kinds:
                value = arm.pick(partial(is_of, kind))
                assert value is not None
                outputs.append(self._output(arm, value, outputs))
            arms.append(_graph("arm", arm, [], outputs))
        results = [Typed(self.fresh("if"), dtype, dims) for dtype, dims in kinds]
        scope.nodes.append(
            helper.make_node(
                "If", [condition.name], [r.name for r in results], then_branch=arms[0], else_branch=arms[1]
            )
        )
        scope.own += results

    def _carried(self, scope: Scope, body: Scope, most: int) -> tuple[list[Typed], list[Typed]]:
        """Initial values and what they are inside."""
        wanted = self.choose(range(1, most + 1))
        initial: list[Typed] = []
        for _ in range(wanted):
            like = self.choose([False, True]) and initial
            kind = self.choose(initial).kind if like else None
            value = scope.pick(partial(is_of, kind)) if kind else scope.pick()
            initial += [] if value is None else [value]
        inner = [Typed(self.fresh("c"), v.dtype, v.dims) for v in initial]
        body.own += inner
        body.carried = inner
        return initial, inner

    def _following(self, body: Scope, carried: Sequence[Typed]) -> list[Typed]:
        """The next values: the old ones, in whatever order, or what the body makes of them."""
        outputs: list[Typed] = []
        for own in carried:
            fits = [v for v in body.values if v.kind == own.kind and not v.name.startswith(UNREAD)]
            old = [v for v in carried if v.kind == own.kind]
            made = [v for v in fits if v in body.own and v not in carried]
            updates = [v for v in made if own.name in body.made.get(v, ())]
            value = self.choose(self.choose([g for g in (fits, old, made, updates, updates, updates) if g]))
            outputs.append(self._output(body, value, outputs))
        return outputs

    def _rows(self, body: Scope, taken: Sequence[Typed], known: Sequence[Typed]) -> list[Typed]:
        """Rows: any value whose size does not change from one iteration to the next."""
        sizes = {d for v in known for d in v.dims}
        outputs: list[Typed] = []
        for _ in range(self.choose([0, 1, 1, 2, 3])):
            steady = [v for v in body.own if all(not str(d).startswith("?") or d in sizes for d in v.dims)]
            steady = [v for v in steady if not v.name.startswith(UNREAD)]
            old = [v for v in steady if v in body.carried or {*body.made.get(v, ())} & {c.name for c in body.carried}]
            value = self.choose(self.choose([g for g in (old, old, steady, known) if g]))
            if value is not None:
                outputs.append(self._output(body, value, [*taken, *outputs]))
        return outputs

    def loop(self, scope: Scope) -> None:
        body = scope.inside()
        trip, running = Typed(self.fresh("i"), INT64, ()), Typed(self.fresh("go"), BOOL, ())
        body.trip = trip
        initial, inner = self._carried(scope, body, 4)
        start = (
            scope.pick(lambda v: numeric(v) and len(v.dims) > 0) if self.choose([True, False, False, False]) else None
        )
        self._steps(body)
        goes_on = self._handed_on(body, self.condition(body) if self.choose([True, False, False]) else running)
        outputs = self._following(body, inner)
        finals = [Typed(self.fresh("final"), v.dtype, v.dims) for v in inner]
        if start is not None:
            old = Typed(self.fresh("grows"), start.dtype, (self.unknown(), *start.dims[1:]))
            more = body.pick(lambda v: v.dtype == start.dtype and v.dims[1:] == start.dims[1:] and len(v.dims) > 0)
            pair = [old, old if more is None else more]
            new = body.add("Concat", pair, (self.unknown(), *start.dims[1:]), start.dtype, axis=0)
            initial, inner, outputs = [*initial, start], [*inner, old], [*outputs, new]
            finals.append(Typed(self.fresh("final"), start.dtype, (self.unknown(), *start.dims[1:])))
        rows = self._rows(body, outputs, [v for v in scope.values if not v.name.startswith(UNREAD)])
        stacked = [Typed(self.fresh(_rows_name(r)), r.dtype, (self.unknown(), *r.dims)) for r in rows]
        limits = [v.name for v in scope.values if v.kind == (INT64, ()) and v.name.startswith("m")]
        limit = self.choose([*limits, scope.constant(self.choose([0, 1, 2, 3, 4]))])
        start_condition = self.choose(["", "", self.condition(scope).name])
        graph = _graph("loop", body, [trip, running, *inner], [goes_on, *outputs, *rows])
        names = [v.name for v in (*finals, *stacked)]
        scope.nodes.append(
            helper.make_node("Loop", [limit, start_condition, *(v.name for v in initial)], names, body=graph)
        )
        scope.own += [*finals, *stacked]

    def scan(self, scope: Scope) -> None:
        length = self.choose(["n", 3])
        options = [v for v in scope.values if length in v.dims and not v.name.startswith(UNREAD)]
        if not options:
            return
        body = scope.inside()
        sequences = [self.choose(options) for _ in range(self.choose([1, 1, 2]))]
        axes = [self.choose([a for a, d in enumerate(v.dims) if d == length]) for v in sequences]
        elements = [
            Typed(self.fresh("e"), v.dtype, (*v.dims[:a], *v.dims[a + 1 :]))
            for v, a in zip(sequences, axes, strict=True)
        ]
        initial, inner = self._carried(scope, body, 3)
        body.own += elements
        self._steps(body)
        outputs = self._following(body, inner)
        rows = self._rows(body, outputs, [v for v in scope.values if not v.name.startswith(UNREAD)])
        out_axes = [self.choose(range(len(r.dims) + 1)) for r in rows]
        stacked = [
            Typed(self.fresh(_rows_name(r)), r.dtype, (*r.dims[:a], length, *r.dims[a:]))
            for r, a in zip(rows, out_axes, strict=True)
        ]
        finals = [Typed(self.fresh("final"), v.dtype, v.dims) for v in inner]
        attributes: dict[str, Any] = {
            "num_scan_inputs": len(sequences),
            "scan_input_axes": axes,
            "scan_input_directions": [self.choose([0, 1]) for _ in sequences],
        }
        if rows:
            attributes["scan_output_axes"] = out_axes
            attributes["scan_output_directions"] = [self.choose([0, 1]) for _ in rows]
        graph = _graph("scan", body, [*inner, *elements], [*outputs, *rows])
        inputs, names = [v.name for v in (*initial, *sequences)], [v.name for v in (*finals, *stacked)]
        scope.nodes.append(helper.make_node("Scan", inputs, names, body=graph, **attributes))
        scope.own += [*finals, *stacked]


def _rows_name(row: Typed) -> str:
    """Rows whose own size only the run knows are read by nobody: without an iteration it could be any."""
    return UNREAD if any(str(d).startswith("?") for d in row.dims) else "rows"


def _graph(name: str, scope: Scope, inputs: Sequence[Typed], outputs: Sequence[Typed]) -> onnx.GraphProto:
    return helper.make_graph(scope.nodes, name, [v.info() for v in inputs], [v.info() for v in outputs])


def _product(dims: Dims) -> int | str:
    """``n*3``: equal words are equal sizes."""
    known = 1
    symbols = sorted(str(d) for d in dims if isinstance(d, str))
    for d in dims:
        known *= d if isinstance(d, int) else 1
    if not symbols:
        return known
    return "*".join([*symbols, *([str(known)] if known != 1 else [])])


def drawn_model(choose: Choose) -> tuple[onnx.ModelProto, list[Feeds]]:
    """A model with at least one loop, and requests of several sizes and numbers of iterations."""
    maker = Maker(choose)
    scope = Scope(maker)
    inputs = [Typed("m", INT64, ()), Typed("p", BOOL, ())]
    for i in range(choose([1, 2, 3])):
        inputs.append(Typed(f"x{i}", choose([FLOAT, INT64, INT64, INT32]), choose(SHAPES)))
    scope.own += inputs
    for _ in range(choose([0, 0, 1, 2])):
        maker.step(scope)
    choose([maker.loop, maker.loop, maker.scan])(scope)
    if not any(n.op_type in ("Loop", "Scan") for n in scope.nodes):
        maker.loop(scope)
    for _ in range(choose([0, 1, 2])):
        maker.step(scope)
    made = [v for v in scope.own if v not in inputs]
    read = {name for n in scope.nodes for name in n.input}
    outputs = [v for v in made if v.name not in read or choose([True, False, False])] or made[-1:]
    graph = _graph("main", scope, inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)
    return model, [_request(inputs, n, trips, i) for i, (n, trips) in enumerate([(2, 3), (3, 0), (5, 1), (2, 4)])]


def _request(inputs: Sequence[Typed], n: int, trips: int, seed: int) -> Feeds:
    random = np.random.default_rng(seed)
    feeds: Feeds = {"m": np.array(trips), "p": np.array(bool(seed % 2))}
    for value in inputs[2:]:
        shape = [n if isinstance(d, str) else d for d in value.dims]
        numbers = random.integers(-9, 10, shape)
        feeds[value.name] = np.asarray(numbers, helper.tensor_dtype_to_np_dtype(value.dtype))
    return feeds
