"""Builds for machines that are not at hand are verified under an emulator, where there is one, before they are published."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from compiler_service.compiler.codegen.toolchain.emulation import find_emulator
from shared_ir.pb.ingot.compiler.v1 import compiler_pb2 as pb
from tests.compiler_service.worker.test_real_compilation import small_model
from tests.services import wrong_worker
from tests.services.installation import Client, Installation, installation

pytestmark = [pytest.mark.services, pytest.mark.slow]
TARGET = "raspberry-pi/4b"
WORKER = ("-m", "compiler_service.worker")
needs_emulator = pytest.mark.skipif(
    find_emulator("aarch64") is None, reason="qemu-aarch64 is not installed (Debian package qemu-user-static)"
)


@pytest.fixture(name="running", scope="module")
def fixture_running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    home = tmp_path_factory.mktemp("home")
    with installation(home, INGOT_JOB_SECONDS="280", INGOT_SANDBOX="privileges,files,system-calls") as running:
        running.start_server(("-m", "compiler_service.server", "--ready-file"))
        yield running


@contextmanager
def working(running: Installation, command: Sequence[str] = WORKER, **environment: str) -> Iterator[Client]:
    """While this worker, and no other, takes the jobs."""
    process = running.start_worker(command, **environment)
    try:
        yield running.client()
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=30)


def order(client: Client, name: str, weight: float, verification: str) -> pb.Job:
    options = {"verification": pb.OptionValue(string_value=verification)}
    return client.wait(client.compile(small_model(weight), name=name, targets=[TARGET], options=options).id, 250)


def told(running: Installation) -> str:
    """What workers and stages say, without the calls of the API."""
    return "\n".join(line for line in running.logs().splitlines() if "ingot.access" not in line)


def is_published(client: Client, name: str) -> bool:
    models = client.stub.ListModels(pb.ListModelsRequest()).models
    return name in {model.name for model in models}


@needs_emulator
def test_what_an_emulator_can_run_is_verified(running: Installation) -> None:
    with working(running) as client:
        job = order(client, "right", 1.0, "required")
        assert job.state == pb.JOB_STATE_SUCCEEDED, told(running)
        (found,) = (own.verification for own in job.targets)
        assert (found.state, found.emulator.partition(" ")[0]) == ("verified", "qemu-aarch64")
        assert found.oracle.startswith("onnxruntime")
        assert [own.name for own in found.outputs] == ["z"]
        assert 0 <= found.outputs[0].max_rel_error < 1e-5
        assert (found.seconds, found.ratio) == (0.0, 0.0)
        assert is_published(client, "right")


@needs_emulator
def test_a_build_that_disagrees_is_not_published(running: Installation) -> None:
    with working(running, (wrong_worker.__file__,)) as client:
        job = order(client, "wrong", 2.0, "available")
        assert (job.state, job.error.code) == (pb.JOB_STATE_FAILED, "NUMERIC_MISMATCH"), told(running)
        assert job.error.tensor == "z"
        assert not is_published(client, "wrong")


def test_without_an_emulator_a_job_that_requires_it_fails(running: Installation, tmp_path: Path) -> None:
    assert find_emulator("aarch64", {"PATH": str(tmp_path)}) is None
    with working(running, PATH=str(tmp_path)) as client:
        job = order(client, "required", 3.0, "required")
        assert (job.state, job.error.code) == (pb.JOB_STATE_FAILED, "NOT_VERIFIED"), told(running)
        assert job.error.blame == pb.BLAME_USER
        assert "no worker that verifies can run code for aarch64-linux-gnu" in job.error.message
        assert not is_published(client, "required")


@needs_emulator
@pytest.mark.long
@pytest.mark.timeout(1500)
def test_a_worker_with_an_empty_cache_verifies(tmp_path: Path) -> None:
    """All that its toolchain builds once, it builds within the limits of a stage."""
    cold = {"INGOT_CACHE_DIR": str(tmp_path / "cache"), "INGOT_SANDBOX": "privileges,files,system-calls"}
    with installation(tmp_path / "home", INGOT_JOB_SECONDS="1200", **cold) as running:
        running.start_server(("-m", "compiler_service.server", "--ready-file"))
        with working(running) as client:
            options = {"verification": pb.OptionValue(string_value="required")}
            ordered = client.compile(small_model(), name="cold", targets=[TARGET], options=options)
            job = client.wait(ordered.id, 1200)
            assert job.state == pb.JOB_STATE_SUCCEEDED, told(running)
            assert any((tmp_path / "cache").iterdir())
