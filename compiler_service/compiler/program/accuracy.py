"""What the report says of kernels, and of those whose results differ from a plain sum of products by more than its own rounding
errors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from compiler_service.compiler.program.kernels import BuiltKernel
from compiler_service.compiler.program.variants import Variant
from compiler_service.compiler.schedule.language.algorithm import AlgorithmStep
from compiler_service.compiler.schedule.language.state import stage_names
from shared_ir.graph.ir import walk_graphs


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


def describe_code(variants: Sequence[Variant], built: Sequence[BuiltKernel]) -> dict[str, Any]:
    """What the report says of the kernels: how many, the ways through them, those with a plain schedule, the algorithms that cost
    accuracy, whether any draws random numbers."""
    return {
        "kernels": len(built),
        "rules": {b.kernel.name: b.rule for b in built},
        "variants": len(variants),
        "faults": [
            {"kernel": b.kernel.name, "nodes": b.kernel.definition.nodes, "reason": b.fault} for b in built if b.fault
        ],
        "algorithms": [algorithm for item in built for algorithm in describe_algorithms(item)],
        "random": any(n.op == "ingot.Uniform" for g in walk_graphs(variants[-1].module.graph) for n in g.nodes),
    }
