"""Stages that take the place of a sum: Winograd's filtering, groups that share vectors, dot products of bytes,
steps side by side, Strassen's products."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from compiler_service.compiler.schedule.algorithms.byte_dots.stages import ByteProduct, DotStages, dot_stages
from compiler_service.compiler.schedule.algorithms.diagonals.stages import diagonal_stages
from compiler_service.compiler.schedule.algorithms.folded.stages import Product, folded_stages
from compiler_service.compiler.schedule.algorithms.strassen.stages import strassen_stages
from compiler_service.compiler.schedule.algorithms.winograd.stages import winograd_stages
from compiler_service.compiler.schedule.language.state import (
    Loop,
    Stage,
    State,
    byte_product_of,
    convolution_of,
    grouped_convolution_of,
    misfit,
    product_of,
)
from compiler_service.compiler.schedule.language.steps import Diagonals, DotBytes, Fold, Strassen, Winograd, WithWeights
from compiler_service.compiler.tensor_expr.tensor import Compute, Load, Tensor, loads
from shared_ir.expr import Expr, transform


def replaced(state: State, stage: Stage, step: WithWeights, weight: Tensor) -> State:
    """``stage``, a sum of products with ``weight``, as ``step`` says."""
    match step:
        case Winograd():
            return _with_winograd(state, stage, step, weight)
        case Diagonals():
            return _with_diagonals(state, stage, weight)
        case DotBytes():
            return _with_dots(state, stage, step, weight)
        case Fold():
            return _with_fold(state, stage, step, weight)
        case Strassen():
            return _with_strassen(state, stage, step, weight)


def _with_winograd(state: State, stage: Stage, step: Winograd, weight: Tensor) -> State:
    """``stage`` by minimal filtering (see the step ``Winograd``)."""
    conv = convolution_of(stage)
    asked = (step.axes, step.stride)
    if conv is None or conv.weight.tensor is not weight or (conv.weight_axes, conv.stride) != asked:
        raise misfit(f"{stage.name} is not a convolution of stride {step.stride} by {step.weight}")
    if step.chunk and (conv.is_grouped or conv.taps or conv.depth % step.chunk or not all(conv.filtered)):
        expected = f"a divisor of {conv.depth} channels of one group and one plane, filtered along both axes"
        raise misfit(f"{stage.name} has no whole chunks of channels", expected, str(step.chunk))
    made = winograd_stages(conv, step.tile, step.chunk)
    tensors = (made.data, made.rows, made.transformed, made.accumulated, made.product, made.columns, made.output)
    weights = () if made.weight_rows is None else (made.weight_rows, made.weight)
    done = _replaced(state, stage, (*weights, *tensors))
    product = replace(done.stages[made.product.name], unread=made.unread)
    transformed = {} if weights else {weight: made.weight}
    return replace(done.with_stage(product), transformed={**state.transformed, **transformed})


def _with_diagonals(state: State, stage: Stage, weight: Tensor) -> State:
    """``stage``, whose groups are narrower than a vector, by the diagonals of their matrices (see the step ``Diagonals``)."""
    conv = grouped_convolution_of(stage)
    if conv is None or conv.weight.tensor is not weight:
        raise misfit(f"{stage.name} is not a grouped convolution by {weight.name}")
    made = diagonal_stages(conv)
    return replace(
        _replaced(state, stage, (made.diagonals, made.output)), transformed={**state.transformed, weight: made.weight}
    )


def _with_dots(state: State, stage: Stage, step: DotBytes, weight: Tensor) -> State:
    """``stage``, a sum of products of bytes, by dot products of words (see the step ``DotBytes``)."""
    found = dot_stages_of(state, stage)
    if found is None or found[0].weight.tensor is not weight or found[0].position != step.axis:
        raise misfit(f"{stage.name} is not a sum of products of bytes by {weight.name}")
    product, made = found
    replaced = _replaced(state, stage, (made.output,) if made.data is None else (made.data, made.output))
    stages = {n: s for n, s in replaced.stages.items() if made.data is None or s.tensor is not product.data.tensor}
    return replace(replaced, stages=stages, transformed={**state.transformed, **made.arguments})


def dot_stages_of(state: State, stage: Stage) -> tuple[ByteProduct, DotStages] | None:
    """``stage`` as dot products of words; None where it is no sum of products of bytes, or others read these bytes."""
    product = byte_product_of(stage)
    if product is None:
        return None
    source = state.stage_of(product.data.tensor)
    made = dot_stages(product, None if source is None else source.body)
    if source is not None and source.reduction is not None:
        return None
    own = {stage.name} | ({source.name} if source is not None else set())
    others = [ld.tensor for s in state.stages.values() if s.name not in own for ld in loads(s.body)]
    if any(t in others for t in (product.data.tensor, *made.arguments)):
        return None
    return product, made


def _with_fold(state: State, stage: Stage, step: Fold, weight: Tensor) -> State:
    """The product ``stage`` with several steps of its sums side by side (see the step ``Fold``)."""
    product = _product_by(stage, step, weight)
    if product is None or step.parts < 2 or product.depth % step.parts:
        raise misfit(f"{stage.name} is not a product by {step.weight} of {step.parts} steps at a time")
    made = folded_stages(product, step.parts)
    return replace(
        _replaced(state, stage, (made.folded, made.output)), transformed={**state.transformed, weight: made.weight}
    )


def _with_strassen(state: State, stage: Stage, step: Strassen, weight: Tensor) -> State:
    """The product ``stage`` by products of quarters (see the step ``Strassen``)."""
    product = _product_by(stage, step, weight)
    if product is None or product.tensor.rank < 2 or product.depth % 2 or product.columns % (2 * step.block):
        raise misfit(
            f"{stage.name} is not a product of rows by {step.weight}, of an even number of steps and of blocks of columns"
        )
    made = strassen_stages(product, step.block)
    stages = (made.sums, made.accumulated, made.product, made.output)
    return replace(_replaced(state, stage, stages), transformed={**state.transformed, weight: made.weight})


def _product_by(stage: Stage, step: Fold | Strassen, weight: Tensor) -> Product | None:
    """``stage`` as the product by ``weight`` that ``step`` takes it for."""
    product = product_of(stage)
    fits = product is not None and product.weight.tensor is weight and product.weight_columns == step.columns
    return product if fits else None


def _replaced(state: State, stage: Stage, tensors: Sequence[Tensor]) -> State:
    """``tensors``, producers first, in place of ``stage``, whose name the last of them takes."""
    *made, output = tensors
    new = {t.name: stage_of_tensor(t) for t in made} | {stage.name: stage_of_tensor(output, stage.name)}

    def reroute(node: Expr) -> Expr | None:
        return Load(output, node.indices) if isinstance(node, Load) and node.tensor is stage.tensor else None

    stages: dict[str, Stage] = {}
    for name, other in state.stages.items():
        if other is stage:
            stages |= new
        else:
            stages[name] = replace(other, body=transform(other.body, reroute))
    return replace(state, stages=stages)


def stage_of_tensor(tensor: Tensor, name: str = "") -> Stage:
    """The stage that computes ``tensor``, with one serial loop per axis."""
    assert isinstance(tensor.op, Compute)
    return Stage(name or tensor.name, tensor, tensor.op.body, tuple(Loop(a.name) for a in tensor.op.all_axes))
