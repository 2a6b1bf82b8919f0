"""The `ingot` command against running services."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compiler_service.compiler.codegen.toolchain.emulation import find_emulator
from tests.e2e.platform_process import PlatformProcess, wait_until
from tests.ingot.small_models import classifier, unsupported

pytestmark = pytest.mark.services


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "tiny_classifier.onnx"
    path.write_bytes(classifier().SerializeToString())
    return path


@pytest.fixture(scope="module")
def compiled(platform: PlatformProcess, model: Path) -> PlatformProcess:
    done = platform.command("compile", str(model), "--label", "stable")
    assert done.returncode == 0, done.stderr
    assert "tiny-classifier version 1 (stable)" in done.stdout
    assert done.stdout.index("ingest") < done.stdout.index("build") < done.stdout.index("publish")
    assert "within" in done.stdout
    assert "scores" in done.stdout
    return platform


def ask(platform: PlatformProcess, *arguments: str, status: int = 0) -> Any:
    done = platform.command(*arguments, "--json")
    assert done.returncode == status, done.stderr
    return json.loads(done.stdout if status == 0 else done.stderr)


def test_compile_again_is_a_cache_hit(compiled: PlatformProcess, model: Path, tmp_path: Path) -> None:
    job = ask(compiled, "compile", str(model), "--out", str(tmp_path / "out"))
    assert (job["cache_hit"], job["version"], job["state"]) == (True, 1, "SUCCEEDED")
    assert {"oci-layout", "index.json", "blobs"} == {path.name for path in (tmp_path / "out").iterdir()}
    shown = ask(compiled, "run", str(tmp_path / "out"), "--input", "image=random:2x3x8x8")
    assert shown["outputs"][0]["shape"] == [2, 5]


def test_jobs(compiled: PlatformProcess, model: Path) -> None:
    newest = ask(compiled, "jobs", "--limit", "1")[0]
    asked = ask(compiled, "jobs", newest["id"])
    assert asked["id"] == newest["id"]
    (verification,) = [target["verification"] for target in asked["targets"]]
    assert verification["state"] == "verified"
    assert verification["outputs"][0]["name"] == "scores"
    assert 0.0 <= verification["outputs"][0]["max_rel_error"] <= verification["tolerance"]
    assert verification["ratio"] > 0
    assert "as fast" in (told := compiled.command("jobs", newest["id"]).stdout) or "as slow" in told
    events = compiled.command("jobs", newest["id"], "--watch", "--json").stdout.splitlines()
    assert json.loads(events[-1])["job"]["state"] == "SUCCEEDED"
    identifier = compiled.command(
        "compile", str(model), "--name", "later", "--opt-level", "0", "--no-wait"
    ).stdout.strip()
    assert ask(compiled, "jobs", identifier, "--cancel")["state"] in ("CANCELLED", "SUCCEEDED")
    assert "tiny-classifier" in compiled.command("jobs").stdout
    assert ask(compiled, "jobs", "nope", status=1)["error"]["code"] == "NOT_FOUND"


def test_models_and_labels(compiled: PlatformProcess, tmp_path: Path) -> None:
    assert [(m["name"], m["labels"]) for m in ask(compiled, "models") if m["name"] == "tiny-classifier"] == [
        ("tiny-classifier", {"stable": 1})
    ]
    arguments = ("models", "tiny-classifier", "--set-label", "canary=1")
    assert ask(compiled, *arguments)["model"]["labels"] == {"canary": 1, "stable": 1}
    assert ask(compiled, "models", "tiny-classifier", "--delete-label", "canary")["model"]["labels"] == {"stable": 1}
    assert (
        ask(compiled, "models", "tiny-classifier", "--set-label", "canary=9", status=1)["error"]["code"] == "NOT_FOUND"
    )
    done = compiled.command("models", "tiny-classifier", "--out", str(tmp_path / "out"), "--version", "stable")
    assert done.returncode == 0
    assert (tmp_path / "out" / "index.json").exists()


def test_targets(compiled: PlatformProcess) -> None:
    names = [target["name"] for target in ask(compiled, "targets")]
    assert {"host", "aws/graviton3", "raspberry-pi/4b", "x86-64-v3"} <= set(names)
    assert "raspberry-pi/4b" in compiled.command("targets").stdout


def test_check(compiled: PlatformProcess, model: Path, tmp_path: Path) -> None:
    assert ask(compiled, "check", str(model))["ok"] is True
    bad = tmp_path / "bad.onnx"
    bad.write_bytes(unsupported().SerializeToString())
    done = compiled.command("check", str(bad))
    assert done.returncode == 1
    assert "com.example" in done.stdout
    assert "UNSUPPORTED_DOMAIN" in done.stdout


@pytest.mark.parametrize("protocol", [(), ("--http",)])
def test_infer(compiled: PlatformProcess, tmp_path: Path, protocol: tuple[str, ...]) -> None:
    image = np.random.default_rng(3).standard_normal((3, 3, 9, 9)).astype(np.float32)
    np.save(tmp_path / "image.npy", image)
    arguments = ("infer", "tiny-classifier", "--input", f"image={tmp_path / 'image.npy'}", *protocol)
    wait_until(lambda: compiled.command(*arguments).returncode == 0)
    shown = ask(compiled, *arguments, "--save", str(tmp_path / "out"))
    assert shown["outputs"][0]["shape"] == [3, 5]
    assert np.allclose(np.load(tmp_path / "out" / "scores.npy").sum(axis=1), 1.0)
    assert ask(compiled, "infer", "nope", status=1)["error"]["code"] == "NOT_FOUND"
    missing = ask(compiled, "infer", "tiny-classifier", *protocol, status=1)["error"]
    assert missing["tensor"] == "image"


def test_trust_lets_another_home_run_what_this_service_signs(
    compiled: PlatformProcess, model: Path, tmp_path: Path
) -> None:
    address, home = compiled.addresses.compiler, str(tmp_path / "home")
    compiled.command("models", "tiny-classifier", "--out", str(tmp_path / "out"))
    run = ("run", str(tmp_path / "out"), "--input", "image=random:1x3x4x4", "--home", home)
    assert ask(compiled, *run, status=1)["error"]["code"] == "ARTIFACT_UNTRUSTED"
    there = ("trust", "--address", address, "--home", home)
    (key,) = ask(compiled, "trust", "--list", "--home", str(compiled.home))
    refused = ask(compiled, *there, status=1)["error"]
    assert refused["field"] == "--fingerprint"
    refused = ask(compiled, *there, "--fingerprint", "sha256:" + "0" * 64, status=1)["error"]
    assert (refused["code"], refused["received"]) == ("ARTIFACT_UNTRUSTED", key["fingerprint"])
    assert ask(compiled, *run, status=1)["error"]["code"] == "ARTIFACT_UNTRUSTED"
    assert ask(compiled, *there, "--fingerprint", key["fingerprint"])["key_id"] == key["key_id"]
    assert ask(compiled, *run)["outputs"][0]["shape"] == [1, 5]
    assert ask(compiled, "trust", "--remove", key["key_id"], "--home", home) == []
    assert ask(compiled, *run, status=1)["error"]["code"] == "ARTIFACT_UNTRUSTED"


def test_a_program_for_another_machine(compiled: PlatformProcess, model: Path, tmp_path: Path) -> None:
    arguments = ("--name", "program", "--target", "aarch64/generic", "--bundle", "--out", str(tmp_path / "out"))
    done = compiled.command("compile", str(model), *arguments)
    assert done.returncode == 0
    answers = "of onnxruntime" if find_emulator("aarch64") else "not verified: this machine cannot run code for aarch64"
    assert answers in done.stdout
    (program,) = (tmp_path / "out").glob("program.aarch64.*")
    assert program.read_bytes()[:4] == b"\x7fELF"
    assert program.stat().st_mode & 0o111


def test_a_service_that_is_away_is_said_with_a_remedy(compiled: PlatformProcess) -> None:
    done = compiled.command("models", "--address", "127.0.0.1:1")
    assert done.returncode == 3
    assert "ingot up" in done.stderr
    assert "Traceback" not in done.stderr
