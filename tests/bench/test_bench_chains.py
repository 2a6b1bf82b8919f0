"""The models whose weights are stored in every width compute what they say, by ONNX Runtime and compiled."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from onnx.reference import ReferenceEvaluator

import ingot
from bench.chains import KINDS, chain_model


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("rows", [1, 9, "n"])
@pytest.mark.parametrize("kind", KINDS)
def test_others_agree(kind: str, rows: int | str) -> None:
    """ONNX Runtime, or the reference where that would quantize what is multiplied."""
    model = chain_model(kind, rows, 128, 512)
    x = np.random.default_rng(1).standard_normal((3 if rows == "n" else int(rows), 128)).astype(np.float32)
    exact = ReferenceEvaluator if kind == "int8" else onnxruntime.InferenceSession
    (expected,) = exact(model.SerializeToString()).run(None, {"x": x})
    artifact = ingot.compile(model)
    (found,) = ingot.load(artifact).run({"x": x}).values()
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())
    assert artifact.report["faults"] == []


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "share"), [("float16", 0.5), ("bfloat16", 0.5), ("int8", 0.26), ("blocks", 0.17)])
def test_weights_stay_as_narrow_as_they_are(kind: str, share: float) -> None:
    sizes = [ingot.compile(chain_model(k, 1, 128, 512)).report["weights_bytes"] for k in (kind, "float32")]
    assert sizes[0] <= share * sizes[1]


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "emulator"), [("raspberry-pi/4b", "qemu-aarch64-static"), ("raspberry-pi/2b", "qemu-arm-static")]
)
@pytest.mark.parametrize("kind", KINDS)
def test_other_machines_agree(kind: str, target: str, emulator: str, tmp_path: Path) -> None:
    found = shutil.which(emulator)
    if found is None:
        pytest.skip(f"{emulator} is not installed (Debian package qemu-user-static)")
    model = chain_model(kind, 3, 128, 512)
    x = np.random.default_rng(1).standard_normal((3, 128)).astype(np.float32)
    (program,) = ingot.compile(model, target=target, bundle="executable").attachments.values()
    (tmp_path / "model").write_bytes(program)
    (tmp_path / "model").chmod(0o755)
    x.tofile(tmp_path / "x.bin")
    subprocess.run([found, "./model", "x.bin", "y.bin"], cwd=tmp_path, check=True, timeout=120)
    (expected,) = ingot.load(ingot.compile(model)).run({"x": x}).values()
    received = np.fromfile(tmp_path / "y.bin", np.float32).reshape(expected.shape)
    np.testing.assert_allclose(received, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())
