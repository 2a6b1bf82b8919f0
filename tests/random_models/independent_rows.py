"""What a proof that rows are independent says, tried out: the other rows of a batch become anything, and one row stays what it is.

``python -m tests.random_models.independent_rows SECONDS [SEED]`` goes on until time is up; 1 when a row changed.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from compiler_service.compiler.frontend.load import import_model
from compiler_service.compiler.frontend.options import ImportOptions
from compiler_service.compiler.graph_passes.analysis.independence import rows_apart
from compiler_service.compiler.pipeline import inference
from compiler_service.compiler.program.rows import prove_rows
from compiler_service.compiler.program.variants import Variant
from compiler_service.compiler.reference.interpret import run_graph
from shared_ir.errors import IngotError
from shared_ir.graph.ir import Module
from tests.random_models.model_maker import Array, Maker
from tests.random_models.moving_steps import MOVING_STEPS
from tests.random_models.steps import STEPS

BATCH = "batch"
ROWS = 3
Feeds = Mapping[str, Array]
Run = Callable[[Feeds], Sequence[Array]]
_SHAPES = ((3,), (3, 4), (2, 5, 6), (1, 4), (4, 7), ())


def drawn_model(seed: int) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """A random graph over inputs of ``ROWS`` rows; its outputs are all values with as many."""
    random = np.random.default_rng(seed)

    def choose(options: Sequence[Any]) -> Any:
        return options[int(random.integers(len(options)))]

    make = Maker(choose, random)
    for _ in range(choose([1, 2, 2])):
        shape = (ROWS, *choose(_SHAPES))
        numbers = random.permutation(np.resize(np.arange(-40, 40), int(np.prod(shape)))).reshape(shape)
        array = (numbers / 8).astype(np.float32) if choose([True, True, True, False]) else numbers.astype(np.int64)
        make.input(array, [BATCH, *(f"d{n}" if choose([True, False]) else n for n in shape[1:])])
    wanted = choose(range(3, 14))
    for _ in range(4 * wanted):
        if len(make.nodes) >= wanted:
            break
        choose((*STEPS, *MOVING_STEPS))(make)
    made = {o for node in make.nodes for o in node.output}
    model = make.model()
    del model.graph.output[:]
    for value in make.values:
        if value.name in made and value.shape[:1] == (ROWS,):
            kind = helper.np_dtype_to_tensor_dtype(value.array.dtype)
            model.graph.output.append(helper.make_tensor_value_info(value.name, kind, [None] * value.rank))
    return model, make.feeds


def with_batch(model: onnx.ModelProto, feeds: Feeds, rows: Sequence[str]) -> onnx.ModelProto | None:
    """``model`` whose inputs ``rows`` have a batch as their first axis; the others become constants."""
    made = onnx.ModelProto.FromString(model.SerializeToString())
    for value in list(made.graph.input):
        if value.name in rows:
            value.type.tensor_type.shape.dim[0].dim_param = BATCH
        elif value.name in feeds:
            made.graph.input.remove(value)
            made.graph.initializer.append(numpy_helper.from_array(feeds[value.name], value.name))
    for value in made.graph.output:
        value.type.tensor_type.ClearField("shape")
    return made if all(v.type.HasField("tensor_type") for v in (*made.graph.input, *made.graph.output)) else None


def proven_part(model: onnx.ModelProto) -> tuple[onnx.ModelProto, Module] | None:
    """``model`` with those of its outputs whose rows are proven to be independent."""
    try:
        graph = import_model(model.SerializeToString(), ImportOptions(), inference()).graph
    except IngotError:
        return None
    pairs = zip(model.graph.output, graph.outputs, strict=True)
    proven = [v for v, own in pairs if rows_apart(graph.with_(outputs=(own,))).symbol]
    if not proven:
        return None
    part = _with_outputs(model, proven)
    module = import_model(part.SerializeToString(), ImportOptions(), inference())
    assert prove_rows([Variant(module)]).symbol, "outputs that are proven one by one are proven together"
    return part, module


def with_proof(seed: int) -> tuple[onnx.ModelProto, Module, dict[str, Array]]:
    """The first random model of this seed, or of one a thousand further on, with a part that is proven; and its feeds."""
    for number in itertools.count(seed, 1000):
        model, feeds = drawn_model(number)
        if (found := proven_part(model)) is not None:
            part, module = found
            return part, module, {n: feeds[n] for n in module.input_names}
    raise AssertionError


def _with_outputs(model: onnx.ModelProto, outputs: Sequence[onnx.ValueInfoProto]) -> onnx.ModelProto:
    made = onnx.ModelProto.FromString(model.SerializeToString())
    del made.graph.output[:]
    made.graph.output.extend(outputs)
    return made


def interpreter(module: Module) -> Run:
    """Runs the graph as it was imported."""
    names = [v.name for v in module.graph.inputs]

    def run(feeds: Feeds) -> Sequence[Array]:
        given = dict(zip(names, (feeds[n] for n in module.input_names), strict=True))
        with np.errstate(all="ignore"):
            return list(run_graph(module.graph, given))

    return run


@dataclass(frozen=True)
class Trial:
    """``answered``: batches that the model took."""

    answered: int
    failure: str = ""


def tried(run: Run, feeds: Feeds) -> Trial:
    """The first row of batches in which the other rows are anything: always the same bytes, and close to what it is alone."""
    alone = _answer(run, {n: a[:1] for n, a in feeds.items()})
    if alone is None:
        return Trial(0)
    first: dict[int, list[bytes]] = {}
    answered = 0
    for label, others in _others(feeds):
        for place in (0, ROWS - 1):
            batch = {n: np.insert(others[n], place, a[0], axis=0) for n, a in feeds.items()}
            found = _answer(run, batch)
            if found is None:
                continue
            answered += 1
            own = [y[place : place + 1] for y in found]
            if any(y.shape[0] != ROWS for y in found) or not all(map(_is_close, own, alone)):
                return Trial(answered, f"row {place} beside {label} is not what it is alone: {own} {alone}")
            if [y.tobytes() for y in own] != first.setdefault(place, [y.tobytes() for y in own]):
                return Trial(answered, f"row {place} changes with {label} beside it: {own}")
    return Trial(answered)


def _answer(run: Run, feeds: Feeds) -> Sequence[Array] | None:
    try:
        return [np.asarray(y) for y in run(feeds)]
    except (IngotError, IndexError, ValueError, ZeroDivisionError, OverflowError):
        return None  # a row that the model refuses ends the run, and the others are run again


def _others(feeds: Feeds) -> Iterator[tuple[str, dict[str, Array]]]:
    count = ROWS - 1
    yield (
        "rows of its kind",
        {n: np.resize(a[1:] if len(a) > 1 else a, (count, *a.shape[1:])) for n, a in feeds.items()},
    )
    yield "itself", {n: np.repeat(a[:1], count, axis=0) for n, a in feeds.items()}
    for label, real, whole in (
        ("zeros", 0.0, 0),
        ("ones", 1.0, 1),
        ("NaN", np.nan, 0),
        ("infinity", np.inf, 1),
        ("large numbers", 1e30, 2),
        ("the least numbers", -3e38, None),
        ("NaN and the least numbers", np.nan, None),
    ):
        yield label, {n: _full(a, count, real, whole) for n, a in feeds.items()}


def _full(like: Array, count: int, real: float, whole: int | None) -> Array:
    shape = (count, *like.shape[1:])
    if like.dtype.kind in "fc":
        return np.full(shape, min(max(real, -6e4), 6e4) if like.dtype == np.float16 else real, like.dtype)
    if like.dtype.kind in "iu":
        return np.full(shape, np.iinfo(like.dtype).min if whole is None else whole, like.dtype)
    if like.dtype.kind == "b":
        return np.full(shape, bool(whole))
    return np.repeat(like[:1], count, axis=0)


def _is_close(a: Array, b: Array) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if a.dtype.kind in "fV":
        with np.errstate(all="ignore"):
            return np.allclose(a.astype(np.float64), b.astype(np.float64), rtol=1e-3, atol=1e-4, equal_nan=True)
    return bool(np.array_equal(a, b))


def feeds_of(model: onnx.ModelProto) -> dict[str, Array]:
    """For the inputs of ``model``, whose axes without an extent have 8: floats, and integers that are 0 or 1."""
    random, found = np.random.default_rng(0), {}
    for value in model.graph.input:
        kind = value.type.tensor_type
        shape = [ROWS if d.dim_param == BATCH else d.dim_value or 8 for d in kind.shape.dim]
        is_float = kind.elem_type == onnx.TensorProto.FLOAT
        found[value.name] = (
            random.standard_normal(shape).astype(np.float32) if is_float else random.integers(0, 2, shape)
        )
    return found


def main(seconds: float, first: int) -> int:
    """Tries seeds from ``first`` on; how many failed."""
    end, failed = time.monotonic() + seconds, 0
    for seed in itertools.count(first):
        if time.monotonic() > end:
            return failed
        _, module, feeds = with_proof(seed)
        failure = tried(interpreter(module), feeds).failure
        if failure:
            failed += 1
            print(f"seed {seed}: {failure}", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0) > 0)
