"""LSTM, GRU and RNN with random options, through the whole compiler and both executors."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import onnx
import pytest

from shared_ir.plan.program import Launch, Repeat
from tests.compiler_service.compiler.dynamic.compiled import (
    INT32,
    Feeds,
    assert_equals_onnxruntime,
    compiled,
    model,
    node,
    normal,
    tensor,
)

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
ACTIVATIONS = {
    "LSTM": [["Sigmoid", "Tanh", "Tanh"], ["HardSigmoid", "Relu", "Softsign"], ["Sigmoid", "Tanh", "Relu"]],
    "GRU": [["Sigmoid", "Tanh"], ["HardSigmoid", "Softplus"]],
    "RNN": [["Tanh"], ["Relu"], ["LeakyRelu"]],
}
SIZES = ((1, 1), (4, 3), (7, 2))
"""Steps and rows of the requests."""


def random_model(seed: int) -> tuple[onnx.ModelProto, list[Feeds]]:
    """An operator with random options; batch and number of steps are symbols, weights are constants or inputs."""
    choose = random.Random(seed)
    op, direction = choose.choice(list(GATES)), choose.choice(["forward", "reverse", "bidirectional"])
    directions, hidden, width = (
        1 + (direction == "bidirectional"),
        choose.choice([3, 8, 16, 33]),
        choose.choice([1, 5, 8]),
    )
    rows, states = GATES[op] * hidden, ["h0", "c0"] if op == "LSTM" else ["h0"]
    attributes: dict[str, Any] = {"hidden_size": hidden, "direction": direction}
    weights = {
        "W": normal(directions, rows, width) / 2,
        "R": normal(directions, rows, hidden) / 2,
        "B": normal(directions, 2 * rows) / 2,
        "P": normal(directions, 3 * hidden) / 2,
    }
    present = {
        "W",
        "R",
        *(n for n in ("B", "L", "P") if choose.random() < 0.5),
        *(states if choose.random() < 0.6 else ()),
    }
    if op != "LSTM":
        present.discard("P")
    if op == "GRU":
        attributes["linear_before_reset"] = choose.randrange(2)
    if op == "LSTM" and choose.random() < 0.3:
        attributes["input_forget"] = 1
    if choose.random() < 0.6:
        attributes["activations"] = choose.choice(ACTIVATIONS[op]) * directions
    if choose.random() < 0.3:
        attributes["clip"] = 0.5
    types = {
        "X": tensor("X", ["s", "b", width]),
        "L": tensor("L", ["b"], INT32),
        **{n: tensor(n, [directions, "b", hidden]) for n in states},
        **{n: tensor(n, list(a.shape)) for n, a in weights.items()},
    }
    names = [n if n == "X" or n in present else "" for n in ("X", "W", "R", "B", "L", *states, *("P" * (op == "LSTM")))]
    constants = {n: a for n, a in weights.items() if n in present} if choose.random() < 0.6 else {}
    outputs: dict[str, list[int | str]] = {
        "Y": ["s", directions, "b", hidden],
        "Yh": [directions, "b", hidden],
        "Yc": [directions, "b", hidden],
    }
    results = ["Y", "Yh", "Yc"][: 1 + len(states)]
    kept = [n for n in results if choose.random() < 0.7] or results
    proto = model(
        [node(op, names, [n if n in kept else "" for n in results], **attributes)],
        [t for n, t in types.items() if n in names and n not in constants],
        [tensor(n, outputs[n]) for n in kept],
        constants,
        opset=14,
    )
    requests: list[Feeds] = []
    for steps, batch in SIZES:
        feeds = {"X": normal(steps, batch, width), "L": np.random.default_rng(seed).integers(1, steps + 1, batch)}
        feeds["L"] = feeds["L"].astype(np.int32)
        feeds |= {n: normal(directions, batch, hidden, seed=i) for i, n in enumerate(states)} | weights
        requests.append({n: a for n, a in feeds.items() if n in names and n not in constants})
    return proto, requests


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_random_options(seed: int) -> None:
    assert_equals_onnxruntime(*random_model(seed))


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 130))
def test_more_random_options(seed: int) -> None:
    assert_equals_onnxruntime(*random_model(seed))


def test_a_step_is_few_launches_and_allocates_nothing() -> None:
    weights = {"W": normal(1, 32, 5), "R": normal(1, 32, 8), "B": normal(1, 64)}
    proto = model(
        [node("LSTM", ["X", "W", "R", "B"], ["Y"], hidden_size=8)],
        [tensor("X", ["s", "b", 5])],
        [tensor("Y", ["s", 1, "b", 8])],
        weights,
    )
    plan = compiled(proto).plan
    (loop,) = (s for s in plan.steps if isinstance(s, Repeat))
    kinds = [type(s).__name__ for s in loop.body]
    assert kinds.count("Launch") == 3  # gates, cell, state
    assert "Reserve" not in kinds
    before = [s for s in plan.steps if isinstance(s, Launch)]
    assert any("MatMul" in s.label for s in before)  # all inputs in one product
