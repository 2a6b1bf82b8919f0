"""Steps that move elements, depend on data for their size, or carry graphs of their own."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper

from tests.random_models.model_maker import Entry, Maker
from tests.random_models.steps import Step

_ALL = np.iinfo(np.int64).max


def _some(make: Maker, least_rank: int = 1) -> Entry | None:
    return make.pick(lambda v: v.rank >= least_rank and v.array.size > 0)


def transpose(make: Maker) -> Entry | None:
    x = _some(make, 2)
    if x is None:
        return None
    order = list(range(x.rank))
    for last in range(x.rank - 1, 0, -1):
        other = make.integer(0, last)
        order[last], order[other] = order[other], order[last]
    return make.add("Transpose", x.name, perm=order, exact=x.exact)


def reshape(make: Maker) -> Entry | None:
    """By a constant, or by dims that the graph asks for itself."""
    x = _some(make)
    if x is None:
        return None
    if make.flag():
        shape = make.choose([[-1], [1, -1], [0, -1], [*x.shape, 1], [x.shape[0], -1]])
        return make.add("Reshape", x.name, make.constant(shape), exact=x.exact)
    dims = make.add("Shape", x.name, start=0, end=1, exact=True)
    if dims is None:
        return None
    target = make.add("Concat", dims.name, make.constant([-1]), axis=0, exact=True)
    return None if target is None else make.add("Reshape", x.name, target.name, exact=x.exact)


def axes(make: Maker) -> Entry | None:
    x = _some(make, 0)
    if x is None:
        return None
    single = [i for i, d in enumerate(x.shape) if d == 1]
    if single and make.flag():
        return make.add("Squeeze", x.name, make.constant([make.choose(single)]), exact=x.exact)
    if x.rank and make.flag():
        return make.add("Flatten", x.name, axis=make.integer(0, x.rank), exact=x.exact)
    return make.add("Unsqueeze", x.name, make.constant([make.integer(0, x.rank)]), exact=x.exact)


def repeat(make: Maker) -> Entry | None:
    x = _some(make)
    if x is None:
        return None
    if make.flag():
        return make.add("Tile", x.name, make.constant([make.integer(1, 2) for _ in x.shape]), exact=x.exact)
    shape = [make.integer(1, 3) if d == 1 else d for d in x.shape]
    more = make.choose([[], [2]])  # the reference drops a leading 1
    return make.add("Expand", x.name, make.constant([*more, *shape]), exact=x.exact)


def concat(make: Maker) -> Entry | None:
    x = _some(make)
    if x is None:
        return None
    axis = make.integer(-x.rank, x.rank - 1)
    at = axis % x.rank

    def fits(v: Entry) -> bool:
        same = v.array.dtype == x.array.dtype and v.rank == x.rank
        return same and all(m == n for i, (m, n) in enumerate(zip(v.shape, x.shape, strict=True)) if i != at)

    others = [make.pick(fits) for _ in range(make.integer(1, 2))]
    parts = [x, *(o for o in others if o is not None)]
    return make.add("Concat", *(p.name for p in parts), axis=axis, exact=all(p.exact for p in parts))


def split(make: Maker) -> Entry | None:
    x = _some(make)
    if x is None:
        return None
    axis = make.integer(0, x.rank - 1)
    first = make.integer(0, x.shape[axis])
    sizes = make.constant([first, x.shape[axis] - first])
    return make.add("Split", x.name, sizes, outputs=2, axis=axis, exact=x.exact)


def slice_(make: Maker) -> Entry | None:
    x = _some(make)
    if x is None:
        return None
    axis = make.integer(0, x.rank - 1)
    begin, end, step = make.choose(
        [(0, -1, 1), (1, _ALL, 1), (-2, _ALL, 1), (0, _ALL, 2), (-1, -_ALL, -1), (-1, -3, -2), (-1, _ALL, 1)]
    )
    return make.add("Slice", x.name, *(make.constant([v]) for v in (begin, end, axis, step)), exact=x.exact)


def pieces(make: Maker) -> Entry | None:
    """Pieces of one value beside each other, the whole among them: how exporters wrap a signal around its ends."""
    x = _some(make)
    if x is None:
        return None
    axis = make.integer(0, x.rank - 1)
    names: list[str] = []
    for _ in range(make.integer(2, 3)):
        begin, end = make.choose([(0, _ALL), (0, 1), (0, 2), (-1, _ALL), (1, -1), (1, _ALL), (1, 2), (2, 1)])
        part = make.add("Slice", x.name, *(make.constant([v]) for v in (begin, end, axis)), exact=x.exact)
        if part is not None:
            names.append(x.name if (begin, end) == (0, _ALL) else part.name)
    return make.add("Concat", *names, axis=axis, exact=x.exact) if names else None


def pad(make: Maker) -> Entry | None:
    x = make.pick(lambda v: v.array.dtype == np.float32 and 1 <= v.rank <= 4 and min(v.shape) >= 2)
    if x is None:
        return None
    mode = make.choose(["constant", "edge", "reflect"])
    low = -1 if mode == "constant" else 0
    pads = make.constant([make.integer(low, 1) for _ in range(2 * x.rank)])
    inputs = (pads, make.constant(np.array(0.5, np.float32))) if mode == "constant" else (pads,)
    return make.add("Pad", x.name, *inputs, mode=mode, exact=x.exact)


def gather(make: Maker) -> Entry | None:
    x = _some(make)
    if x is None:
        return None
    axis = make.integer(0, x.rank - 1)
    most = x.shape[axis]
    if make.flag():
        shape = make.choose([(), (2,), (2, 3)])
        indices = make.constant(np.asarray(make.random.integers(-most, most, shape), np.int64))
        return make.add("Gather", x.name, indices, axis=axis, exact=x.exact)
    indices = make.constant(make.random.integers(0, most, x.shape))
    return make.add("GatherElements", x.name, indices, axis=axis, exact=x.exact)


def scatter(make: Maker) -> Entry | None:
    """Distinct positions, so that the order does not matter."""
    x = make.pick(lambda v: v.array.dtype == np.float32 and v.rank >= 1 and v.array.size > 0)
    if x is None:
        return None
    rows = make.random.permutation(x.shape[0])[: make.integer(1, x.shape[0])]
    updates = make.weights(len(rows), *x.shape[1:])
    if make.flag():
        return make.add("ScatterND", x.name, make.constant(rows[:, None]), updates, exact=x.exact)
    indices = np.broadcast_to(rows.reshape(-1, *(1,) * (x.rank - 1)), (len(rows), *x.shape[1:])).copy()
    return make.add("ScatterElements", x.name, make.constant(indices), updates, axis=0, exact=x.exact)


def special(make: Maker) -> Entry | None:
    x = make.pick(lambda v: v.array.dtype == np.float32 and v.rank >= 2 and v.array.size > 0)
    if x is None:
        return None
    if x.rank == 4 and make.flag():
        scales = np.array([1, 1, *make.choose([(2, 2), (1.5, 2), (1, 3)])], np.float32)
        mode = make.choose(["nearest", "linear"])
        return make.add(
            "Resize", x.name, "", make.constant(scales), mode=mode, coordinate_transformation_mode="half_pixel"
        )
    return make.add("Trilu", x.name, upper=int(make.flag()), exact=x.exact)


# -- sizes that depend on data


def of_data(make: Maker) -> Entry | None:
    mask = make.pick(lambda v: v.kind == "bool" and v.rank >= 1)
    if mask is None:
        return None
    if make.flag():
        return make.add("NonZero", mask.name, exact=True)
    if mask.rank == 1:
        x = make.pick(lambda v: v.rank >= 1 and v.shape[0] == mask.shape[0])
        return None if x is None else make.add("Compress", x.name, mask.name, axis=0, exact=x.exact)
    counted = make.add("Cast", mask.name, to=TensorProto.INT64, exact=True)
    total = None if counted is None else make.add("ReduceSum", counted.name, keepdims=0, exact=True)
    if total is None or not 0 <= int(total.array) < 50:
        return None
    ends = (make.constant(np.array(0, np.int64)), make.constant(np.array(2, np.int64)))
    return make.add("Range", ends[0], total.name, ends[1], exact=True)


# -- graphs within the graph


def branch(make: Maker) -> Entry | None:
    """If over a condition of the data; both branches read a value from outside."""
    flag = make.pick(lambda v: v.kind == "bool" and v.array.size > 0)
    x = make.pick(lambda v: v.array.dtype == np.float32)
    if flag is None or x is None:
        return None
    whole = make.add("Cast", flag.name, to=TensorProto.INT32, exact=True)
    most = None if whole is None else make.add("ReduceMax", whole.name, keepdims=0, exact=True)
    condition = None if most is None else make.add("Cast", most.name, to=TensorProto.BOOL, exact=True)
    if condition is None:
        return None
    ops = [make.choose(["Relu", "Neg", "Sigmoid", "Abs"]) for _ in range(2)]
    graphs = [_graph([helper.make_node(op, [x.name], [f"{x.name}_{i}_{op}"])], (), x) for i, op in enumerate(ops)]
    return make.add("If", condition.name, then_branch=graphs[0], else_branch=graphs[1])


def loop(make: Maker) -> Entry | None:
    """A state that is carried some times. (The reference joins the steps of a scan output where it should stack them.)"""
    x = make.pick(lambda v: v.array.dtype == np.float32 and v.array.size > 0)
    if x is None:
        return None
    own = make.fresh("body")
    names = [f"{own}_{n}" for n in ("i", "go", "state", "on", "next", "half")]
    i, go, state, on, after, half = names
    nodes = [
        helper.make_node("Identity", [go], [on]),
        helper.make_node("Constant", [], [half], value_float=0.5),
        helper.make_node("Mul", [state, half], [f"{own}_m"]),
        helper.make_node(make.choose(["Add", "Sub", "Max"]), [f"{own}_m", x.name], [after]),
    ]
    element = TensorProto.FLOAT
    inputs = [
        helper.make_tensor_value_info(i, TensorProto.INT64, []),
        helper.make_tensor_value_info(go, TensorProto.BOOL, []),
        helper.make_tensor_value_info(state, element, [None] * x.rank),
    ]
    outputs = [
        helper.make_tensor_value_info(on, TensorProto.BOOL, []),
        helper.make_tensor_value_info(after, element, [None] * x.rank),
    ]
    body = helper.make_graph(nodes, own, inputs, outputs)
    trips = make.constant(np.array(make.integer(0, 3), np.int64))
    return make.add("Loop", trips, make.constant(np.array(True)), x.name, body=body)


def _graph(nodes: list[onnx.NodeProto], inputs: tuple[onnx.ValueInfoProto, ...], like: Entry) -> onnx.GraphProto:
    dtype = helper.np_dtype_to_tensor_dtype(like.array.dtype)
    output = helper.make_tensor_value_info(nodes[-1].output[0], dtype, [None] * like.rank)
    return helper.make_graph(nodes, "branch", inputs, [output])


MOVING_STEPS: tuple[Step, ...] = (
    transpose, transpose, reshape, reshape, axes, repeat, concat, concat, split, slice_, slice_, pieces, pad, gather, gather,
    scatter, special, of_data, branch, loop,
)  # fmt: skip
