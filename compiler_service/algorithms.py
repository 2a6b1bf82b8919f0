"""What the report says of kernels whose results differ from a plain sum of products by more than its own rounding errors."""

from __future__ import annotations

from math import prod
from typing import Any

from compiler_service.kernels import BuiltKernel
from compiler_service.schedule.state import stage_names
from compiler_service.schedule.steps import Winograd
from compiler_service.tensor_expr.filtering import error_bound, measured_error


def describe_algorithms(built: BuiltKernel) -> tuple[dict[str, Any], ...]:
    """One entry for each algorithm of ``built`` with rounding errors of its own.

    ``error_bound`` holds for all data, relative to the largest sum over a window of ``|data| * |weight|`` with the largest data
    in every place; ``error_typical`` is that of normally distributed data and weights, relative to the largest output.
    """
    definition = built.kernel.definition
    tensors = {name: tensor for tensor, name in stage_names(definition.output).items()}
    found = []
    for step in built.schedule:
        if isinstance(step, Winograd):
            weight = tensors[step.weight]
            window = [axis for axis in step.axes[-2:] if axis >= 0]
            channels, kernel = (prod(int(str(weight.shape[a])) for a in axes) for axes in (step.axes[1:-2], window[:1]))
            of_method = (step.tile, kernel, channels, step.stride, len(window))
            found.append(
                {
                    "kernel": built.kernel.name,
                    "nodes": list(definition.nodes),
                    "algorithm": _name(step, kernel, len(window)),
                    "error_bound": error_bound(*of_method, transforms_weights=step.chunk > 0),
                    "error_typical": measured_error(*of_method, transforms_weights=step.chunk > 0),
                }
            )
    return tuple(found)


def _name(step: Winograd, kernel: int, axes: int) -> str:
    stride = f" of stride {step.stride}" if step.stride > 1 else ""
    tile, window = ("x".join([str(n)] * axes) for n in (step.tile, kernel))
    return f"winograd F({tile}, {window}){stride}"
