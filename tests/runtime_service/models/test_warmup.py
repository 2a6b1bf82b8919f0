"""First runs: sizes that a model accepts, and whether its rows may be computed together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from runtime_service.batching.rows import batch_symbol
from runtime_service.models.warmup import rows_mix, warm_up
from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr.dim import symbol
from shared_ir.plan.program import TensorSpec
from tests.runtime_service.toy_models import BATCH, ToyModel, fixed_model, mixing_model, scale_model, sum_model

H, W = symbol("h"), symbol("w")


def picture_model(minimum: int) -> ToyModel:
    """Takes pictures of at least ``minimum`` pixels a side."""
    x = TensorSpec("x", DType.FLOAT32, (BATCH, 3, H, W))
    y = TensorSpec("y", DType.FLOAT32, (BATCH, 3))

    def function(inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        if min(inputs["x"].shape[2:]) < minimum:
            raise IngotError(ErrorCode.INVALID_ARGUMENT, "too small")
        return {"y": inputs["x"].mean((2, 3))}

    return ToyModel((x,), (y,), function)


def test_a_size_is_searched_that_the_model_accepts() -> None:
    model = picture_model(30)
    assert warm_up(model, model.inputs, {}, "batch")
    assert len(model.runs) == 3  # 1 and 8 are too small, 32 is not
    assert not warm_up(picture_model(10_000), model.inputs, {}, "batch")
    configured = picture_model(700)
    assert warm_up(configured, configured.inputs, {"h": 700, "w": 701}, "batch")


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (scale_model(), False),
        (sum_model(), False),
        (picture_model(30), False),
        (picture_model(10_000), False),  # nothing could be tried
        (mixing_model(), True),
    ],
)
def test_rows_are_tried_out(model: ToyModel, expected: bool) -> None:
    assert rows_mix(model, model.inputs, {}, "batch") is expected


def test_models_that_give_nan_or_mix_integers() -> None:
    model = scale_model()
    model.function = lambda inputs: {"y": np.full_like(inputs["x"], np.nan)}
    assert not rows_mix(model, model.inputs, {}, "batch")
    model.function = lambda inputs: {"y": np.cumsum(inputs["x"], axis=0)}
    assert rows_mix(model, model.inputs, {}, "batch")
    model.function = lambda inputs: {"y": inputs["x"][:1]}
    assert rows_mix(model, model.inputs, {}, "batch")


def test_what_counts_as_a_batch_dim() -> None:
    scale = scale_model()
    assert batch_symbol(scale.inputs, scale.outputs) == "batch"
    fixed = fixed_model()
    assert batch_symbol(fixed.inputs, fixed.outputs) is None
    (x,), (y,) = scale.inputs, scale.outputs
    assert batch_symbol((x,), (replace(y, shape=(H, 4)),)) is None  # rows of another kind
    assert batch_symbol((x,), (replace(y, shape=(BATCH, BATCH)),)) is None  # rows against rows
    assert batch_symbol((x,), (replace(y, shape=(BATCH, BATCH + 1)),)) is None
    assert batch_symbol((x,), (replace(y, shape=()),)) is None
    assert batch_symbol((x,), (replace(y, shape=(BATCH * 2, 4)),)) is None
    assert batch_symbol((), (y,)) is None
