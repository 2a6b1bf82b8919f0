"""Operators that give the same elements in the same order another shape."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from compiler_service.compiler.tensor_expr.axes import normal_axes
from compiler_service.compiler.tensor_expr.broadcast import Pairs, must_equal
from compiler_service.compiler.tensor_expr.layout import Layout
from compiler_service.compiler.tensor_expr.meaning.known import known_dims
from compiler_service.compiler.tensor_expr.operator import Operator
from compiler_service.compiler.tensor_expr.operators.chosen_axes import ChosenAxes
from compiler_service.compiler.tensor_expr.refusal import mismatch
from compiler_service.compiler.tensor_expr.tensor import Tensor, compute
from shared_ir.expr import Expr, lift, select
from shared_ir.expr.dim import Dim, as_dim, dims_text, product
from shared_ir.expr.simplify import simplify


def reshaped(x: Tensor, shape: Sequence[Dim], name: str = "reshape") -> Tensor:
    """The elements of ``x`` in row-major order as ``shape``.

    The two shapes are cut where their leading products agree, so that ``[n, 12, 64] -> [n, 768]`` divides by 64 only.
    """
    before, after = product(x.shape), product(shape)
    if before != after and isinstance(before, int) and isinstance(after, int):
        raise mismatch("a reshape changes the number of elements", f"[{dims_text(x.shape)}]", f"[{dims_text(shape)}]")
    assumes = [] if before == after else [(before, after)]

    def body(*index: Expr) -> Expr:
        source: list[Expr] = []
        for inner, outer in _segments(x.shape, shape):
            flat = _ravel(index[outer], shape[outer])
            source += _unravel(flat, x.shape[inner])
        return x[tuple(source)]

    return compute(shape, body, name=name, assumes=assumes, partial=True)  # without elements nothing is read


def _segments(source: Sequence[Dim], target: Sequence[Dim]) -> Iterator[tuple[slice, slice]]:
    """Runs of axes of the two shapes that hold equally many elements, as short as they come."""
    start_s = start_t = 0
    for stop_s in range(1, len(source) + 1):
        if stop_s == len(source):
            yield slice(start_s, None), slice(start_t, None)
            return
        size = product(source[start_s:stop_s])
        for stop_t in range(start_t + 1, len(target) + 1):
            if size == product(target[start_t:stop_t]):
                yield slice(start_s, stop_s), slice(start_t, stop_t)
                start_s, start_t = stop_s, stop_t
                break


def _ravel(index: Sequence[Expr], shape: Sequence[Dim]) -> Expr:
    flat = lift(0)
    for i, extent in zip(index, shape, strict=True):
        flat = flat * extent + (i if extent != 1 else 0)
    return flat


def _unravel(flat: Expr, shape: Sequence[Dim]) -> list[Expr]:
    index: list[Expr] = []
    outermost = True
    for axis, extent in enumerate(shape):
        if extent == 1:
            index.append(lift(0))
            continue
        position = flat // lift(product(shape[axis + 1 :]))
        index.append(simplify(position if outermost else position % lift(extent)))
        outermost = False
    return index


def reshape(x: Tensor, shape: Tensor, *, allowzero: int = 0) -> Tensor:
    """0 copies an extent (unless ``allowzero``), -1 stands for what is left."""
    wanted = list(known_dims(shape, "shape"))
    if not allowzero:
        wanted = [x.shape[axis] if extent == 0 else extent for axis, extent in enumerate(wanted)]
    if -1 in wanted:
        free = wanted.index(-1)
        rest = product(d for axis, d in enumerate(wanted) if axis != free)
        wanted[free] = product(x.shape) // rest if rest != 0 else 0
    return reshaped(x, wanted)


def flatten(x: Tensor, *, axis: int = 1) -> Tensor:
    axis = axis + x.rank if axis < 0 else axis
    return reshaped(x, (product(x.shape[:axis]), product(x.shape[axis:])), name="flatten")


def squeeze(x: Tensor, axes: Tensor | None = None) -> Tensor:
    if axes is None:
        gone = ChosenAxes(x.rank, tuple(axis for axis, extent in enumerate(x.shape) if extent == 1))
    else:
        gone = ChosenAxes.of(axes, "axes", x.rank)
    pairs = must_equal(*((as_dim(select(gone.has(a), lift(d), lift(1))), 1) for a, d in enumerate(x.shape)))
    shape = gone.dropped(x.shape)
    return compute(shape, lambda *own: x[gone.index(own, [lift(0)] * x.rank)], name="squeeze", assumes=pairs)


def unsqueeze(x: Tensor, axes: Tensor) -> Tensor:
    (count,) = axes.shape if axes.rank else (1,)
    rank = x.rank + (count if isinstance(count, int) else 0)
    new = ChosenAxes.of(axes, "axes", rank)
    return compute(new.inserted(x.shape), lambda *index: x[new.others(index)], name="unsqueeze")


def transpose(x: Tensor, *, perm: tuple[int, ...] | None = None) -> Tensor:
    order = tuple(reversed(range(x.rank))) if perm is None else normal_axes(perm, x.rank)
    if len(order) != x.rank:
        raise mismatch("perm does not fit the tensor", f"{x.rank} axes", str(perm))
    return compute(
        [x.shape[axis] for axis in order],
        lambda *index: x[tuple(index[order.index(axis)] for axis in range(x.rank))],
        name="transpose",
    )


def depth_to_space(x: Tensor, *, blocksize: int, mode: str = "DCR", layout: str = "NCHW") -> Tensor:
    """Blocks of channels become ``blocksize x blocksize`` pixels.

    The block index is the slow part of the channel number in mode DCR, the fast part in CRD.
    """
    images, pixels = Layout.of(layout, x), blocksize * blocksize
    n, channels, (height, width) = images.parts(x.shape)
    _check_divides(pixels, channels)
    depth = channels // pixels

    def body(*index: Expr) -> Expr:
        i, c, (h, w) = images.parts(index)
        block = (h % blocksize) * blocksize + w % blocksize
        channel = block * depth + c if mode == "DCR" else c * pixels + block
        return x[images.arrange(i, channel, (h // blocksize, w // blocksize))]

    shape = images.arrange(n, depth, (height * blocksize, width * blocksize))
    return compute(shape, body, name="depth_to_space", assumes=_divided(pixels, channels))


def _check_divides(block: int, *extents: Dim) -> None:
    if block < 1 or any(isinstance(extent, int) and extent % block for extent in extents):
        raise mismatch("blocks do not come out even", f"multiples of {block}", dims_text(extents))


def _divided(block: int, *extents: Dim) -> Pairs:
    """That the extents are multiples of ``block``."""
    return must_equal(*((as_dim(extent % block), 0) for extent in extents))


def space_to_depth(x: Tensor, *, blocksize: int, mode: str = "DCR", layout: str = "NCHW") -> Tensor:
    """The inverse of :func:`depth_to_space`."""
    images, pixels = Layout.of(layout, x), blocksize * blocksize
    n, depth, (height, width) = images.parts(x.shape)
    _check_divides(blocksize, height, width)

    def body(*index: Expr) -> Expr:
        i, c, (h, w) = images.parts(index)
        channel, block = (c % lift(depth), c // lift(depth)) if mode == "DCR" else (c // pixels, c % pixels)
        at = (h * blocksize + block // blocksize, w * blocksize + block % blocksize)
        return x[images.arrange(i, channel, at)]

    shape = images.arrange(n, depth * pixels, (height // blocksize, width // blocksize))
    return compute(shape, body, name="space_to_depth", assumes=_divided(blocksize, height, width))


def identity(x: Tensor) -> Tensor:
    return compute(x.shape, lambda *index: x[index], name="identity")


def fixed(x: Tensor, *, extents: tuple[int, ...]) -> Tensor:
    """``x``, whose axes have to have these ``extents``; -1: whatever it has."""
    shape = tuple(own if extent < 0 else extent for own, extent in zip(x.shape, extents, strict=True))
    return compute(shape, lambda *index: x[index], name="fixed", assumes=must_equal(*zip(x.shape, shape, strict=True)))


OPERATORS = (
    Operator("Identity", identity),
    Operator("ingot.Fixed", fixed),
    Operator("Reshape", reshape),
    Operator("Flatten", flatten),
    Operator("Squeeze", squeeze),
    Operator("Unsqueeze", unsqueeze),
    Operator("Transpose", transpose),
    Operator("DepthToSpace", depth_to_space),
    Operator("SpaceToDepth", space_to_depth),
)
