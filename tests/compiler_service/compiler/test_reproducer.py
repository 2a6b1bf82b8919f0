"""A fault in a pass is shown again by ``opt`` with nothing but the text that it left."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import ingot
from bench.calls import sum_model
from compiler_service.compiler import opt
from compiler_service.compiler.graph_passes.fusion.fuse import Fuse
from compiler_service.compiler.graph_passes.pipelines import default_pipeline
from compiler_service.compiler.graph_passes.rewriting.pass_manager import Pass, PassContext, Pipeline
from compiler_service.compiler.loop_ir import passes
from compiler_service.compiler.reproducer import PassFaultError
from shared_ir.errors import IngotError
from shared_ir.graph.parse import parse_graph


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
    broken = tuple(replace(item, apply=breaks) if item.name == "unroll" else item for item in passes.LOOP_PASSES)
    monkeypatch.setattr(passes, "LOOP_PASSES", broken)
    monkeypatch.setattr(opt, "LOOP_PASSES", broken)
    error = fault_of(sum_model().SerializeToString())
    assert "pass 'unroll' failed: KeyError: 'lost'" in shown_again(error, tmp_path, capsys)


@pytest.mark.parametrize("item", default_pipeline(3).passes, ids=lambda item: item.name)
def test_a_remedy_that_names_an_option_helps(item: Pass, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(item), "run", breaks)
    pipeline, graph = (
        Pipeline((item,)),
        parse_graph("graph g(%x: float32[n]) -> (%y) {\n  %y: float32[n] = Relu(%x)\n}\n"),
    )
    with pytest.raises(PassFaultError) as caught:
        pipeline.run_graph(graph, PassContext())
    if "disabled_passes" in caught.value.remedy:
        assert repr(item.name) in caught.value.remedy
        assert pipeline.run_graph(graph, PassContext(disabled=frozenset({item.name}))) is graph
    else:
        with pytest.raises(IngotError, match="at every level"):
            pipeline.run_graph(graph, PassContext(disabled=frozenset({item.name})))


@pytest.mark.parametrize("name", [item.name for item in passes.LOOP_PASSES])
def test_passes_over_loops_have_no_option_to_be_left_out_by(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tuple(replace(item, apply=breaks) if item.name == name else item for item in passes.LOOP_PASSES)
    monkeypatch.setattr(passes, "LOOP_PASSES", broken)
    assert "disabled_passes" not in fault_of(sum_model().SerializeToString()).remedy
