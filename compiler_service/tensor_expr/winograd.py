"""Convolutions by Winograd's minimal filtering (:mod:`tensor_expr.filtering`): which ones, and the tensors that stand for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import prod

from compiler_service.tensor_expr.filtering import Filtering, Matrix, filtering
from compiler_service.tensor_expr.tensor import Axis, Compute, Load, ReduceOp, Tensor, compute, placeholder, reduce
from shared_ir.dim import Dim, as_dim
from shared_ir.dtype import DType
from shared_ir.expr import (
    Binary,
    BinaryOp,
    Expr,
    Var,
    ceil_div,
    equal,
    lift,
    logical_and,
    select,
    substitute,
    variables,
)
from shared_ir.simplify import simplify

_STRIDES = (1, 2)


@dataclass(frozen=True)
class Convolution:
    """``sum over t.., kh, kw, c of data[plane.., oh * stride + kh, ow * stride + kw, channel(oc, c)] * weight[..]``, dilation 1.

    Each plane of the data that an output sums is filtered on its own: under further taps ``t..`` (of the depth of a volume) it has
    as many channels more.

    Attributes:
        outer: axes of the output before ``oh, ow, oc``.
        taps: axes ``t..`` of the sum; places of ``plane`` hang on them and on the outer axes.
        depth: channels of the data that an output sums, those of all planes.
        group: outputs that sum the same channels; all of them where the convolution is not grouped.
        weight_axes: positions of oc, t.., c, kh, kw among the weight's axes.
    """

    tensor: Tensor
    data: Load
    weight: Load
    outer: tuple[str, ...]
    taps: tuple[Axis, ...]
    kernel: int
    stride: int
    depth: int
    group: int
    weight_axes: tuple[int, ...]

    @property
    def is_grouped(self) -> bool:
        return self.group != self.tensor.shape[-1]

    def channel(self, oc: Expr, c: Expr) -> Expr:
        """Where the data has the channel ``c`` of those that the output ``oc`` sums."""
        return oc // self.group * self.depth + c if self.is_grouped else c

    @property
    def planes(self) -> int:
        """Of the data, that an output sums."""
        return _product(self.taps)

    def place(self, channel: Expr) -> tuple[dict[Var, Expr], Expr]:
        """(taps, channel of the data) of one of ``depth`` channels."""
        if not self.taps:
            return {}, channel
        places, own = {}, self.depth // self.planes
        left, channel = channel // own, channel % own
        for axis in reversed(self.taps):
            extent = lift(axis.extent)
            places[axis.var] = left % extent
            left = left // extent
        return places, channel


def _product(axes: Sequence[Axis]) -> int:
    return prod(int(str(a.extent)) for a in axes)


def match_convolution(tensor: Tensor, data: Load, weight: Load) -> Convolution | None:
    """``tensor``, the sum of products of the two loads, as a convolution that filtering applies to, or None."""
    op = tensor.op
    reduction = op.reduction if isinstance(op, Compute) else None
    if reduction is None or reduction.op is not ReduceOp.SUM or tensor.rank < 3 or len(reduction.axes) < 3:
        return None
    *outer, oh, ow, oc = _axes_of(tensor)
    *taps, kh, kw, c = reduction.axes
    static = all(isinstance(a.extent, int) for a in (oc, *reduction.axes))
    if not static or kh.extent != kw.extent or kh.extent == 1 or len(data.indices) < 3:
        return None
    *plane, ih, iw, ic = data.indices
    inner = {a.var for a in (oh, ow, oc, kh, kw, c)}
    order = [a.var for a in (oc, *taps, c, kh, kw)]
    if any(variables(i) & inner for i in plane) or sorted(map(str, weight.indices)) != sorted(map(str, order)):
        return None
    kernel, channels, outputs = (int(str(a.extent)) for a in (kh, c, oc))
    names, axes = tuple(a.name for a in outer), tuple(weight.indices.index(v) for v in order)
    groups = (outputs,) if taps else _outputs_of_group(data.tensor.shape[-1], channels, outputs)
    depth = channels * _product(taps)
    for group, stride in ((group, stride) for group in groups for stride in _STRIDES):
        found = Convolution(tensor, data, weight, names, tuple(taps), kernel, stride, depth, group, axes)
        wanted = (oh.var * stride + kh.var, ow.var * stride + kw.var, found.channel(oc.var, c.var))
        if all(simplify(i) == simplify(w) for i, w in zip((ih, iw, ic), wanted, strict=True)):
            return found
    return None


def _outputs_of_group(channels: Dim, depth: int, outputs: int) -> Iterator[int]:
    """How many outputs a group may have where each sums ``depth`` of ``channels``: all of them, or those of whole groups."""
    yield outputs
    groups = channels // depth if isinstance(channels, int) and channels % depth == 0 else 1
    if outputs % groups == 0:
        yield outputs // groups


def _axes_of(tensor: Tensor) -> tuple[Axis, ...]:
    assert isinstance(tensor.op, Compute)
    return tensor.op.axes


@dataclass(frozen=True)
class WinogradStages:
    """The tensors that stand for a convolution, producers first.

    ``th`` and ``tw`` count tiles, ``p`` and ``q`` run over their rows and columns.

    Attributes:
        weight_rows: half of the transform of the weights ``[c, p, b, oc]``; None where they come transformed.
        weight: all of it ``[c, p, q, oc]``; where they come transformed, the argument ``[p, q, oc, c]``.
        data: the data with zeros so that every tile is whole ``[outer.., h, w, c]``.
        rows: half of the transform of the data ``[outer.., p, b, th, tw, c]``.
        transformed: all of it ``[outer.., p, q, th, tw, c]``; in chunks of channels ``[outer.., chunk, p, q, th, tw, c]``.
        accumulated: sums over channels of the data ``[outer.., p, q, th, tw, oc]``; over those of a chunk
            ``[outer.., p, q, th, tw, chunk, oc]``.
        product: ``[outer.., p, q, th, tw, oc]``.
        columns: half of the transform back ``[outer.., i, q, th, tw, oc]``.
        output: what the convolution computes ``[outer.., oh, ow, oc]``.
        unread: axes of ``product`` whose last tile hangs over the end, each with that of its points: the last point (infinity) adds
            to the last output of a tile alone.
    """

    weight_rows: Tensor | None
    weight: Tensor
    data: Tensor
    rows: Tensor
    transformed: Tensor
    accumulated: Tensor
    product: Tensor
    columns: Tensor
    output: Tensor
    unread: tuple[tuple[str, str], ...]


def winograd_stages(conv: Convolution, tile: int, chunk: int = 0) -> WinogradStages:
    """``conv`` by F(tile x tile). Where ``chunk`` is not 0 its weights are transformed here, and so many channels of the data, a
    divisor of their number, are summed at a time (of one plane alone); else its weights come transformed."""
    name, shape = conv.tensor.name, conv.tensor.shape
    f = filtering(tile, conv.kernel, conv.stride)
    f = f.with_plain_weights() if chunk else f
    *outer, height, width, channels = shape
    tiles = [as_dim(ceil_div(lift(n), tile)) for n in (height, width)]
    data = _whole_tiles(conv, f, tiles)
    oc, size, rank = conv.weight.tensor.shape[conv.weight_axes[0]], f.size, len(outer)

    def stage(suffix: str, first: int, last: Dim, names: Sequence[str], body: Callable[..., Expr]) -> Tensor:
        own, axes = (*outer, first, size, *tiles, last), (*conv.outer, *names[:2], "th", "tw", names[2])
        return compute(own, body, name=f"{name}.{suffix}", axes=axes)

    def rows_body(*i: Expr) -> Expr:
        p, b, th, tw, c = i[rank:]
        first, column = th * (tile * conv.stride), tw * (tile * conv.stride) + b
        return _combination(f.data, p, [data[(*i[:rank], first + a, column, c)] for a in range(size)])

    def transformed_body(*i: Expr) -> Expr:
        return _combination(f.data, i[rank + 1], [rows[(*i[: rank + 1], b, *i[rank + 2 :])] for b in range(size)])

    def columns_body(*i: Expr) -> Expr:
        return _combination(f.output, i[rank], [product[(*i[:rank], p, *i[rank + 1 :])] for p in range(size)])

    def output_body(*i: Expr) -> Expr:
        h, w, o = i[rank:]
        terms = [columns[(*i[:rank], h % tile, q, h // tile, w // tile, o)] for q in range(size)]
        return _combination(f.output, w % tile, terms)

    rows = stage("rows", size, data.shape[-1], ("p", "b", "c"), rows_body)
    if chunk:
        transformed = _in_chunks(conv, transformed_body, rows.shape, chunk)
        weight_rows, weight = _transformed_weights(conv, f)
        accumulated, product = _summed_chunks(conv, transformed, weight)
    else:
        transformed = stage("data.transformed", size, data.shape[-1], ("p", "q", "c"), transformed_body)
        weight_rows = None
        weight = placeholder(f"{conv.weight.tensor.name}.transformed", (size, size, oc, conv.depth), data.dtype)
        accumulated = reduce(
            ReduceOp.SUM,
            (*outer, size, size, *tiles, channels),
            (conv.depth,),
            lambda *i: transformed[(*i[:-2], conv.channel(*i[-2:]))] * weight[(*i[rank : rank + 2], *i[-2:])],
            name=f"{name}.accumulated",
            axes=(*conv.outer, "p", "q", "th", "tw", "oc"),
            reduced=("c",),
        )
        product = stage("product", size, channels, ("p", "q", "oc"), lambda *i: accumulated[i])
    columns = stage("columns", tile, channels, ("i", "q", "oc"), columns_body)
    axis_names = tuple(a.name for a in _axes_of(conv.tensor))
    output = compute(shape, output_body, name=name, axes=axis_names)
    sizes = zip((("th", "p"), ("tw", "q")), (height, width), strict=True)
    unread = tuple(pair for pair, extent in sizes if isinstance(extent, int) and extent % tile)
    return WinogradStages(weight_rows, weight, data, rows, transformed, accumulated, product, columns, output, unread)


def _transformed_weights(conv: Convolution, f: Filtering) -> tuple[Tensor, Tensor]:
    """(half of the transform, all of it), output channels innermost."""
    source, name = conv.weight.tensor, f"{conv.tensor.name}.weight"
    channels = source.shape[conv.weight_axes[0]]

    def original(oc: Expr, c: Expr, kh: Expr, kw: Expr) -> Expr:
        place = dict(zip(conv.weight_axes, (oc, c, kh, kw), strict=True))
        return source[tuple(place[a] for a in range(source.rank))]

    def rows_body(*i: Expr) -> Expr:
        c, p, b, oc = i
        return _combination(f.weight, p, [original(oc, c, lift(a), b) for a in range(f.kernel)])

    def whole_body(*i: Expr) -> Expr:
        c, p, q, oc = i
        return _combination(f.weight, q, [rows[c, p, lift(b), oc] for b in range(f.kernel)])

    rows = compute((conv.depth, f.size, f.kernel, channels), rows_body, name=f"{name}.rows", axes=("c", "p", "b", "oc"))
    whole = (conv.depth, f.size, f.size, channels)
    return rows, compute(whole, whole_body, name=f"{name}.transformed", axes=("c", "p", "q", "oc"))


def _in_chunks(conv: Convolution, whole: Callable[..., Expr], shape: Sequence[Dim], chunk: int) -> Tensor:
    """The transformed data ``whole`` of ``shape``, the channels of a chunk together: what is multiplied at a time lies in order."""
    rank = len(conv.outer)

    def body(*i: Expr) -> Expr:
        *place, c = i
        return whole(*place[:rank], *place[rank + 1 :], place[rank] * chunk + c)

    *others, depth = shape
    own = (*others[:rank], as_dim(lift(depth) // chunk), *others[rank:], chunk)
    axes = (*conv.outer, "chunk", "p", "q", "th", "tw", "c")
    return compute(own, body, name=f"{conv.tensor.name}.data.transformed", axes=axes)


def _summed_chunks(conv: Convolution, data: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """(sums over the chunks of the transformed data, their total)"""
    rank, channels = len(conv.outer), weight.shape[-1]
    *outer, chunk = (*data.shape[:rank], *data.shape[rank + 1 :])
    count = data.shape[rank]

    def part_body(*i: Expr) -> Expr:
        *place, n, oc, c = i
        return data[(*place[:rank], n, *place[rank:], c)] * weight[(n * chunk + c, *place[rank : rank + 2], oc)]

    axes = (*conv.outer, "p", "q", "th", "tw")
    part = reduce(
        ReduceOp.SUM,
        (*outer, count, channels),
        (chunk,),
        part_body,
        name=f"{conv.tensor.name}.accumulated",
        axes=(*axes, "chunk", "oc"),
        reduced=("c",),
    )
    total = reduce(
        ReduceOp.SUM,
        (*outer, channels),
        (count,),
        lambda *i: part[(*i[:-2], i[-1], i[-2])],
        name=f"{conv.tensor.name}.product",
        axes=(*axes, "oc"),
        reduced=("chunk",),
    )
    return part, total


def _whole_tiles(conv: Convolution, f: Filtering, tiles: Sequence[Dim]) -> Tensor:
    """The data of whole tiles: zeros where the last tiles hang over the end; planes side by side as channels."""
    source = conv.data.tensor
    shape = [as_dim(lift(n) * (f.tile * f.stride) + f.kernel - f.stride) for n in tiles]
    rank = len(conv.outer)
    outer_axes = [a.var for a in _axes_of(conv.tensor)[:rank]]

    def body(*i: Expr) -> Expr:
        taps, channel = conv.place(i[-1])
        here = dict(zip(outer_axes, i[:rank], strict=True)) | taps
        plane = tuple(substitute(index, here) for index in conv.data.indices[:-3])
        inside: Expr = lift(True, DType.BOOL)
        for index, extent in zip(i[rank:-1], source.shape[-3:-1], strict=True):
            inside = logical_and(inside, index < lift(extent))
        return select(inside, source[(*plane, *i[rank:-1], channel)], lift(0, source.dtype))

    outer = conv.tensor.shape[:rank]
    names = (*conv.outer, "h", "w", "c")
    channels = conv.depth if conv.taps else source.shape[-1]
    return compute((*outer, *shape, channels), body, name=f"{conv.tensor.name}.data", axes=names)


def _combination(matrix: Matrix, row: Expr, terms: Sequence[Expr]) -> Expr:
    """``matrix[row] . terms``, one case per row: schedules unroll the axis of ``row``."""
    found = [_row(coefficients, terms) for coefficients in matrix]
    result = found[-1]
    for i in range(len(found) - 2, -1, -1):
        result = select(equal(row, i), found[i], result)
    return result


def _row(coefficients: Sequence[Fraction], terms: Sequence[Expr]) -> Expr:
    """The sum of the terms with a coefficient other than 0, those of coefficient 1 first, even powers before odd ones: the sums
    for a point and its negative begin alike."""
    powers = list(zip(coefficients, terms, strict=True))
    own = [(c, t) for c, t in (*powers[::2], *powers[1::2]) if c]
    own.sort(key=lambda pair: pair[0] != 1)
    total: Expr | None = None
    for coefficient, term in own:
        if total is None:
            total = term if coefficient == 1 else term * float(coefficient)
        elif abs(coefficient) == 1:
            total = Binary(BinaryOp.ADD if coefficient > 0 else BinaryOp.SUB, total, term)
        else:
            total = total + term * float(coefficient)
    assert total is not None
    return total
