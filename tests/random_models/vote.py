"""Three opinions of one model: onnx.reference, ONNX Runtime, and compiled code, optimised and not."""

from __future__ import annotations

import contextlib
import copy

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator
from onnxruntime.capi.onnxruntime_pybind11_state import NotImplemented as NotImplemented_

from shared_ir.errors import ErrorCode, IngotError
from tests.conformance.compiled import run_compiled, run_onnx_runtime
from tests.oracle.vote import agree, difference
from tests.random_models.model_maker import Array

Outputs = list[Array]
LOOSEST = 1e-4
"""Where a model computes in several types on its way, all of it is held to the tolerance of float32."""


def check(model: onnx.ModelProto, feeds: dict[str, Array]) -> None:
    """Compiled code agrees with the reference or with ONNX Runtime, at every level; where both of them can, two of three do."""
    opinions = {"onnx.reference": [np.asarray(v) for v in ReferenceEvaluator(model).run(None, feeds)]}
    with contextlib.suppress(NotImplemented_):  # an operator or type that it lacks
        opinions["ONNX Runtime"] = [np.asarray(v) for v in run_onnx_runtime(model, feeds)]
    for level in (0, 3):
        own = _compiled(model, feeds, level)
        agreed = any(agree(own, other, loosest=LOOSEST) for other in opinions.values())
        assert agreed, _difference(level, own, opinions)


def _compiled(model: onnx.ModelProto, feeds: dict[str, Array], level: int) -> Outputs:
    """A symbolic extent that happens to be 1 does not broadcast: the run refuses it by name. Such a model is compiled for its sizes."""
    try:
        return run_compiled(model, feeds, level)
    except IngotError as error:
        if error.code is not ErrorCode.INVALID_ARGUMENT or " must be " not in str(error):
            raise
    return run_compiled(_of_static_sizes(model, feeds), feeds, level)


def _of_static_sizes(model: onnx.ModelProto, feeds: dict[str, Array]) -> onnx.ModelProto:
    static = copy.deepcopy(model)
    for info in static.graph.input:
        for dim, extent in zip(info.type.tensor_type.shape.dim, feeds[info.name].shape, strict=True):
            dim.dim_value = extent
    return static


def _difference(level: int, own: Outputs, opinions: dict[str, Outputs]) -> str:
    lines = [f"{name}: {difference(own, other, loosest=LOOSEST)}" for name, other in opinions.items()]
    return "\n".join([f"level {level} agrees with nobody", *lines])
