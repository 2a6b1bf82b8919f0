"""What a comparison says of measured numbers."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from io import StringIO
from pathlib import Path

from rich.console import Console

from bench.accuracy import Accuracy
from bench.headline import headline
from bench.machine import Machine
from bench.measurement import EngineResult, ModelResult
from bench.report import HEADER, Report, markdown_table, neighbour_table, rows
from bench.stored import read_reports
from bench.timing import Slice, summarize

MACHINE = Machine("cpu", ("fma",), 2, (1, 2, 3), 4, "unknown", True, "Linux", 0.0, {"ingot": "1"})
CLOSING = re.compile(r"geomean: \d+\.\d\dx ort, \d+\.\d\dx openvino, \d+\.\d\dx best-of-peers; worst: \S+ \d+\.\d\dx\Z")


def ran(engine: str, seconds: float, accuracy: Accuracy | None = None) -> EngineResult:
    return EngineResult(engine, timing=summarize([Slice((seconds,))]), accuracy=accuracy)


def model(name: str, **engines: float | str | EngineResult) -> ModelResult:
    results = {}
    for engine, value in engines.items():
        match value:
            case str():
                results[engine] = EngineResult(engine, error=value)
            case EngineResult():
                results[engine] = value
            case _:
                results[engine] = ran(engine, value)
    return ModelResult(name, {"x": (1, 3)}, results, "onnxruntime")


def report(*models: ModelResult) -> Report:
    return Report(MACHINE, 1, 3, False, models)


def test_closing_line() -> None:
    line = report(
        model("a", ingot=1.0, onnxruntime=4.0, openvino=2.0), model("b", ingot=2.0, onnxruntime=2.0, openvino=4.0)
    ).closing_line()
    assert line == "geomean: 2.00x ort, 2.00x openvino, 1.41x best-of-peers; worst: b 1.00x"
    assert CLOSING.match(line)


def test_what_a_neighbour_costs() -> None:
    console = Console(width=120, record=True, file=StringIO())
    slowed = replace(ran("ingot", 1.0), alone=0.010, beside=0.015)
    console.print(neighbour_table(report(model("a", ingot=slowed, onnxruntime="fails", openvino=1.0))))
    text = console.export_text()
    assert "10.00 -> 15.00 (1.50x)" in text
    assert text.count("n/a") == 2


def test_engines_that_fail_are_left_out_and_named() -> None:
    found = report(
        model("a", ingot=1.0, onnxruntime=2.0, openvino="RuntimeError:\n  no such operator"),
        model("b", ingot="IngotError: LSTM", onnxruntime=1.0, openvino=1.0),
        model("c", ingot=1.0, onnxruntime=8.0, openvino=3.0),
    )
    assert found.closing_line() == "geomean: 4.00x ort, 3.00x openvino, 2.45x best-of-peers; worst: a 2.00x"
    assert found.failures() == (
        "a: openvino fails and is left out: RuntimeError: no such operator",
        "b: ingot fails and is left out: IngotError: LSTM",
    )
    assert found.ours_failed
    assert rows(found)[1][1] == "fails"


def test_a_wrong_answer_is_a_failure_of_ours() -> None:
    wrong = ran("ingot", 1.0, Accuracy(0.5, 0.1, "y"))
    found = report(model("a", ingot=wrong, onnxruntime=2.0))
    assert found.ours_failed
    assert found.failures() == (
        "a: ingot differs from onnxruntime by 0.1 of the largest element of 'y' and is left out",
    )
    assert found.closing_line() == "geomean: n/a ort, n/a openvino, n/a best-of-peers; worst: n/a"
    assert rows(found)[0][1] == "differs"


def test_nothing_to_compare_with() -> None:
    assert (
        report(model("a", ingot=1.0)).closing_line() == "geomean: n/a ort, n/a openvino, n/a best-of-peers; worst: n/a"
    )


def test_json_holds_ratios_and_no_infinities() -> None:
    odd = ran("openvino", 3.0, Accuracy(math.inf, math.inf, "y"))
    found = report(model("a", ingot=1.0, onnxruntime=2.0, openvino=odd))

    def refuse(text: str) -> None:
        raise AssertionError(text)

    data = json.loads(found.to_json(), parse_constant=refuse)
    assert data["models"][0]["ratios"] == {"ort": 2.0, "openvino": None, "best_of_peers": 2.0}
    assert data["closing_line"] == found.closing_line()


def test_tables_have_a_cell_per_column() -> None:
    cells = rows(report(model("a", ingot=1.0, onnxruntime=2.0), model("b", ingot="broken")))
    assert all(len(c) == len(HEADER) for c in cells)
    lines = markdown_table(HEADER, cells).splitlines()
    assert len({line.count("|") for line in lines}) == 1
    assert lines[1].startswith("| --- | ---: |")


def test_files_of_one_architecture_count_once() -> None:
    line = report(
        model("a", ingot=1.0, onnxruntime=2.0, openvino=2.0),
        *(model(f"silero_vad_{n}", ingot=1.0, onnxruntime=8.0, openvino=8.0) for n in range(6)),
    ).closing_line()
    assert line == "geomean: 4.00x ort, 4.00x openvino, 4.00x best-of-peers; worst: a 2.00x"


def test_a_default_that_rounds_more_is_neither_a_peer_nor_a_failure() -> None:
    rounded = ran("openvino-default", 0.1, Accuracy(0.5, 0.1, "y"))
    odd = model("a", ingot=1.0, onnxruntime=2.0)
    found = report(replace(odd, engines={**odd.engines, "openvino-default": rounded}))
    assert found.failures() == ()
    assert found.closing_line() == "geomean: 2.00x ort, n/a openvino, 2.00x best-of-peers; worst: a 2.00x"
    assert "0.10x over 1 architectures, its answers off by up to 1e-01 of the largest element" in headline([found])[-1]


def test_the_headline_says_that_nobody_can_check_out_what_was_measured() -> None:
    plain = report(model("resnet50", onnxruntime=1.0))
    assert "not committed" not in "".join(headline([plain]))
    machine = replace(plain.machine, versions={"ingot": "be006b2+"})
    assert "be006b2 with changes that were not committed" in headline([replace(plain, machine=machine)])[-1]


def test_the_headline_says_where_how_many_and_beside_what() -> None:
    models = (
        model("zoo_a", ingot=1.0, onnxruntime=2.0, openvino=3.0),
        model("zoo_b", ingot=1.0, onnxruntime=2.0, openvino=3.0),
        model("silero_vad", ingot=1.0, onnxruntime=16.0, openvino=24.0),
        model("silero_vad_half", ingot=1.0, onnxruntime=16.0, openvino=24.0),
    )
    lines = headline([report(*models)])
    assert lines[0].startswith("On cpu, float32 everywhere, 3 architectures in 4 files, each architecture counted once")
    assert (
        lines[3]
        == "- 1 thread: 4.00x ONNX Runtime, 6.00x OpenVINO, 4.00x the faster of the two; the 2 of the zoo alone 2.00x"
    )
    assert "what it chooses by default, that was not measured" in lines[4]
    brain = Report(replace(MACHINE, flags=("avx512_bf16",)), 1, 3, False, models)
    assert "its users get bfloat16 by default" in headline([brain])[-1]


def test_what_is_stored_is_read_as_it_was(tmp_path: Path) -> None:
    odd = ran("openvino", 3.0, Accuracy(math.inf, math.inf, "y"))
    found = report(model("a", ingot=1.0, onnxruntime=2.0, openvino=odd), model("b", ingot="no", onnxruntime=1.0))
    (tmp_path / "peers-1.json").write_text(found.to_json())
    assert read_reports(tmp_path) == (found,)
