"""Priorities and preferred sizes, as clients of Triton send and see them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from tritonclient.utils import InferenceServerException

from shared_ir.errors import IngotError
from tests.runtime_service.toy_models import ToySource, running_server, scale_model, tensor, wait_until

LEVELS = {"priority_levels": 2, "default_priority_level": 2, "preferred_batch_sizes": [2, 4], "max_batch_size": 8}


@pytest.mark.parametrize("module", [triton_grpc, triton_http])
def test_clients_of_triton_name_priorities(tmp_path: Path, module: Any) -> None:
    source = ToySource()
    for name in ("m", "plain"):
        source.publish(name, 1, scale_model, "stable")
    file = tmp_path / "models.json"
    file.write_text(json.dumps({"m": LEVELS, "plain": {}}))
    with running_server(source, models_file=str(file)) as server:
        wait_until(server.dataplane.ready)
        is_grpc = module is triton_grpc
        client = module.InferenceServerClient(server.addresses["grpc" if is_grpc else "http"])
        x = tensor(module, "x", np.ones((1, 4), np.float32), "FP32")
        for priority in (0, 1, 2):
            assert client.infer("m", [x], priority=priority).as_numpy("y").tolist() == [[2.0] * 4]
        for model, priority in (("m", 3), ("plain", 1)):
            with pytest.raises(InferenceServerException, match="no such priority"):
                client.infer(model, [x], priority=priority)
        config = client.get_model_config("m", as_json=True)["config"] if is_grpc else client.get_model_config("m")
        batching = config["dynamic_batching"]
        assert [int(size) for size in batching["preferred_batch_size"]] == [2, 4]
        assert (int(batching["priority_levels"]), int(batching["default_priority_level"])) == (2, 2)
        client.close()


def test_a_preferred_size_above_the_largest_is_a_reason_not_to_start(tmp_path: Path) -> None:
    file = tmp_path / "models.json"
    file.write_text(json.dumps({"m": {"preferred_batch_sizes": [16], "max_batch_size": 8}}))
    with (
        pytest.raises(IngotError, match="at most max_batch_size, 8") as caught,
        running_server(ToySource(), models_file=str(file)),
    ):
        pass
    assert caught.value.field == f"{file}: m: preferred_batch_sizes"
