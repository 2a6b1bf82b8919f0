"""The runner of onnx's node tests: right answers pass, wrong ones, crashes and refusals are told apart."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ingot import conformance
from tests.ingot.small_models import scale, unsupported


def case(name: str, model: Any, inputs: list[Any], outputs: list[Any]) -> tuple[str, Any]:
    own = SimpleNamespace(name=name, model=model, model_dir=None, data_sets=[(inputs, outputs)], rtol=1e-3, atol=1e-7)
    return "node", own


class Crash:
    """Takes the process down when it is serialised."""

    graph = scale().graph

    def SerializeToString(self) -> bytes:
        os._exit(7)


def test_every_outcome_is_told_apart() -> None:
    x = np.ones((1, 4), np.float32)
    cases = [
        case("right", scale(), [x], [2 * x]),
        case("crash", Crash(), [x], [x]),
        case("wrong", scale(), [x], [3 * x]),
        case("refused", unsupported(), [x], [x]),
        case("error", scale(), [], [x]),
        case("right again", scale(), [x], [2 * x]),
    ]
    results = conformance.run_cases(cases, jobs=2)
    assert [r.name for r in results] == [c[1].name for c in cases]
    assert [r.outcome for r in results] == ["passed", "crash", "wrong", "skipped", "error", "passed"]
    assert "exit status 7" in results[1].message
    assert results[3].message.startswith("UNSUPPORTED_DOMAIN")
    assert conformance.summary(results).splitlines()[-1] == "2 passed, 3 failed, 1 skipped"


@pytest.mark.slow
def test_the_real_cases(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "conformance.json"
    assert (
        conformance.main(["--filter", "^test_(relu|matmul_2d|concat_1d_axis_0)$", "--out", str(out), "--jobs", "1"])
        == 0
    )
    assert capsys.readouterr().out.splitlines()[-1] == "3 passed, 0 failed, 0 skipped"
    assert {row["name"] for row in json.loads(out.read_text())["results"]} == {
        "test_relu",
        "test_matmul_2d",
        "test_concat_1d_axis_0",
    }
    assert conformance.main(["--filter", "no such case", "--out", str(out)]) == 2
