"""Sequences of requests over streams: sent without waiting, and computed in their order all the same."""

from __future__ import annotations

import json
import queue
import random
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc

from runtime_service.arrays import Array
from shared_ir.dtype import DType
from shared_ir.plan.program import TensorSpec
from tests.runtime_service.toy_models import BATCH, ToyModel, ToySource, running_server, tensor, wait_until

pytestmark = pytest.mark.services
X, STATE, Y, NEXT = (TensorSpec(name, DType.FLOAT32, (BATCH, 2)) for name in ("x", "state", "y", "next"))
STEPS = 40


def digits(inputs: Mapping[str, Array]) -> dict[str, Array]:
    """What depends on the order: ``y = 3 * state + x`` modulo a prime; it takes a time that nobody knows."""
    time.sleep(random.random() / 500)
    y = np.mod(3 * inputs["state"] + inputs["x"], 997).astype(np.float32)
    return {"y": y, "next": y * 1}


def test_steps_that_are_sent_together_are_computed_in_their_order(tmp_path: Path) -> None:
    source, file = ToySource(), tmp_path / "models.json"
    source.publish("m", 1, lambda: ToyModel((X, STATE), (Y, NEXT), digits, batch=""), "stable")
    file.write_text(json.dumps({"m": {"sequence": {"state": {"state": "next"}}}}))
    with running_server(source, models_file=str(file), instances=8, max_in_flight=64) as server:
        wait_until(server.dataplane.ready)
        client, found = triton_grpc.InferenceServerClient(server.addresses["grpc"]), queue.Queue[Any]()
        client.start_stream(lambda result, error: found.put((result, error)))
        expected, states = [], dict.fromkeys((1, 2, "three"), 0.0)
        for step in range(STEPS):
            for name in states:
                x = tensor(triton_grpc, "x", np.full((1, 2), step + 1, np.float32), "FP32")
                edges = {"sequence_start": step == 0, "sequence_end": step == STEPS - 1}
                client.async_stream_infer("m", [x], sequence_id=name, **edges)
                states[name] = (3 * states[name] + step + 1) % 997
                expected.append(states[name])
        answers = [found.get(timeout=30) for _ in expected]
        client.stop_stream()
        client.close()
    assert [error for _, error in answers] == [None] * len(expected)
    assert [float(result.as_numpy("y")[0, 0]) for result, _ in answers] == expected
