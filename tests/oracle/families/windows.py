"""Convolutions and pools."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.oracle.builder import Builder, Shape, fixed
from tests.oracle.families.table import drawn_opset, drawn_type, family

_FLOATS = ("float32", "float64", "float16")


def _window(b: Builder, spatial: int, dilates: bool = True) -> dict[str, Any]:
    """Strides, dilations, and pads or an automatic one; the kernel is chosen beside."""
    found: dict[str, Any] = {}
    if b.draw.flag():
        found["strides"] = [b.draw.choose((1, 2, 3)) for _ in range(spatial)]
    if dilates and b.draw.rarely(3):
        found["dilations"] = [b.draw.choose((1, 2, 3)) for _ in range(spatial)]
    auto = b.draw.choose((None, None, None, "NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"))
    if auto:
        found["auto_pad"] = auto
        if auto.startswith("SAME") and "dilations" in found:
            del found["dilations"]
    if auto in (None, "NOTSET") and b.draw.flag():
        found["pads"] = [b.draw.choose((0, 1, 2)) for _ in range(2 * spatial)]
    return found


def _without_gaps(attributes: dict[str, Any], kernel: Sequence[int]) -> None:
    """Strides of at most the kernel where padding is automatic. Between windows that leave elements out, SAME asks for a negative
    padding, and each oracle, and each operator of one, makes something else of it (docs/numbers.md)."""
    if attributes.get("auto_pad", "").startswith("SAME") and "strides" in attributes:
        attributes["strides"] = [min(s, k) for s, k in zip(attributes["strides"], kernel, strict=True)]


def _image(b: Builder, spatial: int, channels: int, least: int = 5) -> Shape:
    most = max(least + 3, {1: 40, 2: 17, 3: 8}[spatial])
    return (b.axis(0, 4), *fixed(channels), *(b.axis(least, most) for _ in range(spatial)))


@family("Conv")
def conv(b: Builder, op: str) -> None:
    drawn_opset(b, 22, 11)
    dtype = drawn_type(b, op, among=_FLOATS)
    spatial = b.draw.choose((2, 2, 1, 3))
    group = b.draw.choose((1, 1, 2, 4))
    channels = group * b.draw.choose((1, 2, 3, 8))
    filters = group * b.draw.choose((1, 2, 3, 5, 16))
    kernel = [b.draw.choose((3, 1, 2, 5)) if spatial < 3 else b.draw.choose((3, 1, 2)) for _ in range(spatial)]
    attributes = _window(b, spatial)
    _without_gaps(attributes, kernel)
    dilations = attributes.get("dilations", [1] * spatial)
    least = max((k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True))
    x = b.input(_image(b, spatial, channels, least), dtype, "tame", low=-2, high=2)
    weight = b.either(fixed(filters, channels // group, *kernel), dtype, "tame", low=-2, high=2)
    names = [x, weight, *([b.either(fixed(filters), dtype, "tame")] if b.draw.flag() else [])]
    told = kernel if b.draw.flag() else None
    y = b.node(op, *names, group=group if group > 1 else None, kernel_shape=told, **attributes)
    b.out(b.node("Relu", y) if b.draw.rarely() else y)


@family("ConvTranspose")
def conv_transpose(b: Builder, op: str) -> None:
    drawn_opset(b, 22, 11)
    spatial = b.draw.choose((2, 1, 3))
    group = b.draw.choose((1, 1, 2))
    channels, filters = group * b.draw.choose((1, 2, 4)), b.draw.choose((1, 2, 3, 8))
    kernel = [b.draw.choose((3, 1, 2, 4)) for _ in range(spatial)]
    attributes = _window(b, spatial)
    _without_gaps(attributes, kernel)
    strides = attributes.get("strides", [1] * spatial)
    if b.draw.rarely():
        attributes["output_padding"] = [b.draw.integer(0, s - 1) for s in strides]
    if "pads" in attributes:
        attributes["pads"] = [min(p, 1) if kernel[i % spatial] > 2 else 0 for i, p in enumerate(attributes["pads"])]
    x = b.input(_image(b, spatial, channels, 1), values="tame", low=-2, high=2)
    names = [x, b.either(fixed(channels, filters, *kernel), values="tame", low=-2, high=2)]
    names += [b.either(fixed(group * filters), values="tame")] if b.draw.flag() else []
    b.out(b.node(op, *names, group=group if group > 1 else None, **attributes))


@family("MaxPool", "AveragePool", "LpPool")
def pool(b: Builder, op: str) -> None:
    drawn_opset(b, 22, *((19,) if op == "AveragePool" else (18,) if op == "LpPool" else (12,)))
    dtype = drawn_type(b, op, among=(*_FLOATS, "uint8", "int8"))
    spatial = b.draw.choose((2, 1, 3))
    kernel = [b.draw.choose((2, 3, 1, 4)) for _ in range(spatial)]
    attributes = _window(b, spatial)
    _without_gaps(attributes, kernel)
    if "pads" in attributes:
        attributes["pads"] = [min(p, kernel[i % spatial] // 2) for i, p in enumerate(attributes["pads"])]
    if "auto_pad" not in attributes and b.draw.rarely(3):
        attributes["ceil_mode"] = 1
    if op == "AveragePool" and b.draw.flag():
        attributes["count_include_pad"] = b.draw.choose((0, 1))
    if op == "LpPool" and b.draw.flag():
        attributes["p"] = b.draw.choose((2, 1, 3))
    dilations = attributes.get("dilations", [1] * spatial)
    least = max((k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True))
    values = b.draw.choose(("tame", "numbers")) if op == "MaxPool" else "tame"  # of NaN: docs/numbers.md
    limits = {"low": 0.25, "high": 4} if op == "LpPool" else {}
    x = b.input(_image(b, spatial, b.draw.choose((2, 1, 5)), least), dtype, values, **limits)
    outputs = 2 if op == "MaxPool" and b.draw.rarely() and values == "tame" else 1
    b.out(*b.multi(op, [x], outputs, kernel_shape=kernel, **attributes))


@family("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def global_pool(b: Builder, op: str) -> None:
    dtype = drawn_type(b, op, among=_FLOATS)
    x = b.input(_image(b, b.draw.choose((2, 1, 3)), b.draw.choose((2, 1, 5)), 1), dtype, "tame")
    b.out(b.node(op, x, p=b.draw.choose((None, 1, 2)) if op == "GlobalLpPool" else None))


@family("MaxUnpool")
def unpool(b: Builder, op: str) -> None:
    """Of what a MaxPool found."""
    spatial = b.draw.choose((2, 1))
    kernel = [2] * spatial
    shape = (b.axis(1, 3), *fixed(2), *(b.axis(2, 8, 2) for _ in range(spatial)))
    x = b.input(shape, values="distinct")
    pooled, places = b.multi("MaxPool", [x], 2, kernel_shape=kernel, strides=kernel)
    b.out(b.node(op, pooled, places, kernel_shape=kernel, strides=kernel))


@family("Col2Im")
def columns(b: Builder, op: str) -> None:
    height, width = b.draw.integer(2, 6), b.draw.integer(2, 6)
    kernel = [b.draw.integer(1, 2), b.draw.integer(1, 2)]
    stride = b.draw.choose((None, [1, 1], [2, 2]))
    count = 1
    for extent, k, s in zip((height, width), kernel, stride or (1, 1), strict=True):
        count *= (extent - k) // s + 1
    shape = (b.axis(1, 3), *fixed(2 * kernel[0] * kernel[1], count))
    b.out(b.node(op, b.input(shape, values="tame"), b.constant([height, width]), b.constant(kernel), strides=stride))


@family("DeformConv")
def deformable(b: Builder, op: str) -> None:
    channels, filters, kernel = 2 * b.draw.choose((1, 2)), b.draw.choose((1, 3)), b.draw.choose((1, 2, 3))
    out = [b.axis(1, 5), b.axis(1, 5)]
    batch = b.axis(1, 3)
    image = tuple(type(a)("" if a.name is not None else None, tuple(e + kernel - 1 for e in a.extents)) for a in out)
    offsets = (batch, *fixed(2 * kernel * kernel), *out)
    names = [
        b.input((batch, *fixed(channels), *image), values="tame"),
        b.either(fixed(filters, channels, kernel, kernel), values="tame"),
        b.input(offsets, values="tame", low=-1, high=1),
    ]
    if b.draw.flag():
        names.append(b.either(fixed(filters), values="tame"))
    b.out(b.node(op, *names, kernel_shape=[kernel, kernel], pads=[0] * 4))


@family("ConvInteger")
def conv_integer(b: Builder, op: str) -> None:
    channels, filters = b.draw.choose((1, 3, 8)), b.draw.choose((1, 4, 5))
    x = b.input(_image(b, 2, channels, 5), np.uint8, "tame", low=0, high=255)
    weight = b.either(fixed(filters, channels, 3, 3), np.uint8, "tame", low=0, high=255)
    zeros = [b.constant(np.array(b.draw.integer(0, 9), np.uint8))] if b.draw.flag() else []
    b.out(b.node(op, x, weight, *zeros, **_window(b, 2)))
