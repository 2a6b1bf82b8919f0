"""Faults of the compiler: a lower level where an optimisation is at fault, else an error of ours."""

import errno
import os
import warnings

import numpy as np
import pytest

from compiler_service.compiler.codegen.toolchain.host import host_target
from compiler_service.compiler.fallback import OptimisationFaultWarning, at_a_level_that_works, typed_faults
from compiler_service.compiler.graph_passes.algebra.fold_batch_norm import FoldBatchNorm
from compiler_service.compiler.graph_passes.convolutions.separate_taps import SeparateTaps
from compiler_service.compiler.graph_passes.normal_form.fold_shapes import FoldShapes
from compiler_service.compiler.graph_passes.rewriting.pass_manager import Pass
from compiler_service.compiler.options import CompileOptions
from compiler_service.compiler.pipeline import ModelSource, check_model, compile_model
from runtime_service.loading.loader import load_model
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.graph.ir import Graph
from shared_ir.storage.faults import lacks_room
from tests.compiler_service.compiler.dynamic.compiled import model, node, normal, tensor

PROTO = model([node("Relu", ["x"], ["y"])], [tensor("x", ["n", 4])], [tensor("y", ["n", 4])])
SOURCE = ModelSource.of(PROTO.SerializeToString())


def broken(_pass: object, graph: Graph) -> Graph:
    raise KeyError("a symbol")


@pytest.mark.parametrize(("at_fault", "level"), [(SeparateTaps, 2), (FoldBatchNorm, 1)])
def test_a_pass_at_fault_is_gone_without(monkeypatch: pytest.MonkeyPatch, at_fault: type[Pass], level: int) -> None:
    monkeypatch.setattr(at_fault, "run", broken)
    with pytest.warns(OptimisationFaultWarning, match=f"compiled at level {level}; report it: .*KeyError"):
        artifact = compile_model(SOURCE, host_target(), CompileOptions(disabled_passes=("pad-rows",)), workers=0)
    assert artifact.report["fallback"]["level"] == level
    assert at_fault.name in artifact.report["fallback"]["fault"]
    assert artifact.manifest.options["opt_level"] == 3, "the key is that of what was asked for"
    x = normal(3, 4)
    with load_model(artifact, threads=1) as loaded:
        np.testing.assert_array_equal(loaded.run({"x": x})["y"], np.maximum(x, 0))


def test_a_model_without_faults_has_no_fallback() -> None:
    assert "fallback" not in compile_model(SOURCE, host_target(), CompileOptions(), workers=0).report


def test_a_fault_of_every_level_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FoldShapes, "run", broken)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(IngotError) as refused:
            compile_model(SOURCE, host_target(), CompileOptions(opt_level=2), workers=0)
    assert refused.value.code is ErrorCode.COMPILER_FAULT


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), ErrorCode.DISK_FULL),
        (MemoryError(), ErrorCode.LIMIT_EXCEEDED),
    ],
)
def test_a_machine_without_room_is_no_fault_of_a_level(
    monkeypatch: pytest.MonkeyPatch, error: Exception, code: ErrorCode
) -> None:
    """Else what is compiled while there is no room would be slower for good."""

    def full(_pass: object, graph: Graph) -> Graph:
        raise error

    monkeypatch.setattr(FoldBatchNorm, "run", full)
    with pytest.raises(IngotError) as refused:
        compile_model(SOURCE, host_target(), CompileOptions(), workers=0)
    assert refused.value.code is code


def test_a_machine_without_room_is_known_by_what_it_said_whatever_level_that_was_at() -> None:
    """Behind a fault of a level too: it is found again, when there is room."""

    def attempt(level: int) -> int:
        if level > 1:
            raise KeyError("a symbol")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    for level in (1, 3):
        with pytest.raises(IngotError) as refused:
            at_a_level_that_works(attempt, level)
        assert refused.value.code is ErrorCode.DISK_FULL
        assert lacks_room(refused.value)


def test_errors_of_the_model_are_not_tried_again() -> None:
    levels: list[int] = []

    def attempt(level: int) -> int:
        levels.append(level)
        raise IngotError(ErrorCode.UNSUPPORTED_OPERATOR, "there is no such operator")

    with pytest.raises(IngotError, match="no such operator"):
        at_a_level_that_works(attempt, 3)
    assert levels == [3]


@pytest.mark.parametrize("error", [KeyError("n"), RecursionError("deep"), AssertionError(), ZeroDivisionError()])
def test_nothing_but_our_errors_leaves(error: Exception) -> None:
    with pytest.raises(IngotError) as refused, typed_faults():
        raise error
    assert refused.value.code is ErrorCode.COMPILER_FAULT
    assert type(error).__name__ in refused.value.received


def test_too_little_memory_is_no_fault_of_the_compiler() -> None:
    with pytest.raises(IngotError) as refused, typed_faults():
        np.empty(1 << 60, np.uint8)
    assert refused.value.code is ErrorCode.LIMIT_EXCEEDED
    assert "Unable to allocate" in refused.value.received


def test_a_check_that_fails_is_an_error_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("no")

    monkeypatch.setattr("compiler_service.compiler.pipeline.report_model", fail)
    with pytest.raises(IngotError, match="the compiler failed"):
        check_model(SOURCE)
