"""Loading: what is refused before any code is mapped, and what is left after closing."""

from __future__ import annotations

import gc
import os
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runtime_service.arrays import address_of
from runtime_service.executors.library import Library
from runtime_service.loading import cpu
from runtime_service.loading.loader import load_model, load_version, map_weights
from shared_ir.artifact.layout import open_version, save_version
from shared_ir.artifact.signature import SigningKey, TrustStore
from shared_ir.artifact.value import CompiledArtifact
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.plan.program import KernelSpec
from tests.native_models import build_model, toy_feeds, toy_reference, toy_weights


@pytest.fixture(scope="module")
def artifact() -> CompiledArtifact:
    return build_model().artifact()


def mapped(word: str) -> list[str]:
    return [line for line in Path("/proc/self/maps").read_text().splitlines() if word in line]


def resident_kib() -> int:
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))


@pytest.mark.parametrize(
    ("manifest", "expected", "received"),
    [
        ({"abi_version": 99}, "ABI version 1", "ABI version 99"),
        ({"triple": "aarch64-linux-gnu", "cpu": "cortex-a72"}, "code for this x86_64 CPU", "made for aarch64"),
        ({"features": ("+avx2", "+amx-fp16", "+avx512fp16")}, "code for this x86_64 CPU", "needs"),
        ({"min_glibc": "99.1"}, "or older", "needs glibc 99.1"),
    ],
)
def test_unfit_artifacts_are_refused_before_mapping(
    artifact: CompiledArtifact, manifest: dict[str, Any], expected: str, received: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu, "_host_flags", lambda: frozenset({"avx2", "fma"}))
    monkeypatch.setattr(cpu, "host_architecture", lambda: "x86_64")
    bad = replace(artifact, manifest=replace(artifact.manifest, **manifest), library=b"not even ELF")
    with pytest.raises(IngotError) as caught:
        load_model(bad)
    assert caught.value.code is ErrorCode.ARTIFACT_INCOMPATIBLE
    assert expected in caught.value.expected
    assert received in caught.value.received
    assert caught.value.remedy


def test_glibc_of_this_process(monkeypatch: pytest.MonkeyPatch, artifact: CompiledArtifact) -> None:
    assert cpu.host_glibc() == (os.confstr("CS_GNU_LIBC_VERSION") or "").split()[1]
    monkeypatch.setattr(os, "confstr", lambda _name: None)  # as on musl
    assert cpu.host_glibc() == ""
    with pytest.raises(IngotError, match="without glibc"):
        cpu.check_host(artifact.manifest)


@pytest.mark.parametrize("library", [b"", b"garbage" * 100, b"\x7fELF" + b"\0" * 200])
def test_garbage_is_no_library(artifact: CompiledArtifact, library: bytes) -> None:
    before = os.listdir("/proc/self/fd")
    with pytest.raises(IngotError, match="cannot be loaded") as caught:
        load_model(replace(artifact, library=library))
    assert caught.value.code is ErrorCode.ARTIFACT_CORRUPT
    assert len(os.listdir("/proc/self/fd")) == len(before)


def permissions(address: int) -> str:
    """Those of the mapping that an address lies in."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        start, end = (int(text, 16) for text in line.split()[0].split("-"))
        if start <= address < end:
            return line.split()[1]
    return ""


def test_weights_are_one_copy_that_goes_with_the_last_instance(artifact: CompiledArtifact, tmp_path: Path) -> None:
    key = SigningKey.generate()
    size = 64 << 20
    large = replace(artifact, weights=bytes(artifact.weights) + b"\0" * (size - len(artifact.weights)))  # type: ignore[arg-type]
    save_version(tmp_path, "1", [large], key)
    trust = TrustStore.of([key.public])
    before = memory_bytes()
    weights = open_version(tmp_path, "1", trust).weights
    assert size <= memory_bytes() - before < size * 5 // 4
    del weights
    assert memory_bytes() - before < size // 4


def memory_bytes() -> int:
    """Resident private memory of this process."""
    line = next(x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith("RssAnon:"))
    return int(line.split()[1]) * 1024


def test_parts_of_different_models_are_refused(artifact: CompiledArtifact) -> None:
    renamed = replace(artifact.plan, kernels=(*artifact.plan.kernels[:2], KernelSpec("other")))
    cases: list[tuple[CompiledArtifact, ErrorCode, str]] = [
        (replace(artifact, plan=renamed), ErrorCode.ARTIFACT_CORRUPT, "kernels differ"),
        (replace(artifact, plan=replace(artifact.plan, weights_size=5)), ErrorCode.ARTIFACT_CORRUPT, "weights differ"),
        (replace(artifact, weights=b"x" * 100), ErrorCode.ARTIFACT_INCOMPATIBLE, "belong to another model"),
        (replace(artifact, weights=b""), ErrorCode.INVALID_ARGUMENT, "320 bytes of weights"),
    ]
    for bad, code, message in cases:
        with pytest.raises(IngotError, match=message) as caught:
            load_model(bad)
        assert caught.value.code is code
    assert not mapped("ingot-toy")


def test_an_artifact_from_disk(artifact: CompiledArtifact, tmp_path: Path) -> None:
    key = SigningKey.generate()
    trust = TrustStore.of([key.public])
    save_version(tmp_path / "layout", "1", [artifact], key)
    feeds = toy_feeds(9)
    with load_version(tmp_path / "layout", "1", trust, threads=1) as model:
        np.testing.assert_allclose(model.run(feeds)["sum"], toy_reference(feeds)["sum"], rtol=1e-5, atol=1e-5)
        opened = open_version(tmp_path / "layout", "1", trust)
        assert not mapped(str(opened.weights_path))  # what others write there later is not what was verified
        assert not mapped("model.so")  # the file on disk is not what runs
        assert permissions(address_of(np.frombuffer(opened.weights, np.uint8))) == "r--p"
    with pytest.raises(IngotError) as caught:
        load_version(tmp_path / "layout", "1", TrustStore.of([SigningKey.generate().public]))
    assert caught.value.code is ErrorCode.ARTIFACT_UNTRUSTED


def test_mapped_code_cannot_be_changed(artifact: CompiledArtifact) -> None:
    with load_model(artifact, threads=1):
        line = mapped("ingot-toy")[0]
        assert "/memfd:" in line
        links = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
        path = next(p for p in links if os.path.islink(p) and "ingot-toy" in os.readlink(p))
        with pytest.raises(PermissionError):
            os.truncate(path, 0)
        with pytest.raises(PermissionError), open(path, "r+b", buffering=0) as file:
            file.write(b"x")


def test_without_memfd_a_private_file_is_used(
    artifact: CompiledArtifact, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def forbidden(*_: Any) -> int:
        raise PermissionError("vm.memfd_noexec")

    monkeypatch.setattr(os, "memfd_create", forbidden)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    feeds = toy_feeds(3)
    with load_model(artifact, threads=1) as one, load_model(artifact, threads=1) as two:
        assert one.run(feeds)["sum"].tobytes() == two.run(feeds)["sum"].tobytes()
        assert not list(tmp_path.iterdir())  # unlinked as soon as it is mapped
    assert not mapped(str(tmp_path))


def test_two_libraries_at_once_are_two_libraries() -> None:
    one, two = build_model().artifact(), build_model(plan=replace(build_model().plan, name="second")).artifact()
    first, second = Library(one.library, "first"), Library(two.library, "second")
    assert first.functions._handle != second.functions._handle
    first.release()
    assert second.kernel_names == ("matmul", "add", "pairs")
    with pytest.raises(IngotError, match="closed"):
        _ = first.functions
    second.release()


def test_closing_unmaps_and_later_calls_fail(artifact: CompiledArtifact) -> None:
    gc.collect()  # models of other tests
    before = set(os.listdir("/proc/self/task"))
    model = load_model(artifact, threads=3)
    assert mapped("ingot-toy")
    own = set(os.listdir("/proc/self/task")) - before  # threads of other tests may end meanwhile
    assert len(own) == 2
    model.close()
    model.close()  # twice is fine
    assert not mapped("ingot-toy")
    assert own.isdisjoint(os.listdir("/proc/self/task"))
    for call in (model.run, model.profile):
        with pytest.raises(IngotError, match="closed") as caught:
            call(toy_feeds(1))
        assert caught.value.code is ErrorCode.UNAVAILABLE


def test_a_forgotten_model_is_unmapped_when_it_is_collected(artifact: CompiledArtifact) -> None:
    model = load_model(artifact, threads=2)
    model.run(toy_feeds(2))
    del model
    gc.collect()
    assert not mapped("ingot-toy")


def test_closing_waits_for_running_calls(artifact: CompiledArtifact) -> None:
    model = load_model(artifact, threads=1, instances=2)
    stop, ends = threading.Event(), []

    def work() -> None:
        feeds = toy_feeds(200)
        try:
            while not stop.is_set():
                model.run(feeds)
        except IngotError as error:
            ends.append(error.code)

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    time.sleep(0.05)
    model.close()
    assert not mapped("ingot-toy")
    for worker in workers:
        worker.join(timeout=10)
        assert not worker.is_alive()
    assert ends == [ErrorCode.UNAVAILABLE] * 4


@pytest.mark.slow
def test_loading_and_unloading_leaves_nothing(artifact: CompiledArtifact) -> None:
    feeds = toy_feeds(500)

    def cycle(count: int) -> None:
        for _ in range(count):
            with load_model(artifact, threads=2) as model:
                model.run(feeds)
        gc.collect()

    cycle(50)
    before, descriptors = resident_kib(), len(os.listdir("/proc/self/fd"))
    cycle(300)
    assert not mapped("ingot-toy")
    assert resident_kib() - before < 2048  # a leak of one arena or library per cycle would be over 10 MB
    assert len(os.listdir("/proc/self/fd")) == descriptors


def test_weights_are_aligned_wherever_they_come_from(tmp_path: Path) -> None:
    data = toy_weights()
    (tmp_path / "weights.bin").write_bytes(data)
    (tmp_path / "empty.bin").write_bytes(b"")
    shifted = memoryview(bytearray(b"x" + data))[1:]
    for source in (data, shifted, tmp_path / "weights.bin"):
        array = map_weights(source)
        assert array.ctypes.data % 64 == 0
        assert array.tobytes() == data
    assert map_weights(tmp_path / "empty.bin").nbytes == 0
    assert map_weights(b"").nbytes == 0


def test_loading_is_quick(artifact: CompiledArtifact) -> None:
    times = []
    for _ in range(5):
        start = time.perf_counter()
        load_model(artifact, threads=1).close()
        times.append(time.perf_counter() - start)
    assert min(times) < 0.05
