"""The page of results."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.bounds import bounds
from tests.bench.test_bench_bounds import PEAKS, launch
from tests.bench.test_bench_report import MACHINE, model, report

pytest.importorskip("matplotlib", reason="plots need the extra `bench`")

from bench.results import closest, page, recounted, replace_plots
from bench.roofline import Roofline
from bench.stored import read_reports


def test_the_page_holds_machine_ratios_failures_and_kernels() -> None:
    found = report(model("a", ingot=1.0, onnxruntime=2.0, openvino="Error: no"), model("b", ingot=1.0, onnxruntime=1.5))
    text = page(MACHINE, [found], PEAKS, [Roofline("a", bounds([launch("matmul", 2e-5, 1000000, 30000)], PEAKS))])
    assert all(line in text for line in MACHINE.lines())
    assert f"`{found.closing_line()}`" in text
    assert "- a: openvino fails and is left out: Error: no" in text
    assert "| matmul | 1 | 20.0 | 100.0% |" in text
    assert "(results/roofline-a.png)" in text


def test_the_models_that_need_a_look() -> None:
    found = report(
        *(model(n, ingot=1.0, onnxruntime=t) for n, t in (("a", 3.0), ("b", 1.0), ("c", 2.0))),
        model("d", ingot="broken", onnxruntime=1.0),
    )
    assert closest(found, 2) == ("b", "c")


def test_plots_of_earlier_runs_go(tmp_path: Path) -> None:
    for name in ("roofline-old.png", "peers-1.json"):
        (tmp_path / name).write_bytes(b"")
    replace_plots(tmp_path, [Roofline("new", bounds([launch("matmul", 2e-5, 1000000, 30000)], PEAKS))], PEAKS)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["peers-1.json", "roofline-new.png"]


BENCH = Path(__file__).parents[2] / "bench"


@pytest.mark.parametrize("folder", [BENCH, BENCH / "xeon", BENCH / "zen5"], ids=("zen4", "xeon", "zen5"))
def test_headlines_are_what_the_stored_results_come_to(folder: Path) -> None:
    text, reports = (folder / "RESULTS.md").read_text(), read_reports(folder / "results")
    assert text == recounted(text, reports), "run: python -m bench.results --recount PAGE"
    for found in reports:
        assert (folder / "results" / f"peers-{found.threads}.json").read_text() == found.to_json()
