"""Models of one operator of com.microsoft, run compiled and by ONNX Runtime."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tests.conformance.compiled import run_compiled, run_onnx_runtime

Array = np.ndarray
RNG = np.random.default_rng(3)


def floats(*shape: int, scale: float = 1.0) -> Array:
    return (RNG.standard_normal(shape) * scale).astype(np.float32)


def model_of(
    op: str,
    inputs: Sequence[Array | None],
    outputs: int | Sequence[bool] = 1,
    constants: Sequence[int] = (),
    domain: str = "com.microsoft",
    standard: int = 21,
    **attributes: Any,
) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """The model and its feeds: first axes of inputs are symbolic, inputs numbered in ``constants`` are initializers."""
    names = ["" if x is None else f"x{i}" for i, x in enumerate(inputs)]
    wanted = [True] * outputs if isinstance(outputs, int) else outputs
    results = [f"y{i}" if is_wanted else "" for i, is_wanted in enumerate(wanted)]
    given = {n: x for i, (n, x) in enumerate(zip(names, inputs, strict=True)) if x is not None and i not in constants}
    held = {names[i]: inputs[i] for i in constants}
    infos = [
        helper.make_tensor_value_info(
            n,
            helper.np_dtype_to_tensor_dtype(x.dtype),
            [f"{n}_rows", *x.shape[1:]] if x.ndim > 1 and len(x) > 1 else x.shape,
        )
        for n, x in given.items()
    ]
    graph = helper.make_graph(
        [helper.make_node(op, names, results, domain=domain, name="node", **attributes)],
        op,
        infos,
        [onnx.ValueInfoProto(name=n) for n in results if n],
        [numpy_helper.from_array(x, n) for n, x in held.items() if x is not None],
    )
    opsets = [helper.make_opsetid("", standard), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10), given


def check(
    op: str,
    inputs: Sequence[Array | None],
    outputs: int | Sequence[bool] = 1,
    *,
    atol: float = 1e-5,
    steps: int = 0,
    **options: Any,
) -> None:
    """Equal to ONNX Runtime; integers up to ``steps``."""
    model, feeds = model_of(op, inputs, outputs, **options)
    for found, expected in zip(run_compiled(model, feeds), run_onnx_runtime(model, feeds), strict=True):
        assert found.dtype == expected.dtype
        assert found.shape == expected.shape
        if found.dtype.kind in "iu":
            assert np.abs(found.astype(np.int64) - expected.astype(np.int64)).max(initial=0) <= steps
        else:
            np.testing.assert_allclose(found.astype(np.float64), expected.astype(np.float64), rtol=1e-4, atol=atol)
