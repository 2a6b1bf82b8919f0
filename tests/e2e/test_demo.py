"""The demo itself, and its model with published weights, where that was downloaded before (`make test` tries to)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import ingot
from ingot.demo.models import CLASSIFIER, cached_classifier
from runtime_service.loading.loader import ExecutorKind

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def path() -> Path:
    found = cached_classifier()
    if found is None:
        pytest.skip(f"{CLASSIFIER} is not in the cache: `python -m ingot.demo.models` downloads it")
    return found


@pytest.fixture(scope="module")
def artifact(path: Path) -> ingot.Artifact:
    return ingot.compile(path)


@pytest.mark.parametrize("shape", [(1, 3, 48, 192), (5, 3, 48, 100), (2, 3, 64, 333)])
@pytest.mark.parametrize("executor", ["aot", "graph"])
def test_the_classifier_agrees_with_onnx_runtime(
    path: Path, artifact: ingot.Artifact, shape: tuple[int, ...], executor: ExecutorKind
) -> None:
    image = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (expected,) = session.run(None, {"x": image})
    with ingot.load(artifact, executor=executor) as model:
        (found,) = model.run({"x": image}).values()
    assert np.abs(found - expected).max() <= 1e-4


@pytest.mark.services
@pytest.mark.timeout(900)
def test_the_demo_holds(path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", "ingot.demo"], env=environment, cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for told in (
        "text-direction",
        "light-resnet50",
        "cache hit",
        "max abs error",
        "ONNX Runtime ms",
        "metrics that moved",
    ):
        assert told in done.stdout
    assert "nothing of it is left" in done.stdout
