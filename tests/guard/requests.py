"""Requests that differ from a good one in one axis, one size or one number."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import onnx

from tests.oracle.case import Array, Feeds

_EXTENTS = (0, 1, 2, 3, 7, 17, 65)
_TWICE = 0.2
"""So many requests have two changes."""
_FLOATS = (float("nan"), float("inf"), -float("inf"), 0.0, -1.0, 1e30, 1e-30, 1e9, 2.5)


@dataclass(frozen=True)
class Request:
    """``change`` says what was done to the good request."""

    change: str
    feeds: Feeds


def requests(model: onnx.ModelProto, feeds: Feeds, seed: int, count: int) -> list[Request]:
    """The good request and at most ``count`` others, the same for a seed."""
    rng = random.Random(seed)
    symbols = _symbols(model)
    found = [Request("nothing", feeds)]
    for _ in range(4 * count):  # a model may have nothing that can be changed
        for request in _changed(feeds, symbols, rng):
            again = _changed(request.feeds, symbols, rng) if rng.random() < _TWICE else ()
            found += [Request(f"{request.change}, {more.change}", more.feeds) for more in again] or [request]
    return found[: count + 1]


def named_apart(model: onnx.ModelProto, feeds: Feeds) -> tuple[onnx.ModelProto, Feeds]:
    """``model`` with a name of its own for every axis of its inputs, and vectors of one element for its scalars; and its request."""
    found, given = onnx.ModelProto(), dict(feeds)
    found.CopyFrom(model)
    for value in found.graph.input:
        if value.name not in feeds or not value.type.HasField("tensor_type"):
            continue
        shape = value.type.tensor_type.shape
        if not shape.dim:
            shape.dim.add()
            given[value.name] = feeds[value.name].reshape(1)
        for axis, dim in enumerate(shape.dim):
            dim.dim_param = f"{value.name}.axis{axis}"
    for value in found.graph.output:
        value.type.tensor_type.ClearField("shape")
    del found.graph.value_info[:]
    return found, given


def _symbols(model: onnx.ModelProto) -> Mapping[str, list[tuple[str, int]]]:
    """Input and axis of every place where a symbolic size stands."""
    found: dict[str, list[tuple[str, int]]] = {}
    for value in model.graph.input:
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            if dim.dim_param or not dim.HasField("dim_value"):
                found.setdefault(dim.dim_param or f"{value.name}.{axis}", []).append((value.name, axis))
    return found


def _changed(feeds: Feeds, symbols: Mapping[str, list[tuple[str, int]]], rng: random.Random) -> Iterator[Request]:
    """One request, or none where there is nothing to change."""
    kind = rng.choice(("size", "size", "axis", "alike", "number", "number", "numbers"))
    if kind == "size" and symbols:
        name = rng.choice(sorted(symbols))
        places = [(n, a) for n, a in symbols[name] if n in feeds and a < feeds[n].ndim]
        if places:
            extent = _extent(feeds[places[0][0]].shape[places[0][1]], rng)
            yield Request(f"size {name} = {extent}", _resized(feeds, places, extent))
        return
    name = rng.choice(sorted(feeds)) if feeds else ""
    if not name:
        return
    array = feeds[name]
    if kind == "alike":
        yield from _alike(feeds, rng)
    elif kind == "axis" and array.ndim:
        axis = rng.randrange(array.ndim)
        extent = _extent(array.shape[axis], rng)
        yield Request(f"axis {axis} of {name} = {extent}", _resized(feeds, [(name, axis)], extent))
    elif kind.startswith("number") and array.size and array.dtype.kind in "iufb":
        value = _number(array, feeds, rng)
        at = Ellipsis if kind == "numbers" else tuple(rng.randrange(e) for e in array.shape)
        other = np.array(array)
        other[at] = value
        where = "everywhere" if at is Ellipsis else f"at {list(at)}"
        yield Request(f"{name} = {value} {where}", {**feeds, name: other})


def _alike(feeds: Feeds, rng: random.Random) -> Iterator[Request]:
    """Axes of one extent, of several inputs, changed together, as operands that belong to each other are: half of the time one axis of two
    inputs of one shape."""
    places = [(name, axis) for name, array in feeds.items() for axis in range(array.ndim)]
    if len(places) < 2:
        return
    name, axis = rng.choice(places)
    own = feeds[name].shape[axis]
    twins = [n for n, array in feeds.items() if n != name and array.shape == feeds[name].shape]
    if twins and rng.random() < 0.5:
        chosen = [(name, axis), (rng.choice(twins), axis)]
    else:
        chosen = [p for p in places if feeds[p[0]].shape[p[1]] == own and (p == (name, axis) or rng.random() < 0.6)]
    extent = _extent(own, rng)
    yield Request(f"{', '.join(f'axis {a} of {n}' for n, a in chosen)} = {extent}", _resized(feeds, chosen, extent))


def _extent(own: int, rng: random.Random) -> int:
    return rng.choice([*_EXTENTS, own + 1, max(own - 1, 0), 2 * own])


def _resized(feeds: Feeds, places: list[tuple[str, int]], extent: int) -> Feeds:
    found = dict(feeds)
    for name, axis in places:
        array = found[name]
        shape = (*array.shape[:axis], extent, *array.shape[axis + 1 :])
        if array.size:
            order = np.arange(extent) % array.shape[axis]
            found[name] = np.ascontiguousarray(np.take(array, order, axis))
        else:
            found[name] = np.ones(shape, array.dtype)
    return found


def _number(array: Array, feeds: Feeds, rng: random.Random) -> Array:
    """An odd number of the type of ``array``."""
    if array.dtype.kind == "b":
        return np.asarray(rng.random() < 0.5)
    if array.dtype.kind == "f":
        with np.errstate(over="ignore"):
            return np.asarray(rng.choice(_FLOATS)).astype(array.dtype)
    limits = np.iinfo(array.dtype)
    extents = [e for a in feeds.values() for e in a.shape] or [1]
    near = rng.choice(extents)
    edges = (limits.min, limits.max, -(1 << 31), 1 << 20, 1 << 31, 1 << 34, 1 << 62)
    number = rng.choice((-1, 0, 1, near, near - 1, near + 1, -near, -near - 1, *edges))
    return np.asarray(min(max(number, limits.min), limits.max), array.dtype)
