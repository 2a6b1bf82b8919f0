"""Engines in processes of their own, and a comparison from the command line to the closing line."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from bench.peers import main
from bench.process import EngineFailed, EngineProcess
from bench.worker import handle, time_runs
from tests.bench.test_bench_report import CLOSING


class Doubling:
    """An engine that needs no library."""

    def __init__(self) -> None:
        self.runs = 0

    def load(self, request: object) -> dict[str, object]:
        return {"version": "1"}

    def prepare(self, feeds: Mapping[str, np.ndarray]) -> None:
        self.feeds = feeds

    def run(self) -> None:
        self.runs += 1

    def outputs(self) -> dict[str, np.ndarray]:
        return {"y": self.feeds["x"] * 2}


def save_model(path: Path) -> None:
    """y[n, 4] = relu(x[n, 8] @ w)"""
    weight = helper.make_tensor("w", TensorProto.FLOAT, (8, 4), np.linspace(-1, 1, 32))
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Relu", ["h"], ["y"])]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 8])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 4])
    graph = helper.make_graph(nodes, "g", [x], [y], [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    onnx.save(model, path)


def test_commands(tmp_path: Path) -> None:
    engine = Doubling()
    load = {"do": "load", "model": "m", "shapes": {"x": [1]}, "dynamic": False, "threads": 1}
    assert handle(engine, load) == {"version": "1"}
    np.savez(tmp_path / "in.npz", x=np.arange(3.0))
    assert handle(engine, {"do": "run", "inputs": tmp_path / "in.npz", "outputs": tmp_path / "out.npz"}) == {}
    with np.load(tmp_path / "out.npz") as outputs:
        assert outputs["y"].tolist() == [0.0, 2.0, 4.0]
    with pytest.raises(ValueError, match="not a command"):
        handle(engine, {"do": "dance"})


def test_at_least_so_many_runs_are_timed_after_one_that_is_not() -> None:
    engine = Doubling()
    answer = time_runs(engine, 0.0, 4)
    assert len(answer["times"]) == 4
    assert engine.runs == 5


def state(process: EngineProcess) -> str:
    """One letter of /proc: R, S, T (stopped), Z."""
    return Path(f"/proc/{process._child.pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_a_process_is_stopped_between_commands_and_errors_are_told() -> None:
    with EngineProcess("nonesuch") as process:
        with pytest.raises(EngineFailed, match="there is no engine 'nonesuch'"):
            process.command("time", seconds=0.1, least=1)
        for _ in range(100):
            if state(process) == "T":
                break
            time.sleep(0.01)
        assert state(process) == "T"
        with pytest.raises(EngineFailed, match="there is no engine"):  # it answers again
            process.command("time", seconds=0.1, least=1)
        pid = process._child.pid
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_process_that_dies_says_so() -> None:
    with EngineProcess("nonesuch") as process:
        process._child.kill()
        with pytest.raises(EngineFailed, match="died with status -9"):
            process.command("time", seconds=0.1, least=1)


@pytest.mark.slow
def test_comparison_end_to_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_model(tmp_path / "tiny.onnx")
    onnx.save(
        helper.make_model(
            helper.make_graph(
                [helper.make_node("NoSuchOperator", ["x"], ["y"])],
                "g",
                [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])],
                [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])],
            )
        ),
        tmp_path / "unknown.onnx",
    )
    arguments = ["--models", str(tmp_path), "--rounds", "2", "--slice", "0.01", "--engines", "ingot,onnxruntime"]
    status = main([*arguments, "--shape", "x=3,8", "--json", str(tmp_path / "report.json")])
    lines = capsys.readouterr().out.strip().splitlines()
    assert status == 1  # of the model that nothing can run
    assert any(line.startswith("unknown: ingot fails and is left out") for line in lines)
    assert CLOSING.match(lines[-1].replace("n/a openvino", "0.00x openvino"))
    data = json.loads((tmp_path / "report.json").read_text())
    tiny = next(m for m in data["models"] if m["model"] == "tiny")
    assert tiny["shapes"] == {"x": [3, 8]}
    assert tiny["reference"] == "reference"
    assert 0 < tiny["engines"]["onnxruntime"]["accuracy"]["max_rel"] < 1e-5
    assert any(line.startswith("unknown: no run in double precision") for line in lines)
    ours = tiny["engines"]["ingot"]
    assert ours["accuracy"]["max_rel"] < 1e-5
    assert ours["facts"]["compile_seconds"] > 0
    assert ours["facts"]["artifact_bytes"] > 0
    assert ours["timing"]["median"] > 0
