"""Random control flow against its plain meaning: ``python -m tests.oracle.control_flow --seconds 600 [--first SEED]``.

Every model is compiled at one level after the other, its plan proved, and run by both executors with one thread and with two. Seeds
that fail are printed and end the run with status 1; ``--seed N`` shows one.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import onnx

from compiler_service.codegen.host import host_target
from compiler_service.frontend.source import ModelSource
from compiler_service.options import CompileOptions
from compiler_service.pipeline import compile_model
from runtime_service.loader import load_model
from tests.oracle.control_flow_graphs import Choose, Feeds, drawn_model
from tests.oracle.control_flow_meaning import run_model

LEVELS = (0, 1, 2, 3)
EXECUTORS: tuple[tuple[Literal["aot", "graph"], int], ...] = (("aot", 1), ("graph", 2), ("aot", 2), ("graph", 1))


def seeded(seed: int) -> tuple[onnx.ModelProto, list[Feeds]]:
    """The model of a seed and its requests."""
    random = np.random.default_rng(seed)

    def choose(options: Sequence[Any]) -> Any:
        return options[int(random.integers(len(options)))]

    return drawn_model(choose)


def check(model: onnx.ModelProto, requests: Sequence[Feeds], levels: Sequence[int] = LEVELS, most: int = 4) -> None:
    """Raises AssertionError where an answer differs, IngotError where the model is refused or a plan is wrong."""
    expected = [run_model(model, feeds) for feeds in requests]
    for level in levels:
        source = ModelSource.of(model.SerializeToString())
        artifact = compile_model(source, host_target(), CompileOptions(opt_level=level), workers=0)
        for executor, threads in EXECUTORS[:most]:
            where = f"level {level}, {executor}, {threads} threads"
            with load_model(artifact, threads=threads, executor=executor) as loaded:
                for number, feeds in enumerate(requests):
                    results = loaded.run(feeds)
                    for spec, wanted in zip(loaded.outputs, expected[number], strict=True):
                        _assert_equal(results[spec.name], wanted, f"{where}, request {number}: {spec.name}")


def _assert_equal(found: np.ndarray, wanted: np.ndarray, where: str) -> None:
    assert found.dtype == wanted.dtype, where
    if not found.size and not wanted.size:  # the sizes of rows that never were are anybody's guess
        assert found.ndim == wanted.ndim, where
        return
    assert found.shape == wanted.shape, f"{where}: {found.shape} for {wanted.shape}"
    if wanted.dtype.kind == "f":
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5, err_msg=where)
    else:
        np.testing.assert_array_equal(found, wanted, err_msg=where)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, action="append", default=[], help="this one alone, printed")
    given = parser.parse_args(arguments)
    os.environ.setdefault("VERIFY", "1")
    end, failed, seed = time.monotonic() + given.seconds, list[int](), given.first
    for chosen in given.seed:
        print(onnx.printer.to_text(seeded(chosen)[0]))
        check(*seeded(chosen))
    while not given.seed and time.monotonic() < end:
        try:
            check(*seeded(seed), levels=(0, 3) if seed % 2 else (1, 2, 3), most=2)
        except Exception as error:
            failed.append(seed)
            print(f"seed {seed}: {type(error).__name__}: {str(error)[:600]}", flush=True)
        seed += 1
    print(f"{seed - given.first} models, {len(failed)} failed: {failed}")
    return bool(failed)


__all__ = ["Choose", "check", "main", "seeded"]

if __name__ == "__main__":
    sys.exit(main())
