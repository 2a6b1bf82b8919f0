"""Random control flow against its plain meaning: ``python -m tests.oracle.control_flow --seconds 600 [--first SEED]``.

Every model is optimised at every level, the graph that comes of it interpreted and its plan proved; compiled at some levels, and run by
both executors with one thread and with two. Seeds that fail are printed and end the run with status 1; ``--seed N`` shows one.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx

from compiler_service.compiler.codegen.toolchain.host import host_target
from compiler_service.compiler.fallback import OptimisationFaultWarning
from compiler_service.compiler.frontend.load import import_model
from compiler_service.compiler.frontend.reading.source import ModelSource
from compiler_service.compiler.options import CompileOptions
from compiler_service.compiler.pipeline import compile_model, inference, optimize
from compiler_service.compiler.program.variants import Variant
from compiler_service.compiler.progress import Log
from compiler_service.compiler.reference.interpret import run_graph
from runtime_service.loading.loader import ExecutorKind, load_model
from tests.compiler_service.compiler.graph_passes.memory.memory_plans import Planned
from tests.oracle.control_flow_graphs import Feeds, drawn_model
from tests.oracle.control_flow_meaning import run_model

LEVELS = (0, 1, 2, 3)


def seeded(seed: int) -> tuple[onnx.ModelProto, list[Feeds]]:
    """The model of a seed and its requests."""
    random = np.random.default_rng(seed)

    def choose(options: Sequence[Any]) -> Any:
        return options[int(random.integers(len(options)))]

    return drawn_model(choose)


def check(model: onnx.ModelProto, requests: Sequence[Feeds], level: int) -> None:
    """Raises AssertionError where an answer differs, IngotError where the model is refused or its plan is wrong."""
    artifact = compile_model(_source(model), host_target(), CompileOptions(opt_level=level), workers=0)
    wanted = [run_model(model, feeds) for feeds in requests]
    ways: list[tuple[ExecutorKind, int]] = [("aot", 1), ("graph", 2), ("aot", 2), ("graph", 1)]
    for executor, threads in ways:
        with load_model(artifact, threads=threads, executor=executor) as loaded:
            for number, feeds in enumerate(requests):
                found = list(loaded.run(feeds).values())
                _assert_equal(found, wanted[number], f"level {level}, {executor}, {threads} threads, request {number}")


def check_passes(model: onnx.ModelProto, requests: Sequence[Feeds], level: int) -> None:
    """The same without code: what the passes make of the model is interpreted, and its plan is proved."""
    options = CompileOptions(opt_level=level)
    variant = Variant(import_model(_source(model), options.import_options, inference()))
    graph = optimize(variant, host_target(), options, Log()).module.graph
    Planned.of(graph).verify()
    for number, feeds in enumerate(requests):
        found = run_graph(graph, feeds)
        _assert_equal(found, run_model(model, feeds), f"passes of level {level}, request {number}")


def _source(model: onnx.ModelProto) -> ModelSource:
    return ModelSource.of(model.SerializeToString())


def _assert_equal(found: Sequence[np.ndarray], wanted: Sequence[np.ndarray], where: str) -> None:
    for number, (one, other) in enumerate(zip(found, wanted, strict=True)):
        place = f"{where}, output {number}"
        assert one.dtype == other.dtype, place
        if not one.size and not other.size:  # the sizes of rows that never were are anybody's guess
            assert one.ndim == other.ndim, place
            continue
        assert one.shape == other.shape, f"{place}: {one.shape} for {other.shape}"
        tolerance = 1e-5 if other.dtype.kind == "f" else 0.0
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance, err_msg=place)


def _check_all(model: onnx.ModelProto, requests: Sequence[Feeds], levels: Sequence[int]) -> None:
    for level in LEVELS:
        check_passes(model, requests, level)
    for level in levels:
        check(model, requests, level)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, action="append", default=[], help="this one alone, printed")
    given = parser.parse_args(arguments)
    os.environ.setdefault("VERIFY", "1")
    warnings.simplefilter("error", OptimisationFaultWarning)
    end, failed, seed = time.monotonic() + given.seconds, list[int](), given.first
    for chosen in given.seed:
        print(onnx.printer.to_text(seeded(chosen)[0]))
        _check_all(*seeded(chosen), levels=LEVELS)
    while not given.seed and time.monotonic() < end:
        try:
            _check_all(*seeded(seed), levels=LEVELS[seed % 4 :][:1])
        except Exception as error:
            failed.append(seed)
            print(f"seed {seed}: {type(error).__name__}: {str(error)[:600]}", flush=True)
        seed += 1
    print(f"{seed - given.first} models, {len(failed)} failed: {failed}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
