"""A kernel for another machine, measured by a server that emulates it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compiler_service.compiler.codegen.emit.kernel import emit_kernel, scratch_size
from compiler_service.compiler.codegen.toolchain.host import host_target
from compiler_service.compiler.codegen.toolchain.machine import compile_ir
from compiler_service.compiler.loop_ir.ir import Function
from compiler_service.compiler.tune.measuring.device import DeviceMeasurer
from compiler_service.compiler.tune.measuring.trial import Content, OutcomeKind, Trial, TrialBuffer, TrialLaunch
from ingot.devices import DeviceConnection, connect
from ingot.tuning import tune
from shared_ir.artifact.signature import SigningKey
from shared_ir.device.order import MOST_TRIALS
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr.dim import evaluate
from shared_ir.machine.emulator import EMULATORS, find_emulator
from shared_ir.machine.target import PRESETS, Target, parse_target
from tests.compiler_service.compiler.codegen.loop_kernels import matmul
from tests.ingot.device.boards import CRASHES, DOUBLES, INPUT, LOOPS, LocalBoard, board, candidate, floats
from tests.ingot.small_models import classifier

pytestmark = [pytest.mark.services, pytest.mark.slow, pytest.mark.timeout(900)]
BOARD = parse_target("llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72")
BOARDS = [
    BOARD,
    pytest.param(PRESETS["armv7/generic"][0], marks=pytest.mark.machines),
    pytest.param(PRESETS["riscv64/generic"][0], marks=pytest.mark.machines),
    pytest.param(PRESETS["riscv64/rvv"][0], marks=pytest.mark.machines),
]
KEY = SigningKey.generate()
M, K, N = 12, 32, 128


@contextmanager
def emulating(folder: Path, architecture: str) -> Iterator[tuple[LocalBoard, DeviceMeasurer]]:
    if find_emulator(architecture) is None:
        pytest.skip(f"{EMULATORS[architecture]} is not installed (Debian package qemu-user-static)")
    with board(folder, KEY, "--emulate", architecture) as running:
        measurer = DeviceMeasurer(DeviceConnection(running.address), KEY, limit=10.0)
        yield running, measurer
        measurer.close()


def trial_of(function: Function, target: Target, arrays: Mapping[str, np.ndarray[Any, Any]]) -> Trial:
    """Buffers without an array are results."""
    sizes = {b.name: evaluate(b.shape[0], {}) * b.dtype.itemsize for b in function.buffers}
    buffers = tuple(
        TrialBuffer(size, Content.of(arrays[name].tobytes())) if name in arrays else TrialBuffer(size, is_result=True)
        for name, size in sizes.items()
    )
    launch = TrialLaunch("kernel", tuple(range(len(buffers))), (), evaluate(function.tasks, {}), scratch_size(function))
    return Trial(target, (compile_ir(emit_kernel(function, target, "kernel"), target),), (launch,), buffers)


@pytest.mark.parametrize("target", BOARDS, ids=lambda target: target.cpu)
def test_a_kernel_for_another_machine_computes_what_the_native_one_does(tmp_path: Path, target: Target) -> None:
    random = np.random.default_rng(36)
    arrays = {
        "a": random.integers(-8, 8, M * K).astype(np.float32),
        "b": random.integers(-8, 8, K * N).astype(np.float32),
    }
    function = matmul(M, K, N, lanes=4)
    with emulating(tmp_path, target.architecture) as (_, measurer):
        (there,) = measurer.run([trial_of(function, target, arrays)], 0.1)
        (here,) = measurer.run([trial_of(function, host_target(), arrays)], 0.1)
    assert there.kind is OutcomeKind.MEASURED, there.reason
    assert there.timing is not None
    assert min(there.timing.rounds) > 0
    np.testing.assert_array_equal(floats(there.results), floats(here.results))
    assert np.any(floats(there.results))


def test_candidates_harm_themselves_alone_there_too(tmp_path: Path) -> None:
    with emulating(tmp_path, BOARD.architecture) as (running, _):
        measurer = DeviceMeasurer(DeviceConnection(running.address), KEY, limit=3.0)
        found = measurer.run([candidate(text, BOARD) for text in (DOUBLES, CRASHES, LOOPS)], 0.1)
        assert [outcome.kind for outcome in found] == [OutcomeKind.MEASURED, OutcomeKind.CRASHED, OutcomeKind.LATE]
        assert found[1].reason == "SIGSEGV"
        np.testing.assert_array_equal(floats(found[0].results), 2 * INPUT)
        assert running.children() == []
        measurer.close()


def test_a_model_is_tuned_on_a_device(tmp_path: Path) -> None:
    """With the tuner as users have it, for a target that is not this machine."""
    with emulating(tmp_path, BOARD.architecture) as (running, _):
        pool = connect([running.address], BOARD, KEY)
        result = tune(classifier(), str(BOARD), seconds=30, records=tmp_path / "records.jsonl", measurer=pool)
        status = DeviceConnection(running.address).status()
        pool.close()
    assert result.tasks
    assert result.trials > 0
    assert all(task.default_seconds > 0 for task in result.tasks)
    assert status.runs >= result.trials / MOST_TRIALS


def test_nothing_is_emulated_unless_it_was_asked_for(tmp_path: Path) -> None:
    with board(tmp_path, KEY) as running:
        measurer = DeviceMeasurer(DeviceConnection(running.address), KEY)
        with pytest.raises(IngotError) as caught:
            measurer.run([candidate(DOUBLES, BOARD)], 0.1)
        assert caught.value.code is ErrorCode.ARTIFACT_INCOMPATIBLE
        measurer.close()
