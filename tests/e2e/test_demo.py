"""The demo itself, and its model with published weights, where that was downloaded before (`make test` tries to)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import ingot
from ingot.demo.models import CLASSIFIER, cached_classifier
from ingot.demo.platform import processes_of
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


def test_the_demo_says_what_it_is() -> None:
    command = [sys.executable, "-m", "ingot.demo", "--help"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    assert "Exit status: 0 everything held" in done.stdout
    models = [sys.executable, "-m", "ingot.demo.models", "--help"]
    assert "usage" in subprocess.run(models, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True).stdout
    command[-1] = "--nonsense"
    assert subprocess.run(command, cwd=ROOT, capture_output=True, timeout=60, check=False).returncode == 2


@pytest.mark.services
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_demo_that_is_ended_leaves_nothing(path: Path, number: signal.Signals, tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)}
    demo = subprocess.Popen([sys.executable, "-m", "ingot.demo"], env=environment, cwd=ROOT, stdout=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 100
        while not list(tmp_path.glob("ingot-demo-*/up.log")) and time.monotonic() < deadline:
            time.sleep(0.02)
        (home,) = tmp_path.glob("ingot-demo-*")
        time.sleep(1.0)  # somewhere on its way up
        demo.send_signal(number)
        assert demo.wait(100) == 128 + number
    finally:
        demo.kill()
    assert list(tmp_path.iterdir()) == []
    assert processes_of(home) == []


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
