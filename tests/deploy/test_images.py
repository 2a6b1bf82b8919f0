"""Dockerfiles and the compose file: linted, and in agreement with the code about settings, users and health."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

import compiler_service.settings
import runtime_service.settings
from tests.deploy.lint_tools import ROOT, run, tool
from tests.runtime_service.toy_models import ToySource, running_server, scale_model

DOCKERFILE = ROOT / "deploy/Dockerfile"
COMPOSE = ROOT / "deploy/compose.yaml"
HEALTH = ROOT / "deploy/health.py"
IMAGES = {"runtime", "compiler-api", "compiler-worker"}
KNOWN = {
    runtime_service.settings.variable(n) for n in runtime_service.settings.RuntimeSettings.__dataclass_fields__
} | {f"INGOT_{n.upper()}" for n in compiler_service.settings.CompilerSettings.__dataclass_fields__}


@pytest.mark.slow
def test_dockerfile_lint() -> None:
    assert run(tool("hadolint"), "--failure-threshold", "info", DOCKERFILE) == ""


@pytest.mark.slow
def test_compose_follows_its_schema() -> None:
    run(tool("check-jsonschema"), "--builtin-schema", "vendor.compose-spec", COMPOSE)


def stages() -> dict[str, str]:
    """Text of each stage of the Dockerfile by name."""
    parts = re.split(r"^FROM (\S+) AS (\S+)$", DOCKERFILE.read_text(), flags=re.MULTILINE)
    return {parts[i + 1]: parts[i + 2] for i in range(1, len(parts), 3)}


def compose() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(COMPOSE.read_text())
    return document


@pytest.mark.parametrize("image", sorted(IMAGES))
def test_images_run_as_nobody_in_particular_with_a_health_check(image: str) -> None:
    stage = stages()[image]
    assert "USER 10001:10001" in stage
    assert "HEALTHCHECK" in stage
    assert 'ENTRYPOINT ["python", "-m", ' in stage
    module = re.search(r'ENTRYPOINT \["python", "-m", "([\w.]+)"\]', stage)
    assert module is not None
    path = ROOT / module.group(1).replace(".", "/")
    assert path.with_suffix(".py").exists() or (path / "__main__.py").exists()


def test_base_images_are_pinned() -> None:
    bases = re.findall(r"^FROM (\S+) AS", DOCKERFILE.read_text(), flags=re.MULTILINE)
    assert re.match(r"debian:\d+\.\d+-slim$", bases[0])  # has no Python, so no pip and no setuptools either
    assert set(bases[1:]) <= {*stages(), "scratch"}
    images = [service["image"] for service in compose()["services"].values()]
    for image in (bases[0], *images):
        tag = image.rpartition(":")[2]
        assert ":" in image, image
        assert re.search(r"\d", tag), image


def test_what_the_images_copy_exists_and_is_in_the_build_context() -> None:
    allowed = {line[1:] for line in (ROOT / "deploy/Dockerfile.dockerignore").read_text().split() if line[0] == "!"}
    copied = [
        source
        for line in re.findall(r"^COPY (?!--from)(.+)$", DOCKERFILE.read_text(), flags=re.MULTILINE)
        for source in [part for part in line.split() if not part.startswith("--")][:-1]
    ]
    assert copied
    for source in copied:
        assert (ROOT / source).exists(), source
        assert source in allowed, source


def test_only_known_settings_are_set() -> None:
    set_in_image = set(re.findall(r"\b(INGOT_\w+)=", DOCKERFILE.read_text())) - {"INGOT_CACHE_DIR", "INGOT_HOME"}
    assert set_in_image <= KNOWN
    for name, service in compose()["services"].items():
        environment = service.get("environment", {})
        assert {n for n in environment if n.startswith("INGOT_")} <= KNOWN, name


def test_compose_targets_and_volumes_exist() -> None:
    document = compose()
    for name, service in document["services"].items():
        if "build" in service:
            assert service["build"]["target"] in stages()
            assert (COMPOSE.parent / service["build"]["context"] / service["build"]["dockerfile"]).exists()
        for volume in service.get("volumes", []):
            source = volume.partition(":")[0]
            known = (COMPOSE.parent / source).exists() if source.startswith(".") else source in document["volumes"]
            assert known, f"{name}: {volume}"
        for port in service.get("ports", []):
            assert port.startswith("127.0.0.1:"), f"{name} publishes {port} beyond the loopback interface"


def test_the_runtime_sees_no_signing_key() -> None:
    runtime = compose()["services"]["runtime"]
    assert not any(volume.startswith("keys:") for volume in runtime["volumes"])
    assert "INGOT_SIGNING_KEY" not in runtime["environment"]


def health(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(HEALTH), *arguments], capture_output=True, text=True, timeout=30)


@pytest.mark.services
def test_health_of_a_grpc_server() -> None:
    source = ToySource()
    source.publish("scale", 1, scale_model, "stable")
    with running_server(source, wait=False, model_control="explicit") as server:
        address = server.addresses["grpc"]
        assert health("grpc", address, "liveness").returncode == 0
        unready = health("grpc", address)
        assert (unready.returncode, unready.stderr) == (1, f"{address} is NOT_SERVING\n")
        server.dataplane.load("scale")
        assert health("grpc", address).returncode == 0
    gone = health("grpc", address)
    assert gone.returncode == 1
    assert "does not answer" in gone.stderr


def test_health_of_a_worker(tmp_path: Path) -> None:
    file = tmp_path / "worker.alive"
    assert "No such file" in health("file", str(file), "60").stderr
    file.touch()
    assert health("file", str(file), "60").returncode == 0
    old = time.time() - 100
    os.utime(file, (old, old))
    assert health("file", str(file), "60").returncode == 1
    assert health("file", str(file)).returncode == 2


def test_the_runtime_needs_no_compiler() -> None:
    code = "import runtime_service.server, sys; print(*{name.partition('.')[0] for name in sys.modules})"
    imported = set(run(sys.executable, "-c", code).split())
    assert "grpc" in imported
    assert not imported & {"llvmlite", "onnx", "celery", "redis", "ziglang", "compiler_service", "onnxruntime"}
