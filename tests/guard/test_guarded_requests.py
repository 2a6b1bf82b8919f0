"""No request makes compiled code touch what is not its own; ``make fuzz`` asks on for ten minutes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from compiler_service.compiler.codegen.toolchain.link import guarded_memory
from tests.guard.asking import REQUESTS as ASKED
from tests.guard.asking import ask
from tests.guard.requests import Request, requests
from tests.guard.runs import compiled, findings
from tests.native_models import KERNELS, build_model, toy_feeds
from tests.oracle.case import Case
from tests.oracle.families import FAMILIES
from tests.oracle.generate import drawn_case

REQUESTS = 24
"""Of each family; half a minute for all of them on two cores."""
KEPT = Path(__file__).parent / "kept"
"""Models of which a request, once, read or wrote what was not its own, under the family and seed that drew them."""
REFUSED: frozenset[str] = frozenset()
"""Families whose first model is refused."""


@pytest.mark.slow
@pytest.mark.sampled
@pytest.mark.parametrize(  # one parameter, of which the default run takes a part
    ("level", "family", "apart"),
    [(n % 4, family, apart) for apart in (False, True) for n, family in enumerate(sorted(FAMILIES))],
)
def test_no_request_reaches_what_is_not_its_own(level: int, family: str, apart: bool) -> None:
    """``apart``: every axis alone, at one of the levels."""
    asked = ask(family, 0, REQUESTS, apart=True, level=level) if apart else ask(family, 0, REQUESTS, apart=False)
    assert asked.findings == ()
    assert apart or asked.requests or family in REFUSED


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted(KEPT.glob("*.json")), ids=lambda path: path.stem)
def test_what_once_reached_further(path: Path) -> None:
    case, seed = Case.load(path), int(path.stem.rpartition("-")[2])
    assert findings(compiled(case.model), requests(case.model, case.runs[0], seed, ASKED)) == []


@pytest.mark.parametrize("level", range(4))
@pytest.mark.parametrize("reduction", ["none", "add"])
def test_indices_without_elements_are_not_read(level: int, reduction: str) -> None:
    shape = (2, 0)
    sizes = {"x": ("A", "B"), "i": ("K1", "L1"), "u": ("K2", "L2")}
    dtypes = {"x": TensorProto.FLOAT, "i": TensorProto.INT64, "u": TensorProto.FLOAT}
    inputs = [helper.make_tensor_value_info(name, dtypes[name], sizes[name]) for name in sizes]
    node = helper.make_node("ScatterElements", list(sizes), ["y"], axis=0, reduction=reduction)
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "g", inputs, [output])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    feeds: dict[str, np.ndarray] = {
        "x": np.ones((17, 2), np.float32),
        "i": np.zeros(shape, np.int64),
        "u": np.ones(shape, np.float32),
    }
    assert findings(compiled(model, level), [Request("nothing", feeds)]) == []


@pytest.mark.parametrize(
    ("right", "wrong", "found"),
    [
        ("x[i] + r[i];", "x[i] + r[i];", []),
        ("x[i] + r[i];", "x[i] + r[i + 4096];", ["nothing: SIGSEGV"]),
        ("x[i] + r[i];", "x[i + 65536] + r[i];", ["nothing: SIGSEGV"]),
        ("y[i] = x[i] + r[i];", "y[i + 4096] = x[i] + r[i];", ["nothing: SIGSEGV"]),
        ("y[i] = x[i]", "y[i + (i == s[0] - 1)] = x[i]", ["nothing: SIGSEGV"]),
        ("i < s[0]; i++) y[i]", "i < s[0] - 1; i++) y[i]", ["nothing: the answer holds what the run has not written"]),
        ("x[i] + r[i];", "x[i + 2] + r[i];", ["nothing: the answer holds what the run has not written"]),
    ],
)
def test_a_fault_of_a_kernel_is_found(right: str, wrong: str, found: list[str]) -> None:
    assert right in KERNELS
    with guarded_memory():
        artifact = build_model(kernels=KERNELS.replace(right, wrong)).artifact()
    assert findings(artifact, [Request("nothing", toy_feeds(13)), Request("nothing", toy_feeds(13))]) == found * 2


def test_requests_are_the_same_for_a_seed_and_differ_from_the_good_one_in_one_thing() -> None:
    case, _ = drawn_case("Gather", 1)
    first, again = (requests(case.model, case.runs[0], 5, 40) for _ in range(2))
    assert [r.change for r in first] == [r.change for r in again]
    assert len({r.change for r in first}) > 10
    assert any(np.shape(r.feeds[n]) != np.shape(a) for r in first for n, a in case.runs[0].items())
    assert isinstance(case.model, onnx.ModelProto)
