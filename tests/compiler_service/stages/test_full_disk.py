"""Every stage on a disk that has too little room, by a little or by much: it says so, or it comes out as ever. No model and no compiler is
at fault for a disk, whichever of the processes of a stage finds it full."""

from __future__ import annotations

import contextlib
import errno
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from compiler_service.catalogue import PipelineCompiler
from compiler_service.compiler.codegen.toolchain.emulation import emulator_for
from compiler_service.compiler.codegen.toolchain.host import host_target
from compiler_service.compiler.codegen.toolchain.zig import cache_directory, compile_c
from compiler_service.compiler.options import CompileOptions
from compiler_service.jobs.records import JobStage
from compiler_service.settings import CompilerSettings
from compiler_service.stages.outcome import UnseenError
from compiler_service.stages.process import ARTIFACT, RECORDS
from compiler_service.stages.runner import PREPARE, VERIFY, StageRunner
from compiler_service.wiring import make_parts
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.machine.target import Target, parse_target, target_to_dict
from tests.services.small_disk import small_disk

pytestmark = [pytest.mark.services, pytest.mark.slow]
PAGE, FIRST, MOST = 4096, 8192, 64 << 20


class Nobody:
    """A queue that is never asked."""

    def send(self, stage: JobStage, job: str, target: int, kind: str = "") -> None:
        raise AssertionError

    def waiting(self, kinds: Any) -> Any:
        raise AssertionError


@dataclass(frozen=True)
class Order:
    """A model compiled for ``target``, with the artifact that the stage which verifies looks at."""

    model: Path
    artifact: Path
    target: Target
    runner: StageRunner

    def run(self, stage: str, work: Path, **options: Any) -> Mapping[str, Any]:
        (work / RECORDS).write_bytes(b"")
        request = {
            "stage": stage,
            "source": None if stage == PREPARE else {"model": str(self.model), "blobs": {}},
            "target": target_to_dict(self.target),
            "options": CompileOptions.from_dict(options).to_dict(),
            "artifact": str(self.artifact) if stage == VERIFY else None,
        }
        return self.runner.run(work, request, lambda _: None, lambda: False)


def write_model(path: Path) -> None:
    weights = np.random.default_rng(1).standard_normal((256, 256)).astype(np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"], "product"), helper.make_node("Relu", ["y"], ["z"], "relu")]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [64, 256]) for name in "xz"]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], [numpy_helper.from_array(weights, "w")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def ordered(folder: Path, target: Target) -> Order:
    write_model(folder / "model.onnx")
    settings = CompilerSettings(home=folder / "home", redis_url="redis://127.0.0.1:1", cache_dir=str(cache_directory()))
    runner = make_parts(settings, PipelineCompiler(), Nobody()).runner
    order = Order(folder / "model.onnx", folder / "build" / ARTIFACT, target, runner)
    for stage in (PREPARE, "build"):
        (folder / stage).mkdir()
        order.run(stage, folder / stage)
    return order


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> Order:
    return ordered(tmp_path_factory.mktemp("native"), host_target())


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> Order:
    target = parse_target("llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72")
    if emulator_for(target) is None:
        pytest.skip("there is no emulator of AArch64 here")
    return ordered(tmp_path_factory.mktemp("emulated"), target)


@contextlib.contextmanager
def disk(at: Path, size: int) -> Iterator[Path]:
    with small_disk(at, size) as place:
        if place is None:
            pytest.skip("no file system may be mounted here")
        yield place


def attempt(order: Order, stage: str, work: Path, **options: Any) -> bool:
    """Whether the stage ended as ever; False where it says that there was no room, or its request does not even fit."""
    try:
        order.run(stage, work, **options)
    except UnseenError as error:
        assert error.code is ErrorCode.DISK_FULL  # noqa: PT017
        return False
    except OSError as error:
        assert error.errno == errno.ENOSPC  # noqa: PT017
        return False
    return True


@pytest.mark.parametrize("stage", ["check", "build", VERIFY])
def test_a_stage_that_lacks_room_says_so(native: Order, tmp_path: Path, stage: str) -> None:
    tried_at_every_size(native, stage, tmp_path)


@pytest.mark.parametrize("stage", [VERIFY])
def test_a_stage_that_asks_an_emulator_says_so_too(emulated: Order, tmp_path: Path, stage: str) -> None:
    tried_at_every_size(emulated, stage, tmp_path)


def test_a_stage_that_measures_says_so_too(native: Order, tmp_path: Path) -> None:
    tried_at_every_size(native, "tune", tmp_path, tune=1)


def test_a_compiler_of_c_that_lacks_room_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where its last write fails it ends without a word."""
    text = "".join(f"int f{number}(int x) {{ return x * {number}; }}\n" for number in range(400))
    ends = list[bool]()
    for size in range(4 * PAGE, 64 * PAGE, 4 * PAGE):
        with disk(tmp_path / f"of{size}", size) as place:
            monkeypatch.setattr(tempfile, "tempdir", str(place))
            try:
                compile_c(text, host_target())
                ends.append(True)
            except IngotError as error:
                assert error.code is ErrorCode.DISK_FULL, error  # noqa: PT017
                ends.append(False)
            except OSError as error:
                assert error.errno == errno.ENOSPC  # noqa: PT017
                ends.append(False)
    assert set(ends) == {True, False}


def tried_at_every_size(order: Order, stage: str, folder: Path, **options: Any) -> None:
    """On ever larger disks, until there is room for all."""
    size, tried = FIRST, list[int]()
    while not tried or size < MOST:
        tried.append(size)
        with disk(folder / f"of{size}", size) as work:
            if attempt(order, stage, work, **options):
                break
        size = -(-size * 5 // 4 // PAGE) * PAGE
    assert FIRST < tried[-1] < MOST / 2
