"""Numbers in text from elsewhere are refused in words, however they are written."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable
from typing import Any

import pytest

from compiler_service.compiler.graph_passes.pipeline_text import parse_pipeline
from compiler_service.compiler.loop_ir.parse import parse_function
from compiler_service.compiler.loop_ir.text import print_function
from compiler_service.compiler.opt import invent_constants
from ingot.client import Client
from ingot.endpoint import Endpoint
from runtime_service.policies import VersionPolicy
from shared_ir.errors import IngotError
from shared_ir.expr.dim import parse_dim
from shared_ir.graph.text import parse_graph, parse_module
from shared_ir.machine.target import PRESETS, resolve_target
from shared_ir.numerals import is_within, whole_number
from tests.compiler_service.compiler.loop_ir.loop_programs import guarded_scale

GRAPH = """graph main(%x: float32[2, n + 3]) -> (%y) {
  const %w: float32[2, 1] = sha256:0000000000000000000000000000000000000000000000000000000000000001
  const %c: int64[2] = [1, 2]
  %z: float32[2, n + 3] = Mul(%x, %w)
  %y: float32[2, n + 3] = Relu(%z) {a=1, b=(1, 2), c=`n * 2`}
}
"""
MODULE = 'module {opset=18, input_names=("x"), output_names=("y")} '
READERS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "graph": (GRAPH, lambda text: parse_graph(text, invent_constants(text))),
    "module": (MODULE + GRAPH, lambda text: parse_module(text, invent_constants(text))),
    "function": (print_function(guarded_scale()), parse_function),
    "pipeline": ("fuse{most_nodes=8,most_concatenated=2}", parse_pipeline),
    "target": (
        "host -cores=2 -l1=32768 -vector-bits=256",
        lambda text: resolve_target(text, lambda: PRESETS["amd/zen4"][0]),
    ),
    "policy": ("3+latest:2", VersionPolicy.parse),
}
HOSTILE = (
    "9" * 5000,
    "9" * 4000,
    "9" * 30,
    "18446744073709551616",
    "-1",
    "٣",
    "²",
    "3 3",
    "1_0",
    "0x10",
    "1e9999",
    "",
    "None",
)


@pytest.mark.parametrize("hostile", HOSTILE, ids=lambda text: text[:8])
@pytest.mark.parametrize("reader", READERS)
def test_a_number_of_any_form_is_read_or_refused(reader: str, hostile: str) -> None:
    text, read = READERS[reader]
    read(text)
    for found in re.finditer(r"(?<![0-9a-f])\d+(?![0-9a-f])", text):
        with contextlib.suppress(IngotError):
            read(text[: found.start()] + hostile + text[found.end() :])


@pytest.mark.parametrize("hostile", ["9" * 5000, "9" * 30, "3 3", "²", ""])
def test_dims_are_numbers_that_int64_holds(hostile: str) -> None:
    with pytest.raises(ValueError, match="not a dim"):
        parse_dim(hostile)
    assert parse_dim("-9223372036854775808") == -(2**63)


def test_whole_numbers() -> None:
    assert [whole_number(text) for text in ("0", "007", "9223372036854775807")] == [0, 7, 2**63 - 1]
    assert {
        whole_number(text) for text in ("", "-1", "+1", " 1", "1_0", "²", "٣", "9223372036854775808", "9" * 5000)
    } == {None}


def test_what_is_not_finite_is_in_no_range() -> None:
    assert [is_within(number, 0, 2) for number in (0, 2.0, -0.1, 2.1)] == [True, True, False, False]
    assert not any(is_within(number, -math.inf) for number in (math.nan, math.inf, -math.inf))


@pytest.mark.parametrize("seconds", [math.nan, math.inf, -1.0, 1e300])
def test_no_client_waits_for_a_time_that_is_none(seconds: float) -> None:
    for made in (Client, Endpoint):
        with pytest.raises(IngotError, match="not a time to wait for"):
            made("127.0.0.1:1", timeout=seconds)
    with Client("127.0.0.1:1") as client:
        with pytest.raises(IngotError, match="not a time to wait for"):
            client.wait("job", timeout=seconds)
        for ask in (client.jobs, client.events):
            with pytest.raises(IngotError, match="not a time") as caught:
                ask(since=seconds - 1e12)
            assert caught.value.field == "since"
