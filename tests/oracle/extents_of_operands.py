"""Models in which every axis of every operand has a name of its own, asked with one of them changed.

What an operator takes for granted about its operands is then all that can refuse a request, so that a constraint that nothing states
shows as an answer where ONNX Runtime gives none. Nothing is drawn: the models are those of onnx's node tests and a table of others.
"""

from __future__ import annotations

import faulthandler
import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import IO

import numpy as np
import onnx
import onnxruntime
from onnx.backend.test.case.node import collect_testcases

from compiler_service.compiler.frontend.importing.inference import Inference
from compiler_service.compiler.frontend.load import import_model
from compiler_service.compiler.frontend.options import ImportOptions
from compiler_service.compiler.frontend.reading.source import ModelSource
from compiler_service.compiler.reference.interpret import run_graph
from compiler_service.compiler.tensor_expr.registry import OPERATORS, infer
from shared_ir.errors import IngotError
from shared_ir.graph.ir import Module
from tests.guard.runs import in_a_child
from tests.oracle.case import Array, Feeds

_LARGEST = 20_000
"""Elements of a changed operand."""
NOT_INTERPRETED = frozenset({"Resize", "Upsample"})
"""Scales of the run are quotients of sizes, which the interpreter has no numbers for."""
UNKNOWN = "?"
"""Said for ONNX Runtime where it cannot load a model, or dies of a request."""


@dataclass(frozen=True)
class Named:
    """A model whose axes have names of their own, and feeds that it takes."""

    name: str
    model: onnx.ModelProto
    feeds: Feeds


@dataclass(frozen=True)
class Verdict:
    """``own`` and ``other``: what was said by compiled graph and ONNX Runtime; empty where they answered."""

    change: str
    own: str
    other: str


def named_axes(
    name: str, model: onnx.ModelProto, feeds: Feeds, lengthened: bool = False, width: bool = False
) -> Named | None:
    """``model`` with a name for each axis; ``lengthened``: an operand without axes gets one, of one element; ``width``: the last
    axis of each stays the number that it is.

    ``None`` where an input is no tensor of numbers.
    """
    named = onnx.ModelProto.FromString(model.SerializeToString())
    given = dict(feeds)
    for value in named.graph.input:
        if not value.type.HasField("tensor_type") or value.name not in feeds or given[value.name].dtype.hasobject:
            return None
        dims = value.type.tensor_type.shape.dim
        if lengthened and not dims:
            dims.add()
            given[value.name] = given[value.name].reshape(1)
        for axis, dim in enumerate(dims[:-1] if width else dims):
            dim.dim_param = f"{value.name}_{axis}"
    for value in named.graph.output:
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.ClearField("shape")
    return Named(name, named, given)


def node_tests(most: int = 3) -> Iterator[Named]:
    """At most ``most`` for each operator, of those that differ in operands, their ranks or attributes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = [c for c in collect_testcases(None) if c.model is not None and c.data_sets]
    seen: dict[str, set[object]] = {}
    for case in sorted(cases, key=lambda c: c.name):
        if len(case.model.graph.node) != 1 or case.name.endswith("_expanded"):
            continue
        (node,) = case.model.graph.node
        if node.op_type in NOT_INTERPRETED:
            continue
        ranks = tuple(len(v.type.tensor_type.shape.dim) for v in case.model.graph.input)
        form = (tuple(map(bool, node.input)), tuple(sorted((a.name, a.s) for a in node.attribute)), ranks)
        forms = seen.setdefault(node.op_type, set())
        if form in forms or len(forms) >= most:
            continue
        arrays = case.data_sets[0][0]
        if len(arrays) != len(ranks) or not all(isinstance(a, np.ndarray | np.generic) for a in arrays):
            continue
        forms.add(form)
        feeds = dict(zip((v.name for v in case.model.graph.input), map(np.asarray, arrays), strict=True))
        for lengthened in (False, True) if 0 in ranks else (False,):
            found = named_axes(f"{case.name}{' lengthened' if lengthened else ''}", case.model, feeds, lengthened)
            if found is not None:
                yield found


def changes(feeds: Feeds) -> Iterator[tuple[str, Feeds]]:
    """Each axis of each operand shorter, longer, of one element and of none."""
    for name in sorted(feeds):
        array = feeds[name]
        for axis, extent in enumerate(array.shape):
            for other in sorted({0, 1, extent - 1, extent + 1, 2 * extent} - {extent, -1}):
                if array.size and array.size // extent * other <= _LARGEST:
                    changed = np.take(array, np.arange(other) % extent, axis)
                    yield f"{name} axis {axis} = {other} for {extent}", {**feeds, name: changed}


def verdicts(named: Named) -> list[Verdict]:
    """What both say of every change.

    Raises:
        IngotError: the model is refused.
    """
    module = _imported(named.model)
    asked = list(changes(named.feeds))
    own = [_refusal(module, feeds) for _, feeds in asked]
    answered = [i for i, said in enumerate(own) if not said]
    others = dict(zip(answered, _of_runtime(named.model, [asked[i][1] for i in answered]), strict=True))
    return [Verdict(change, own[i], others.get(i, "")) for i, (change, _) in enumerate(asked)]


def refusal(model: onnx.ModelProto, feeds: Feeds) -> str:
    """What a run of these feeds says; empty where it answers."""
    return _refusal(_imported(model), feeds)


def _imported(model: onnx.ModelProto) -> Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        source = ModelSource.of(model.SerializeToString())
        return import_model(source, ImportOptions(), Inference(infer, OPERATORS))


def _refusal(module: Module, feeds: Mapping[str, Array]) -> str:
    inner = zip(module.graph.inputs, module.input_names, strict=True)
    try:
        with np.errstate(all="ignore"):
            run_graph(module.graph, {value.name: feeds[name] for value, name in inner})
    except IngotError as error:
        return f"{error.code}: {error}"
    return ""


def _of_runtime(model: onnx.ModelProto, asked: Sequence[Feeds]) -> list[str]:
    """What ONNX Runtime says of requests, in a child, which some kill."""
    found = [UNKNOWN] * len(asked)
    first = 0
    while first < len(asked):
        begun, lines, status = in_a_child(partial(_serve_runtime, model, asked, first), first)
        for line in lines:
            number, _, said = line.partition(" ")
            found[int(number)] = said
        if status == 0:
            break
        first = begun + 1
    return found


def _serve_runtime(model: onnx.ModelProto, asked: Sequence[Feeds], first: int, pipe: IO[str]) -> None:
    faulthandler.disable()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    onnxruntime.set_default_logger_severity(4)
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    except Exception:  # it has a class of its own for each of its codes
        return
    for number in range(first, len(asked)):
        print(json.dumps({"begun": number, "found": ""}), file=pipe, flush=True)
        try:
            session.run(None, dict(asked[number]))
            said = ""
        except Exception as error:
            said = " ".join(str(error).split()) or "an error"
        print(json.dumps({"begun": number, "found": f"{number} {said}"}), file=pipe, flush=True)


def unstated(found: Sequence[Verdict]) -> list[str]:
    """Changes that are answered though ONNX Runtime refuses them."""
    return [f"{v.change}: {v.other}" for v in found if not v.own and v.other not in ("", UNKNOWN)]
