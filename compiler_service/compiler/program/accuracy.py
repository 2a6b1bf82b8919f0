"""What the report says of kernels whose results differ from a plain sum of products by more than its own rounding errors."""

from __future__ import annotations

from math import prod
from typing import Any

from compiler_service.compiler.program.kernels import BuiltKernel
from compiler_service.compiler.schedule.algorithms.strassen import stages as strassen
from compiler_service.compiler.schedule.algorithms.winograd import filtering
from compiler_service.compiler.schedule.language.state import stage_names
from compiler_service.compiler.schedule.language.steps import Strassen, Winograd
from compiler_service.compiler.tensor_expr.tensor import Tensor


def describe_algorithms(built: BuiltKernel) -> tuple[dict[str, Any], ...]:
    """One entry for each algorithm of ``built`` with rounding errors of its own.

    ``error_bound`` holds for all data, relative to the sum of ``|data| * |weight|`` over all that a result is made of (a window; of
    Strassen's products a pair of rows and of columns) with the largest data in every place; ``error_typical`` is that of normally
    distributed data and weights, relative to the largest output.
    """
    definition = built.kernel.definition
    tensors = {name: tensor for tensor, name in stage_names(definition.output).items()}
    return tuple(
        {"kernel": built.kernel.name, "nodes": list(definition.nodes), **_described(step, tensors[step.weight])}
        for step in built.schedule
        if isinstance(step, Winograd | Strassen)
    )


def _described(step: Winograd | Strassen, weight: Tensor) -> dict[str, Any]:
    if isinstance(step, Strassen):
        depth = int(str(weight.shape[1 - step.columns]))
        return {
            "algorithm": "strassen <2, 2, 2; 7>",
            "error_bound": strassen.error_bound(depth),
            "error_typical": strassen.measured_error(depth),
        }
    window = [axis for axis in step.axes[-2:] if axis >= 0]
    channels, kernel = (prod(int(str(weight.shape[a])) for a in axes) for axes in (step.axes[1:-2], window[:1]))
    of_method = (step.tile, kernel, channels, step.stride, len(window))
    return {
        "algorithm": _name_of_filtering(step, kernel, len(window)),
        "error_bound": filtering.error_bound(*of_method, transforms_weights=step.chunk > 0),
        "error_typical": filtering.measured_error(*of_method, transforms_weights=step.chunk > 0),
    }


def _name_of_filtering(step: Winograd, kernel: int, axes: int) -> str:
    stride = f" of stride {step.stride}" if step.stride > 1 else ""
    tile, window = ("x".join([str(n)] * axes) for n in (step.tile, kernel))
    return f"winograd F({tile}, {window}){stride}"
