"""The tensors that stand for a convolution by Winograd's minimal filtering (:mod:`tensor_expr.filtering`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from compiler_service.compiler.schedule.algorithms.combination import combination
from compiler_service.compiler.schedule.algorithms.winograd.convolution import Convolution, axes_of
from compiler_service.compiler.schedule.algorithms.winograd.filtering import Filtering
from compiler_service.compiler.tensor_expr.tensor import ReduceOp, Tensor, compute, placeholder, reduce
from shared_ir.dtype import DType
from shared_ir.expr import Expr, ceil_div, lift, logical_and, select, substitute
from shared_ir.expr.dim import Dim, as_dim


@dataclass(frozen=True)
class WinogradStages:
    """The tensors that stand for a convolution, producers first.

    ``th`` and ``tw`` count tiles, ``p`` and ``q`` run over their rows and columns.

    Attributes:
        weight_rows: half of the transform of the weights ``[c, p, b, oc]``; None where they come transformed.
        weight: all of it ``[c, p, q, oc]``; where they come transformed, the argument ``[p, q, oc, c]``, without the axis along
            which nothing is filtered.
        data: the data with zeros so that every tile is whole ``[outer.., h, w, c]``.
        rows: half of the transform of the data ``[outer.., p, b, th, tw, c]``.
        transformed: all of it ``[outer.., p, q, th, tw, c]``, of the tiles behind those of the output too that further parts of a
            window read; in chunks of channels ``[outer.., chunk, p, q, th, tw, c]``.
        accumulated: sums over channels of the data ``[outer.., p, q, th, tw, oc]``; over those of a chunk
            ``[outer.., p, q, th, tw, chunk, oc]``.
        product: ``[outer.., p, q, th, tw, oc]``.
        columns: half of the transform back ``[outer.., i, q, th, tw, oc]``; of a line that is read with a dilation all of it,
            ``[outer.., i, th, tw, oc]``.
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
    name, channels = conv.tensor.name, conv.tensor.shape[-1]
    both = conv.filterings(tile)
    down, across = (f.with_plain_weights() for f in both) if chunk else both
    tiles = [as_dim(ceil_div(lift(n), f.tile)) for n, f in zip(conv.image, both, strict=True)]
    data = _whole_tiles(conv, both, tiles)
    rank = len(conv.outer)
    outer = conv.tensor.shape[:rank]
    read = [as_dim(lift(n) + (f.parts - 1)) for n, f in zip(tiles, both, strict=True)]

    def stage(
        suffix: str,
        first: int,
        last: Dim,
        names: Sequence[str],
        body: Callable[..., Expr],
        count: Sequence[Dim] = tiles,
    ) -> Tensor:
        own, axes = (*outer, first, across.size, *count, last), (*conv.outer, *names[:2], "th", "tw", names[2])
        return compute(own, body, name=f"{name}.{suffix}", axes=axes)

    def rows_body(*i: Expr) -> Expr:
        p, b, th, tw, c = i[rank:]
        first, column = th * (down.tile * down.stride), tw * (across.tile * across.stride) + b
        return combination(down.data, p, [data[(*i[:rank], first + a, column, c)] for a in range(down.size)])

    def transformed_body(*i: Expr) -> Expr:
        terms = [rows[(*i[: rank + 1], b, *i[rank + 2 :])] for b in range(across.size)]
        return combination(across.data, i[rank + 1], terms)

    rows = stage("rows", down.size, data.shape[-1], ("p", "b", "c"), rows_body, read)
    if chunk:
        transformed = _in_chunks(conv, transformed_body, rows.shape, chunk)
        weight_rows, weight = _transformed_weights(conv, down)
        accumulated, product = _summed_chunks(conv, transformed, weight)
    else:
        transformed = stage("data.transformed", down.size, data.shape[-1], ("p", "q", "c"), transformed_body, read)
        weight_rows = None
        weight = _weights_of_points(conv, both)
        accumulated = _accumulated(conv, both, tiles, transformed, weight)
        product = stage("product", down.size, channels, ("p", "q", "oc"), lambda *i: accumulated[i])
    back = _back_of_phases if conv.dilation > 1 else _back
    columns, output = back(conv, (down, across), tiles, product)
    sizes = zip((("th", "p"), ("tw", "q")), conv.image, both, strict=True)
    unread = tuple(pair for pair, extent, f in sizes if isinstance(extent, int) and extent % f.tile)
    return WinogradStages(weight_rows, weight, data, rows, transformed, accumulated, product, columns, output, unread)


def _back(conv: Convolution, both: Sequence[Filtering], tiles: Sequence[Dim], product: Tensor) -> tuple[Tensor, Tensor]:
    """(half of the transform back, what the convolution computes)"""
    down, across = both
    rank, shape = len(conv.outer), conv.tensor.shape

    def columns_body(*i: Expr) -> Expr:
        return combination(down.output, i[rank], [product[(*i[:rank], p, *i[rank + 1 :])] for p in range(down.size)])

    def output_body(*i: Expr) -> Expr:
        h, w, oc = i[rank:] if conv.has_rows else (lift(0), *i[rank:])
        place = (h // down.tile, w // across.tile, oc)
        terms = [columns[(*i[:rank], h % down.tile, q, *place)] for q in range(across.size)]
        return combination(across.output, w % across.tile, terms)

    own = (*shape[:rank], down.tile, across.size, *tiles, shape[-1])
    axes = (*conv.outer, "i", "q", "th", "tw", "oc")
    columns = compute(own, columns_body, name=f"{conv.tensor.name}.columns", axes=axes)
    return columns, _output(conv, output_body)


def _back_of_phases(
    conv: Convolution, both: Sequence[Filtering], tiles: Sequence[Dim], product: Tensor
) -> tuple[Tensor, Tensor]:
    """(the transform back, phase by phase, what the convolution computes)"""
    _, across = both
    rank, shape = len(conv.outer), conv.tensor.shape

    def columns_body(*i: Expr) -> Expr:
        terms = [product[(*i[:rank], 0, q, *i[rank + 1 :])] for q in range(across.size)]
        return combination(across.output, i[rank], terms)

    def output_body(*i: Expr) -> Expr:
        *outer, w, oc = i
        phase, place = w % conv.dilation, w // conv.dilation
        return columns[(*outer, place % across.tile, phase, place // across.tile, oc)]

    own = (*shape[:rank], across.tile, *tiles, shape[-1])
    axes = (*conv.outer, "i", "th", "tw", "oc")
    columns = compute(own, columns_body, name=f"{conv.tensor.name}.columns", axes=axes)
    return columns, _output(conv, output_body)


def _output(conv: Convolution, body: Callable[..., Expr]) -> Tensor:
    return compute(conv.tensor.shape, body, name=conv.tensor.name, axes=tuple(a.name for a in axes_of(conv.tensor)))


def _accumulated(
    conv: Convolution, both: Sequence[Filtering], tiles: Sequence[Dim], data: Tensor, weight: Tensor
) -> Tensor:
    """Sums over channels, and over the parts of a window: what one reads of a tile the next reads of the tile before."""
    rank, parts = len(conv.outer), max(f.parts for f in both)

    def body(*i: Expr) -> Expr:
        *place, oc, s, c = i if parts > 1 else (*i[:-1], lift(0), i[-1])
        points, at = place[rank : rank + 2], place[rank + 2 :]
        tile = (n + s if f.parts > 1 else n for n, f in zip(at, both, strict=True))
        own = [point for point, along in zip(points, conv.filtered, strict=True) if along]
        own += [s] if parts > 1 else []
        return data[(*place[:rank], *points, *tile, conv.channel(oc, c))] * weight[(*own, oc, c)]

    return reduce(
        ReduceOp.SUM,
        (*conv.tensor.shape[:rank], *(f.size for f in both), *tiles, conv.tensor.shape[-1]),
        (parts, conv.depth) if parts > 1 else (conv.depth,),
        body,
        name=f"{conv.tensor.name}.accumulated",
        axes=(*conv.outer, "p", "q", "th", "tw", "oc"),
        reduced=("s", "c") if parts > 1 else ("c",),
    )


def _weights_of_points(conv: Convolution, both: Sequence[Filtering]) -> Tensor:
    """The weights as they come transformed, ``[p, q, oc, c]`` without the axis that is not filtered; ``[p, s, oc, c]`` for the
    parts s of a window."""
    points = [f.size for f, along in zip(both, conv.filtered, strict=True) if along]
    points += [f.parts for f in both if f.parts > 1]
    oc = conv.weight.tensor.shape[conv.weight_axes[0]]
    return placeholder(f"{conv.weight.tensor.name}.transformed", (*points, oc, conv.depth), conv.tensor.dtype)


def _transformed_weights(conv: Convolution, f: Filtering) -> tuple[Tensor, Tensor]:
    """(half of the transform, all of it), output channels innermost."""
    source, name = conv.weight.tensor, f"{conv.tensor.name}.weight"
    channels = source.shape[conv.weight_axes[0]]

    def original(oc: Expr, c: Expr, kh: Expr, kw: Expr) -> Expr:
        place = dict(zip(conv.weight_axes, (oc, c, kh, kw), strict=True))
        return source[tuple(place[a] for a in range(source.rank))]

    def rows_body(*i: Expr) -> Expr:
        c, p, b, oc = i
        return combination(f.weight, p, [original(oc, c, lift(a), b) for a in range(f.kernel)])

    def whole_body(*i: Expr) -> Expr:
        c, p, q, oc = i
        return combination(f.weight, q, [rows[c, p, lift(b), oc] for b in range(f.kernel)])

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


def _whole_tiles(conv: Convolution, both: Sequence[Filtering], tiles: Sequence[Dim]) -> Tensor:
    """The data of whole tiles: zeros where the last tiles hang over the end; planes side by side as channels."""
    source = conv.data.tensor
    shape = [as_dim(lift(n) * (f.tile * f.stride) + f.reach - f.stride) for n, f in zip(tiles, both, strict=True)]
    rank = len(conv.outer)
    outer_axes = [a.var for a in axes_of(conv.tensor)[:rank]]
    places = 2 if conv.has_rows else 1

    def body(*i: Expr) -> Expr:
        taps, channel = conv.place(i[-1])
        here = dict(zip(outer_axes, i[:rank], strict=True)) | taps
        plane = tuple(substitute(index, here) for index in conv.data.indices[: -places - 1])
        h, w = i[rank:-1]
        own = (h, w) if conv.has_rows else (w * conv.dilation + h,)
        inside: Expr = lift(True, DType.BOOL)
        for index, extent in zip(own, source.shape[-places - 1 : -1], strict=True):
            inside = logical_and(inside, index < lift(extent))
        return select(inside, source[(*plane, *own, channel)], lift(0, source.dtype))

    outer = conv.tensor.shape[:rank]
    names = (*conv.outer, "h", "w", "c")
    channels = conv.depth if conv.taps else source.shape[-1]
    return compute((*outer, *shape, channels), body, name=f"{conv.tensor.name}.data", axes=names)
