"""Artifacts for other machines, run under qemu's user mode: what is computed, what is refused, and whose fault a failure is."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compiler_service.compiler.codegen.toolchain.elf import read_shared_library
from compiler_service.compiler.codegen.toolchain.emulation import Emulator, find_emulator
from compiler_service.compiler.codegen.toolchain.link import NATIVE, link_flags, runtime_objects, write_exports
from compiler_service.compiler.codegen.toolchain.recipe import link
from compiler_service.compiler.pipeline import CompileOptions, ModelSource, compile_model, verify_artifact
from compiler_service.compiler.reference.emulated import EmulatedArtifact, NotRunError
from shared_ir.artifact.exchange import write_artifact
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.machine.target import parse_target
from tests.ingot.small_models import scale
from tests.native_growing import GROWING_KERNELS, GROWING_SYMBOLS, growing_plan
from tests.native_models import KERNELS, MAX_BATCH, NativeModel, build_model, toy_feeds, toy_reference

pytestmark = pytest.mark.slow  # the first one for a machine builds its C library
PI = "raspberry-pi/4b"
TARGETS = [
    PI,
    pytest.param("raspberry-pi/2b", marks=pytest.mark.machines),
    pytest.param("riscv64/generic", marks=pytest.mark.machines),
    pytest.param("x86-64-v2", marks=pytest.mark.machines),
]
ADDITION = "y[i] = x[i] + r[i];"


def emulated(model: NativeModel, folder: Path, seconds: float | None = 60.0) -> EmulatedArtifact:
    emulator = find_emulator(model.target.architecture)
    if emulator is None:
        pytest.skip(f"no emulator of {model.target.architecture} is installed (Debian package qemu-user-static)")
    write_artifact(folder / "artifact", model.artifact())
    (folder / "exchange").mkdir()
    return EmulatedArtifact(model.plan, model.target, emulator, folder / "artifact", folder / "exchange", seconds)


@pytest.mark.parametrize("target", TARGETS)
def test_the_very_library_computes_what_it_would_there(target: str, tmp_path: Path) -> None:
    feeds = toy_feeds(7)
    outputs = emulated(build_model(target), tmp_path).run(list(feeds.values()))
    assert outputs is not None
    for received, expected in zip(outputs, toy_reference(feeds).values(), strict=True):
        assert received.shape == expected.shape
        assert received.dtype == np.dtype(np.float32)
        np.testing.assert_allclose(received, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("target", TARGETS)
def test_outputs_that_the_run_sizes(target: str, tmp_path: Path) -> None:
    model = build_model(target, growing_plan(), GROWING_KERNELS, GROWING_SYMBOLS)
    x = np.arange(20, dtype=np.float32)
    outputs = emulated(replace(model, weights=b""), tmp_path).run([x, np.array(9), np.array(True)])
    assert outputs is not None
    np.testing.assert_array_equal(outputs[0], 2 * x + np.cumsum(np.arange(9))[:, None])


def test_sizes_that_the_model_does_not_take(tmp_path: Path) -> None:
    assert emulated(build_model(PI), tmp_path).run(list(toy_feeds(MAX_BATCH + 1).values())) is None


def without_weights(model: NativeModel) -> NativeModel:
    return replace(model, weights=b"short")


def as_it_is(model: NativeModel) -> NativeModel:
    return model


@pytest.mark.parametrize(
    ("kernels", "change", "told"),
    [
        (KERNELS.replace(ADDITION, "*(volatile float *)8 = x[i] + r[i] + y[i];"), as_it_is, "signal 11"),
        (KERNELS, without_weights, "belong to another model"),
    ],
)
def test_what_fails_by_itself_is_a_fault_of_the_compiler(
    kernels: str, change: Callable[[NativeModel], NativeModel], told: str, tmp_path: Path
) -> None:
    artifact = emulated(change(build_model(PI, kernels=kernels)), tmp_path)
    with pytest.raises(IngotError, match=told) as caught:
        artifact.run(list(toy_feeds(7).values()))
    assert caught.value.code is ErrorCode.COMPILER_FAULT
    assert caught.value.field.startswith("qemu-aarch64")


def test_a_library_that_no_machine_could_load_is_a_fault_of_the_compiler(tmp_path: Path) -> None:
    artifact = emulated(build_model(PI), tmp_path)
    (artifact.directory / "model.so").write_bytes(b"\x7fELG" + b"\0" * 100)
    with pytest.raises(IngotError, match="no ELF file"):
        artifact.run(list(toy_feeds(7).values()))


def test_what_takes_too_long_is_given_up(tmp_path: Path) -> None:
    endless = KERNELS.replace(ADDITION, f"{{ while (*(volatile float *)x != 1e30f); {ADDITION} }}")
    artifact = emulated(build_model(PI, kernels=endless), tmp_path, seconds=0.5)
    with pytest.raises(NotRunError, match=r"one run takes more than 0.5 s under qemu-aarch64"):
        artifact.run(list(toy_feeds(7).values()))


def test_what_the_emulator_lacks_is_no_fault(tmp_path: Path) -> None:
    illegal = KERNELS.replace(ADDITION, f'{{ __asm__ volatile(".inst 0"); {ADDITION} }}')
    with pytest.raises(NotRunError, match=r"cannot run it: .*signal 4"):
        emulated(build_model(PI, kernels=illegal), tmp_path).run(list(toy_feeds(7).values()))


def test_an_emulator_that_cannot_be_started_is_no_fault(tmp_path: Path) -> None:
    (tmp_path / "qemu-aarch64").write_text("no program")
    artifact = replace(emulated(build_model(PI), tmp_path), emulator=Emulator(tmp_path / "qemu-aarch64"))
    with pytest.raises(NotRunError, match="qemu-aarch64 cannot be started: Permission denied"):
        artifact.run(list(toy_feeds(7).values()))


def test_what_a_job_asks_for_is_done(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    source = ModelSource.of(scale().SerializeToString())
    artifact = compile_model(source, parse_target(PI), workers=0)

    def asked(verification: str) -> dict[str, Any]:
        return verify_artifact(artifact, source, CompileOptions.from_dict({"verification": verification}), ())

    if find_emulator("aarch64"):
        found = asked("required")
        assert (found["state"], found["seconds"], found["ratio"]) == ("verified", 0.0, 0.0)
        assert found["emulator"].startswith("qemu-aarch64")
        assert [own["name"] for own in found["outputs"]] == ["y"]
    assert asked("off") == {"state": "not run", "reason": "the job asked for none"}
    monkeypatch.setenv("PATH", str(tmp_path))
    reason = "this machine cannot run code for aarch64-linux-gnu, and has no qemu-aarch64"
    assert asked("available") == {"state": "not run", "reason": reason}
    with pytest.raises(IngotError, match=reason) as caught:
        asked("required")
    assert caught.value.code is ErrorCode.NOT_VERIFIED


@pytest.mark.parametrize("target", [PI, "raspberry-pi/2b", "riscv64/generic", "x86-64-v2"])
def test_every_function_that_a_library_can_ask_for_is_offered(target: str, tmp_path: Path) -> None:
    """Linking takes what nobody calls away: here it does not, so that models of every kind are covered."""
    model = build_model(target)
    for name, data in model.objects.items():
        (tmp_path / f"{name}.o").write_bytes(data)
    write_exports(tmp_path)
    flags = [flag for flag in link_flags(parse_target(target)) if flag != "-Wl,--gc-sections"]
    inputs = [*(f"{name}.o" for name in model.objects), *map(str, runtime_objects(model.target))]
    link(inputs, "whole.so", flags, model.target, tmp_path)
    asked = read_shared_library((tmp_path / "whole.so").read_bytes()).imports
    offered = set(re.findall(r'(?:SAME\(|\{")(\w+)', (NATIVE / "loaded.c").read_text()))
    assert asked
    assert set(asked) <= offered
