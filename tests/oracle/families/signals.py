"""Images, signals and attention."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.oracle.builder import RUNS, Axis, Builder, fixed
from tests.oracle.families.table import drawn_opset, drawn_type, family


@family("Resize")
def resize(b: Builder, op: str) -> None:
    drawn_opset(b, 19, 18)
    mode = b.draw.choose(("nearest", "linear", "cubic"))
    spatial = b.draw.choose((2, 1, 3)) if mode != "cubic" else 2
    shape = (b.axis(1, 3), *fixed(b.draw.choose((2, 1, 4))), *(b.axis(2, 8) for _ in range(spatial)))
    attributes: dict[str, Any] = {"mode": mode}
    attributes["coordinate_transformation_mode"] = b.draw.choose(
        (
            "half_pixel",
            "asymmetric",
            "align_corners",
            "pytorch_half_pixel",
            *(("half_pixel_symmetric",) if b.opset >= 19 else ()),
        )
    )
    if mode == "nearest":
        attributes["nearest_mode"] = b.draw.choose(("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"))
    elif b.draw.rarely():
        attributes["antialias"] = 1
    if mode == "cubic" and b.draw.flag():
        attributes["cubic_coeff_a"] = b.draw.choose((-0.75, -0.5))
        attributes["exclude_outside"] = b.draw.choose((0, 1))
    x = b.input(
        shape, drawn_type(b, op, among=("float32", "uint8", "int32") if mode == "nearest" else ("float32",)), "tame"
    )
    if b.draw.flag():
        scales = [[1.0, 1.0, *(b.draw.choose((2.0, 1.0, 0.5, 1.5, 3.0)) for _ in range(spatial))] for _ in range(RUNS)]
        scales = scales if b.draw.rarely(3) else [scales[0]] * RUNS
        b.out(b.node(op, x, "", b.parameter(scales, np.float32), **attributes))
        return
    if b.draw.flag():
        attributes["axes"] = list(range(2, 2 + spatial))
    lead = [] if "axes" in attributes else [0, 1]
    sizes = [
        [*(shape[i].extents[r] for i in lead), *(b.draw.integer(1, 12) for _ in range(spatial))] for r in range(RUNS)
    ]
    if b.draw.flag():
        sizes = [[*s[: len(lead)], *sizes[0][len(lead) :]] for s in sizes]
    if "axes" in attributes and b.draw.rarely():
        attributes["keep_aspect_ratio_policy"] = b.draw.choose(("stretch", "not_larger", "not_smaller"))
    b.out(b.node(op, x, "", "", b.parameter(sizes), **attributes))


@family("GridSample")
def grid_sample(b: Builder, op: str) -> None:
    drawn_opset(b, 22, 20)
    spatial = b.draw.choose((2, 2, 3))
    batch = b.axis(1, 3)
    image = (batch, *fixed(2), *(b.axis(2, 6) for _ in range(spatial)))
    grid = (batch, *(b.axis(1, 5) for _ in range(spatial)), *fixed(spatial))
    mode = b.draw.choose(("linear", "nearest", "cubic") if spatial == 2 else ("linear", "nearest"))
    padding = b.draw.choose((None, "zeros", "border", "reflection"))
    names = [b.input(image, values="tame"), b.input(grid, values="tame", low=-1.3, high=1.3)]
    b.out(b.node(op, *names, mode=mode, padding_mode=padding, align_corners=b.draw.choose((None, 0, 1))))


@family("AffineGrid")
def affine_grid(b: Builder, op: str) -> None:
    batch = b.axis(1, 3)
    size = [[batch.extents[r], 2, b.draw.integer(2, 5), b.draw.integer(2, 5)] for r in range(RUNS)]
    theta = b.input((batch, *fixed(2, 3)), values="tame", low=-1, high=1)
    b.out(b.node(op, theta, b.parameter(size), align_corners=b.draw.choose((None, 0, 1))))


@family("RoiAlign")
def roi_align(b: Builder, op: str) -> None:
    batch, boxes = b.axis(1, 3), b.axis(0, 4)
    shape = (batch, *fixed(2), b.axis(4, 9), b.axis(4, 9))
    numbers = b.draw.numbers()
    corners, owners = [], []
    for r in range(RUNS):
        low = numbers.uniform(0, 3, (boxes.extents[r], 2))
        corners.append(np.concatenate([low, low + numbers.uniform(1, 4, low.shape)], -1).astype(np.float32))
        owners.append(numbers.integers(0, batch.extents[r], boxes.extents[r]))
    attributes: dict[str, Any] = {"output_height": b.draw.integer(1, 3), "output_width": b.draw.integer(1, 3)}
    attributes["sampling_ratio"] = b.draw.choose((2, 0, 1))
    if b.draw.flag():
        attributes["coordinate_transformation_mode"] = b.draw.choose(("half_pixel", "output_half_pixel"))
    names = [b.input(shape, values="tame"), b.given(corners, (boxes, *fixed(4))), b.given(owners, (boxes,))]
    b.out(b.node(op, *names, mode=b.draw.choose((None, "avg")), **attributes))


@family("MaxRoiPool")
def max_roi_pool(b: Builder, op: str) -> None:
    shape = (b.axis(1, 2), *fixed(2), b.axis(5, 9), b.axis(5, 9))
    boxes = b.axis(1, 4)
    numbers = b.draw.numbers()
    rows = []
    for r in range(RUNS):
        low = numbers.integers(0, 3, (boxes.extents[r], 2))
        owner = numbers.integers(0, shape[0].extents[r], (boxes.extents[r], 1))
        rows.append(np.concatenate([owner, low, low + numbers.integers(1, 3, low.shape)], -1).astype(np.float32))
    x = b.input(shape, values="tame")
    b.out(b.node(op, x, b.given(rows, (boxes, *fixed(5))), pooled_shape=[b.draw.integer(1, 2), b.draw.integer(1, 2)]))


@family("DFT")
def fourier(b: Builder, op: str) -> None:
    b.opset = 20
    inverse, onesided = b.draw.choose(((0, 0), (1, 0), (0, 1)))
    parts = 1 if onesided else b.draw.choose((2, 1) if not inverse else (2,))
    shape = (b.axis(1, 3), b.axis(2, 9), *((b.axis(2, 5),) if b.draw.flag() else ()), *fixed(parts))
    axis = b.draw.integer(1, len(shape) - 2)
    names = [b.input(shape, values="tame"), "", b.constant(np.array(axis))]
    if b.draw.rarely(3):
        names[1] = b.constant(np.array(b.draw.integer(2, 10)))
    b.out(b.node(op, *names, inverse=inverse, onesided=onesided))


@family("STFT")
def short_fourier(b: Builder, op: str) -> None:
    frame = b.draw.choose((4, 8, 6))
    signal = b.input((b.axis(1, 3), b.axis(8, 17), *fixed(1)), values="tame")
    step = b.constant(np.array(b.draw.integer(1, 4)))
    window = b.constant(np.hanning(frame).astype(np.float32)) if b.draw.flag() else ""
    b.out(b.node(op, signal, step, window, b.constant(np.array(frame)), onesided=b.draw.choose((None, 1, 0))))


@family("HannWindow", "HammingWindow", "BlackmanWindow")
def window(b: Builder, op: str) -> None:
    size = b.parameter([np.array(b.draw.integer(2, 9)) for _ in range(RUNS)], b.draw.choose((np.int64, np.int32)))
    b.out(b.node(op, size, periodic=b.draw.choose((None, 0, 1))))


@family("MelWeightMatrix")
def mel(b: Builder, op: str) -> None:
    numbers = [np.array(v, np.int64) for v in (b.draw.integer(2, 8), b.draw.choose((16, 32)), 8192)]
    edges = [np.array(v, np.float32) for v in (0.0, 4096.0)]
    constants: list[np.ndarray] = [*numbers, *edges]
    b.out(b.node(op, *(b.constant(v) for v in constants)))


@family("RotaryEmbedding")
def rotary(b: Builder, op: str) -> None:
    b.opset = 23
    batch, steps = b.axis(1, 3), b.axis(1, 5)
    heads, width = b.draw.choose((2, 1, 3)), 2 * b.draw.choose((2, 1, 4))
    flat = b.draw.flag()
    shape = (batch, steps, *fixed(heads * width)) if flat else (batch, *fixed(heads), steps, *fixed(width))
    attributes: dict[str, Any] = {"interleaved": b.draw.choose((None, 0, 1))}
    if flat:
        attributes["num_heads"] = heads
    used = width
    if b.draw.rarely() and width > 2:
        used = attributes["rotary_embedding_dim"] = 2
    x = b.input(shape, values="tame")
    if b.draw.flag():
        tables = [b.either(fixed(9, used // 2), values="tame", low=-1, high=1) for _ in range(2)]
        numbers = b.draw.numbers()
        ids = [numbers.integers(0, 9, (batch.extents[r], steps.extents[r])) for r in range(RUNS)]
        b.out(b.node(op, x, *tables, b.given(ids, (batch, steps)), **attributes))
        return
    tables = [b.input((batch, steps, *fixed(used // 2)), values="tame", low=-1, high=1) for _ in range(2)]
    b.out(b.node(op, x, *tables, **attributes))


@family("Attention")
def attention(b: Builder, op: str) -> None:
    drawn_opset(b, 23, 24)
    batch, queries, keys = b.axis(1, 3), b.axis(1, 5), b.axis(1, 7)
    groups, per = b.draw.choose((1, 2)), b.draw.choose((1, 2))
    width, depth = b.draw.choose((4, 1, 8)), b.draw.choose((4, 3))
    flat = b.draw.flag()
    attributes: dict[str, Any] = {}
    if flat:
        attributes |= {"q_num_heads": groups * per, "kv_num_heads": groups}

    def rows(heads: int, length: Axis, size: int) -> str:
        shape = (batch, length, *fixed(heads * size)) if flat else (batch, *fixed(heads), length, *fixed(size))
        return b.input(shape, values="tame", low=-2, high=2)

    names = [rows(groups * per, queries, width), rows(groups, keys, width), rows(groups, keys, depth)]
    past = b.axis(1, 4) if b.draw.rarely() else None
    total = keys if past is None else Axis("", tuple(k + p for k, p in zip(keys.extents, past.extents, strict=True)))
    if b.draw.flag():
        whole = (batch, *fixed(groups * per), queries, total)
        mask = whole[2:] if b.draw.flag() else (b.draw.choose((batch, *fixed(1))), *fixed(1), *whole[2:])
        boolean = b.draw.rarely(3)
        names.append(b.input(mask, np.bool_ if boolean else np.float32, "tame"))
    if past is not None:
        names += [""] * (4 - len(names))
        names += [b.input((batch, *fixed(groups), past, *fixed(w)), values="tame") for w in (width, depth)]
    if b.draw.rarely(3):
        attributes["is_causal"] = 1
    if b.draw.rarely(3):
        attributes["scale"] = 0.5
    if b.draw.rarely(5):
        attributes["softcap"] = 2.0
    found = b.multi(op, names, 3 if past is not None else 1, **attributes)
    b.out(*found)
