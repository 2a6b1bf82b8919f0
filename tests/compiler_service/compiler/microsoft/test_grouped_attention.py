"""GroupQueryAttention against ONNX Runtime: drawn attributes and inputs, symbolic sizes, levels 0 and 3."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from shared_ir.errors import ErrorCode, IngotError
from tests.conformance.compiled import run_compiled, run_onnx_runtime

Array = np.ndarray
WIDTH = 16
NAMES = (
    "query", "key", "value", "past_key", "past_value", "seqlens_k", "total_sequence_length", "cos_cache", "sin_cache",
    "position_ids", "attention_bias", "head_sink", "k_scale", "v_scale", "q_norm_weight", "k_norm_weight", "query_seqlens",
)  # fmt: skip
SYMBOLS = {
    "query": "bsw", "key": "bsw", "value": "bsw", "past_key": "bnpw", "past_value": "bnpw", "seqlens_k": "b",
    "position_ids": "bs", "attention_bias": "cnst", "query_seqlens": "b",
}  # fmt: skip


def model_of(feeds: dict[str, Array], outputs: int, **attributes: Any) -> onnx.ModelProto:
    """Batch, new tokens, tokens before and columns of the bias are symbolic."""
    names = [n if n in feeds else "" for n in NAMES]
    while not names[-1]:
        names.pop()
    results = ["y", "present_key", "present_value", "output_qk"][:outputs]
    node = helper.make_node("GroupQueryAttention", names, results, name="node", domain="com.microsoft", **attributes)
    infos = []
    for name, x in feeds.items():
        letters = SYMBOLS.get(name, "w" * x.ndim)
        shape = [
            n if letter in "nw" or (letter, n) == ("c", 1) else letter
            for letter, n in zip(letters, x.shape, strict=True)
        ]
        infos.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), shape))
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in results]
    graph = helper.make_graph([node], "grouped", infos, values)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


class Drawn:
    """Inputs and attributes of one call."""

    def __init__(self, seed: int, **forced: Any) -> None:
        self.rng = rng = np.random.default_rng(seed)
        self.heads, self.groups = ((4, 2), (2, 2), (3, 1))[rng.integers(3)]
        self.is_prompt = bool(rng.integers(2))
        self.batch = int(rng.integers(1, 3))
        self.before = 0 if self.is_prompt else int(rng.integers(1, 6))
        self.own = int(rng.integers(2, 7)) if self.is_prompt or self.batch == 1 else 1
        self.total = self.own + self.before
        self.attributes: dict[str, Any] = {"num_heads": self.heads, "kv_num_heads": self.groups}
        self.outputs = 3
        self._choose()
        self.attributes |= forced
        self.feeds = self._operands()

    def _choose(self) -> None:
        rng = self.rng
        choices: dict[str, tuple[Any, ...]] = {
            "causal": (1, 0),
            "scale": (0.0, 0.4),
            "softcap": (0.0, 3.0),
            "smooth_softmax": (-1, 0, 1),
            "do_rotary": (0, 1),
            "rotary_interleaved": (0, 1),
            "qk_output": (0, 1, 2),
        }
        for name, values in choices.items():
            if rng.integers(2):
                self.attributes[name] = values[rng.integers(len(values))]
        if self.attributes.get("causal", 1) and rng.integers(2):
            self.attributes["local_window_size"] = int(rng.integers(1, 6))

    def _floats(self, *shape: int) -> Array:
        return self.rng.standard_normal(shape).astype(np.float32)

    def _operands(self) -> dict[str, Array]:
        rng, b, s = self.rng, self.batch, self.own
        widths: tuple[tuple[str, int], ...]
        if rng.integers(3):
            widths = (("query", self.heads), ("key", self.groups), ("value", self.groups))
        else:
            widths = (("query", self.heads + 2 * self.groups),)
        found = {name: self._floats(b, s, n * WIDTH) for name, n in widths}
        room = (self.before, self.total + int(rng.integers(3)))[rng.integers(2)]
        found |= {n: self._floats(b, self.groups, room, WIDTH) for n in ("past_key", "past_value")}
        found["seqlens_k"] = np.full(b, self.total - 1, np.int32)
        found["total_sequence_length"] = np.array(self.total, np.int32)
        if self.attributes.get("do_rotary"):
            found |= {n: self._floats(32, WIDTH // 2) for n in ("cos_cache", "sin_cache")}
            if rng.integers(2):
                found["position_ids"] = rng.integers(0, 20, (b, s))
        if rng.integers(2):
            rows, heads = (b, 1)[rng.integers(2)], (self.heads, 1)[rng.integers(2)]
            found["attention_bias"] = self._floats(rows, heads, s, self.total)
        if rng.integers(2):
            found["head_sink"] = self._floats(self.heads)
        return found


def compare(drawn: Drawn, level: int) -> None:
    """All outputs equal to those of ONNX Runtime; of the cache, the rows that hold tokens."""
    outputs = 4 if drawn.attributes.get("qk_output") else 3
    model = model_of(drawn.feeds, outputs, **drawn.attributes)
    found, expected = run_compiled(model, drawn.feeds, level), run_onnx_runtime(model, drawn.feeds)
    for index, (own, other) in enumerate(zip(found, expected, strict=True)):
        assert own.dtype == other.dtype
        assert own.shape == other.shape
        held = slice(0, drawn.total if index in (1, 2) else None)
        np.testing.assert_allclose(own[:, :, held], other[:, :, held], rtol=1e-4, atol=1e-5)


def floats(*shape: int) -> Array:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


def call(own: int, room: int, total: int, batch: int = 1, **more: Array) -> dict[str, Array]:
    """Four heads of queries, two of keys; ``room`` rows in the cache."""
    found = {"query": floats(batch, own, 4 * WIDTH)}
    found |= {n: floats(batch, own, 2 * WIDTH) for n in ("key", "value")}
    found |= {n: floats(batch, 2, room, WIDTH) for n in ("past_key", "past_value")}
    lengths = {"seqlens_k": np.full(batch, total - 1, np.int32), "total_sequence_length": np.array(total, np.int32)}
    return found | lengths | more


GROUPED = {"num_heads": 4, "kv_num_heads": 2}


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("drawn", [f"{seed} at level {level}" for seed in range(16) for level in (0, 3)])
def test_drawn_calls(drawn: str) -> None:
    seed, level = (int(word) for word in drawn.split(" at level "))
    compare(Drawn(seed), level)


def resident(total: int, room: int, window: int) -> int:
    """How many tokens a windowed cache keeps, as the documentation of the operator says."""
    dropped = room - window + 1
    return total if total <= room else total - dropped * -(-(total - room) // dropped)


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("level", [0, 3])
@pytest.mark.parametrize("room", [3, 5])
def test_a_windowed_cache_step_by_step(room: int, level: int) -> None:
    """A prompt that is longer than the cache, then a token, two and a token."""
    window, total = 3, 0
    past = call(1, room, 1)
    cache = {n: past[n] for n in ("past_key", "past_value")}
    for own in (7, 1, 2, 1):
        total += own
        feeds = call(own, room, total, 1, **cache) | {"attention_bias": floats(1, 4, own, total)}
        attributes = {**GROUPED, "local_window_size": window, "sliding_window_cache": 1, "softcap": 4.0}
        model = model_of(feeds, 3, **attributes)
        found, expected = run_compiled(model, feeds, level), run_onnx_runtime(model, feeds)
        held = resident(total, room, window)
        np.testing.assert_allclose(found[0], expected[0], rtol=1e-4, atol=1e-5)
        for own_cache, other in zip(found[1:], expected[1:], strict=True):
            assert own_cache.shape == other.shape
            np.testing.assert_array_equal(own_cache[:, :, :held], other[:, :, :held])
        cache = {"past_key": expected[1], "past_value": expected[2]}


@pytest.mark.slow
def test_a_cache_that_is_smaller_than_its_window_ends_the_run() -> None:
    feeds = call(1, 2, 1)
    model = model_of(feeds, 3, **GROUPED, local_window_size=3, sliding_window_cache=1)
    with pytest.raises(IngotError, match="room for at least local_window_size"):
        run_compiled(model, feeds, 0)


@pytest.mark.slow
@pytest.mark.parametrize("epsilons", [{}, {"qk_norm_epsilon": 0.3}, {"q_norm_epsilon": 0.2, "k_norm_epsilon": 0.7}])
def test_norms_of_queries_and_keys(epsilons: dict[str, float]) -> None:
    """ONNX Runtime's processor kernel leaves them out: equal to the same call behind norms."""
    weights = {"q_norm_weight": floats(WIDTH), "k_norm_weight": floats(WIDTH)[::-1].copy()}
    tables = {n: floats(32, WIDTH // 2) for n in ("cos_cache", "sin_cache")}
    feeds = call(2, 3, 5, 1, **tables)
    common = epsilons.get("qk_norm_epsilon", 1e-6)
    before = dict(feeds)
    for name, weight, key in (("query", "q_norm_weight", "q"), ("key", "k_norm_weight", "k")):
        x = feeds[name].reshape(*feeds[name].shape[:2], -1, WIDTH)
        mean = (x * x).mean(-1, keepdims=True) + epsilons.get(f"{key}_norm_epsilon", common)
        before[name] = (x / np.sqrt(mean) * weights[weight]).reshape(feeds[name].shape).astype(np.float32)
    model = model_of(feeds | weights, 3, **GROUPED, do_rotary=1, **epsilons)
    plain = model_of(before, 3, **GROUPED, do_rotary=1)
    for own, other in zip(run_compiled(model, feeds | weights), run_onnx_runtime(plain, before), strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_of_the_positions_of_a_prompt_the_first_one_counts() -> None:
    tables = {n: floats(32, WIDTH // 2) for n in ("cos_cache", "sin_cache")}
    places = np.array([[3, 9, 1, 2], [5, 5, 5, 5]])
    feeds = call(4, 0, 4, batch=2, position_ids=places, **tables)
    model = model_of(feeds, 3, **GROUPED, do_rotary=1)
    for own, other in zip(run_compiled(model, feeds), run_onnx_runtime(model, feeds), strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("field", "attributes", "more"),
    [
        ("local_window_size", {"local_window_size": 2, "causal": 0}, {}),
        ("local_window_size", {"local_window_size": 0}, {}),
        ("sliding_window_cache", {"sliding_window_cache": 1}, {}),
        ("qk_output", {"qk_output": 1}, {}),
        ("qk_output", {"qk_output": 3}, {}),
        ("kv_cache_bit_width", {"kv_cache_bit_width": 8}, {}),
        ("k_quant_type", {"k_quant_type": "PER_TENSOR"}, {}),
        ("k_scale", {}, {"k_scale": floats(1)}),
        ("query_seqlens", {}, {"query_seqlens": np.ones(1, np.int32)}),
        ("q_norm_weight", {}, {"q_norm_weight": floats(WIDTH)}),
        ("q_norm_epsilon", {"q_norm_epsilon": -1.0}, {n: floats(WIDTH) for n in ("q_norm_weight", "k_norm_weight")}),
    ],
)
def test_what_is_left_out_is_refused_by_name(field: str, attributes: dict[str, Any], more: dict[str, Array]) -> None:
    feeds = call(2, 0, 2, 1, **more)
    with pytest.raises(IngotError) as caught:
        run_compiled(model_of(feeds, 3, **GROUPED, **attributes), feeds, 0)
    assert (caught.value.code, caught.value.field) == (ErrorCode.UNSUPPORTED_ATTRIBUTE, field)
    assert "node" in caught.value.node
    assert caught.value.expected
    assert caught.value.remedy
