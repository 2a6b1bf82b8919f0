"""Every form of attention of com.microsoft against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from shared_ir.errors import ErrorCode, IngotError
from tests.compiler_service.compiler.microsoft.foreign import RNG, Array, check, floats, model_of
from tests.conformance.compiled import run_compiled, run_onnx_runtime

pytestmark = pytest.mark.slow

B, S, N, H = 2, 5, 4, 8
D = N * H
X, WEIGHTS, BIAS = floats(B, S, D), floats(D, 3 * D, scale=0.3), floats(3 * D)
ROWS = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]], np.int32)
QUERY, KEY, VALUE = floats(B, S, D), floats(B, 7, D), floats(B, 7, D)
KEYS = np.array([[1] * 7, [1] * 3 + [0] * 4], np.int32)


@pytest.mark.parametrize(
    ("rest", "attributes"),
    [
        ([], {}),
        ([], {"unidirectional": 1}),
        ([ROWS], {}),
        ([ROWS], {"unidirectional": 1}),
        ([np.array([5, 3], np.int32)], {}),
        ([np.tril(np.ones((B, S, S), np.int32))], {}),
        ([None, None, floats(B, N, S, S)], {"scale": 0.5}),
        ([], {"qkv_hidden_sizes": [D, D, D]}),
    ],
)
def test_attention(rest: list[Array | None], attributes: dict[str, Any]) -> None:
    check("Attention", [X, WEIGHTS, BIAS, *rest], constants=[1, 2], num_heads=N, **attributes)


def test_attention_with_past() -> None:
    past = floats(2, B, N, 3, H)
    for unidirectional in (0, 1):
        inputs = [X, WEIGHTS, BIAS, None, past]
        check("Attention", inputs, outputs=2, constants=[1, 2], num_heads=N, unidirectional=unidirectional)


@pytest.mark.parametrize(
    ("inputs", "attributes"),
    [
        ([QUERY, KEY, VALUE], {}),
        ([QUERY, KEY, VALUE, BIAS], {"scale": 0.2}),
        ([QUERY, KEY, VALUE, None, KEYS], {}),
        ([QUERY, KEY, VALUE, None, None, floats(B, N, S, 7)], {}),
        ([QUERY, KEY, VALUE, None, None, floats(1, 1, S, 7)], {}),
        ([QUERY, floats(B, S, D), floats(B, S, D)], {"unidirectional": 1}),
        ([QUERY, floats(B, N, 7, H), floats(B, N, 7, H)], {}),
    ],
)
def test_multi_head_attention(inputs: list[Array | None], attributes: dict[str, Any]) -> None:
    check("MultiHeadAttention", inputs, num_heads=N, **attributes)


def test_multi_head_attention_of_packed_operands() -> None:
    """What ONNX Runtime's processor kernel leaves out: equal to the unpacked form there."""
    query, keys = floats(B, S, N, 3, H), floats(B, 7, N, 2, H)
    parts = [query[:, :, :, i].reshape(B, S, D) for i in range(3)]
    pair = [keys[:, :, :, i].reshape(B, 7, D) for i in range(2)]
    for packed, unpacked in (([query], parts), ([parts[0], keys], [parts[0], *pair])):
        model, feeds = model_of("MultiHeadAttention", packed, num_heads=N)
        plain, given = model_of("MultiHeadAttention", unpacked, num_heads=N)
        np.testing.assert_allclose(
            run_compiled(model, feeds)[0], run_onnx_runtime(plain, given)[0], rtol=1e-4, atol=1e-5
        )


def test_multi_head_attention_with_past() -> None:
    past = [floats(B, N, 3, H), floats(B, N, 3, H)]
    new = [QUERY, floats(B, S, D), floats(B, S, D)]
    check("MultiHeadAttention", [*new, None, None, None, *past], outputs=3, num_heads=N)
    check("MultiHeadAttention", new, outputs=3, num_heads=N)


TABLES = [floats(20, H // 2), floats(20, H // 2)]


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("positions", [np.array([3], np.int64), RNG.integers(0, 20, (B, S))])
def test_rotary_embedding(interleaved: int, positions: Array) -> None:
    check("RotaryEmbedding", [QUERY, positions, *TABLES], constants=[2, 3], interleaved=interleaved)
    check("RotaryEmbedding", [floats(B, N, S, H), positions, *TABLES], interleaved=interleaved)


def test_rotary_embedding_of_a_part() -> None:
    tables = [floats(20, 2), floats(20, 2)]
    check("RotaryEmbedding", [QUERY, RNG.integers(0, 20, (B, S)), *tables], num_heads=N, rotary_embedding_dim=4)


def grouped(new: int, before: int, kv: int = 2, **attributes: Any) -> None:
    width = 2 * H  # ONNX Runtime rotates heads of 16, 32, ... alone
    total = before + new
    inputs = [
        floats(B, new, N * width),
        floats(B, new, kv * width),
        floats(B, new, kv * width),
        floats(B, kv, before, width),
        floats(B, kv, before, width),
        np.full(B, total - 1, np.int32),
        np.array(total, np.int32),
        *((floats(20, width // 2), floats(20, width // 2)) if attributes.get("do_rotary") else ()),
    ]
    check("GroupQueryAttention", inputs, outputs=3, num_heads=N, kv_num_heads=kv, **attributes)


@pytest.mark.sampled
@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {"do_rotary": 1},
        {"do_rotary": 1, "rotary_interleaved": 1},
        {"local_window_size": 3},
        {"softcap": 5.0},
        {"scale": 0.3},
    ],
)
@pytest.mark.parametrize(("new", "before"), [(6, 0), (1, 4)])
def test_group_query_attention(new: int, before: int, attributes: dict[str, Any]) -> None:
    grouped(new, before, **attributes)


@pytest.mark.parametrize("kv", [1, 4])
def test_group_query_attention_with_other_groups(kv: int) -> None:
    grouped(1, 3, kv=kv, do_rotary=1)


def test_group_query_attention_of_packed_operands() -> None:
    past = [floats(B, 2, 3, H), floats(B, 2, 3, H)]
    lengths = [np.full(B, 3, np.int32), np.array(4, np.int32)]
    inputs = [floats(B, 1, (N + 4) * H), None, None, *past, *lengths]
    check("GroupQueryAttention", inputs, outputs=3, num_heads=N, kv_num_heads=2)


@pytest.mark.parametrize("mask", [[5, 4, 1, 0], [5, 3, 0, 5, 10, 0, 5, 10]])
def test_a_mask_of_bounds(mask: list[int]) -> None:
    """Ends and starts of the rows; lengths of the rows and their sums."""
    model, feeds = model_of("Attention", [X, WEIGHTS, BIAS, np.array(mask, np.int32)], constants=[1, 2], num_heads=N)
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = B
    for found, expected in zip(run_compiled(model, feeds), run_onnx_runtime(model, feeds), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("rest", [[], [None, KEYS], [None, None, floats(B, N, S, 7)]])
def test_the_products_of_multi_head_attention(rest: list[Array | None]) -> None:
    inputs = [QUERY, KEY, VALUE, *rest]
    model, feeds = model_of("MultiHeadAttention", inputs, (True, False, False, True), num_heads=N)
    for output in model.graph.output:
        output.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    for found, expected in zip(run_compiled(model, feeds), run_onnx_runtime(model, feeds), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=2e-3)


def test_a_weak_filter_of_masked_keys_does_not_uncover_the_future() -> None:
    check(
        "Attention", [X, WEIGHTS, BIAS, ROWS], constants=[1, 2], num_heads=N, mask_filter_value=-1.0, unidirectional=1
    )


@pytest.mark.parametrize(("op", "index"), [("Attention", 6), ("MultiHeadAttention", 8), ("MultiHeadAttention", 9)])
def test_buffers_that_past_and_present_share_are_refused(op: str, index: int) -> None:
    inputs: list[Array | None] = [X, WEIGHTS, BIAS] if op == "Attention" else [QUERY, KEY, VALUE]
    inputs += [None] * (index - len(inputs)) + [np.array([1], np.int32)]
    model, feeds = model_of(op, inputs, num_heads=N)
    with pytest.raises(IngotError, match="past key and value") as caught:
        run_compiled(model, feeds, 0)
    assert caught.value.code is ErrorCode.UNSUPPORTED_ATTRIBUTE
