"""A fault in a pass is shown again by ``opt`` with nothing but the text that it left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import ingot
from bench.calls import sum_model
from compiler_service.compiler import opt
from compiler_service.compiler.graph_passes.fusion.fuse import Fuse
from compiler_service.compiler.loop_ir import passes
from compiler_service.compiler.reproducer import PassFaultError


def breaks(*_: Any) -> Any:
    raise KeyError("lost")


def fault_of(model: bytes) -> PassFaultError:
    with pytest.raises(PassFaultError) as caught:
        ingot.compile(model, in_process=True)
    return caught.value


def shown_again(error: PassFaultError, folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    file = folder / "reproducer.txt"
    file.write_text(error.reproducer)
    called = error.reproducer.splitlines()[2].split("-p ")[1].split("'")[1]
    assert opt.main(["-p", called, str(file)]) == 1
    return capsys.readouterr().err


def test_of_a_pass_over_graphs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Fuse, "run", breaks)
    error = fault_of(sum_model().SerializeToString())
    assert "compiler " in error.reproducer.splitlines()[1]
    assert "pass 'fuse' failed: KeyError: 'lost'" in shown_again(error, tmp_path, capsys)


def test_of_a_pass_over_loops(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = tuple((name, breaks if name == "unroll" else each) for name, each in passes.LOOP_PASSES)
    monkeypatch.setattr(passes, "LOOP_PASSES", broken)
    monkeypatch.setattr(opt, "LOOP_PASSES", broken)
    error = fault_of(sum_model().SerializeToString())
    assert "pass 'unroll' failed: KeyError: 'lost'" in shown_again(error, tmp_path, capsys)
