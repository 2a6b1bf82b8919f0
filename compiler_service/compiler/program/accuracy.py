"""What the report says of kernels whose results differ from a plain sum of products by more than its own rounding errors."""

from __future__ import annotations

from typing import Any

from compiler_service.compiler.program.kernels import BuiltKernel
from compiler_service.compiler.schedule.language.algorithm import AlgorithmStep
from compiler_service.compiler.schedule.language.state import stage_names


def describe_algorithms(built: BuiltKernel) -> tuple[dict[str, Any], ...]:
    """One entry for each algorithm of ``built`` with rounding errors of its own.

    ``error_bound`` holds for all data, relative to the sum of ``|data| * |weight|`` over all that a result is made of (a window; of
    Strassen's products a pair of rows and of columns) with the largest data in every place; ``error_typical`` is that of normally
    distributed data and weights, relative to the largest output.
    """
    definition = built.kernel.definition
    tensors = {name: tensor for tensor, name in stage_names(definition.output).items()}
    steps = (step for step in built.schedule if isinstance(step, AlgorithmStep))
    found = (step.rounding(tensors[step.weight]) for step in steps)
    return tuple(
        {
            "kernel": built.kernel.name,
            "nodes": list(definition.nodes),
            "algorithm": rounding.algorithm,
            "error_bound": rounding.error_bound,
            "error_typical": rounding.error_typical,
        }
        for rounding in found
        if rounding is not None
    )
