"""The schedule that fits every kernel: each element of the output by itself, with all that it needs."""

from __future__ import annotations

import numpy as np
import pytest

from compiler_service.compiler.schedule.default import each_by_itself
from compiler_service.compiler.schedule.language.apply import apply_schedule
from compiler_service.compiler.schedule.language.steps import Recompute
from compiler_service.compiler.schedule.lower import lower
from compiler_service.compiler.schedule.model.analysis import KernelView
from compiler_service.compiler.schedule.records import from_json, to_json
from compiler_service.compiler.tensor_expr.meaning.evaluate import evaluate
from compiler_service.compiler.tensor_expr.operators.convolution import conv_transpose
from compiler_service.compiler.tensor_expr.operators.matmul import matmul
from compiler_service.compiler.tensor_expr.operators.normalization import softmax
from compiler_service.compiler.tensor_expr.tensor import ReduceOp, Tensor, compute, placeholder, reduce
from shared_ir.dtype import DType
from shared_ir.errors import IngotError
from shared_ir.expr import Var, lift, select
from tests.cases import every
from tests.compiler_service.compiler.schedule.kernels import AVX512, arguments_of, interpreted, random_feeds
from tests.compiler_service.compiler.schedule.test_default_schedules import CASES, QUICK

N, M = Var("n"), Var("m")


def attention_of_unknown_depth() -> Tensor:
    query, key = placeholder("q", (N, M), DType.FLOAT32), placeholder("k", (M, N), DType.FLOAT32)
    return matmul(softmax(matmul(query, key)), placeholder("v", (N, M), DType.FLOAT32))


def shifted_sums() -> Tensor:
    """Sums of rows that are read where there may be none: before the first, and as often as an index of the data says."""
    x, which = placeholder("x", (N, M), DType.FLOAT32), placeholder("i", (N,), DType.INT64)
    total = reduce(ReduceOp.SUM, (N,), (M,), lambda i, k: x[i, k], name="total")
    return compute(
        (N,),
        lambda i: select(i >= 1, total[i - 1], lift(0.0, DType.FLOAT32)) + total[select(which[i] < N, which[i], 0)],
        name="y",
    )


OTHERS = {
    "attention": (attention_of_unknown_depth(), ({"n": 3, "m": 5}, {"n": 1, "m": 2}, {"n": 0, "m": 2})),
    "shifted": (shifted_sums(), ({"n": 4, "m": 3}, {"n": 1, "m": 0}, {"n": 0, "m": 3})),
    "transposed": (
        conv_transpose(
            placeholder("x", (2, 3, N), DType.FLOAT32), placeholder("w", (3, 2, 2), DType.FLOAT32), strides=(3,)
        ),
        ({"n": 5}, {"n": 1}),
    ),
}


@pytest.mark.sampled
@pytest.mark.parametrize("case", every([*OTHERS, *QUICK], quick=set(OTHERS)))
def test_it_computes_what_the_expression_says(case: str) -> None:
    output, sizes = OTHERS[case] if case in OTHERS else (CASES[case][0], CASES[case][2][:1])
    schedule = each_by_itself(KernelView.of(output, frozenset()), AVX512)
    assert from_json(to_json(schedule)) == schedule
    for symbols in sizes:
        feeds = random_feeds(output, symbols)
        (wanted,) = evaluate([output], feeds, symbols)
        for after_passes in (False, True):
            got = interpreted(output, feeds, symbols, AVX512, schedule, after_passes=after_passes)
            np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)


def test_nothing_of_unknown_size_is_kept() -> None:
    output = attention_of_unknown_depth()
    schedule = each_by_itself(KernelView.of(output, frozenset()), AVX512)
    lower("kernel", output, arguments_of(output), ["n", "m"], schedule, AVX512)


def test_other_stages_are_inlined_before() -> None:
    with pytest.raises(IngotError, match="recompute takes reductions and an output that is none"):
        apply_schedule(attention_of_unknown_depth(), (Recompute(),))
