"""Both executors on the hand-written model: equal results, clear refusals, concurrency, profiles."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from compiler_service.compiler.codegen.toolchain.elf import read_shared_library
from compiler_service.compiler.codegen.toolchain.link import PUBLIC_SYMBOLS
from runtime_service.executors.graph import GraphExecutor, overlap
from runtime_service.executors.library import Handle
from runtime_service.executors.resources import Resources
from runtime_service.executors.signature import array_dtype
from runtime_service.loading.loader import ExecutorKind, load_model, load_models
from runtime_service.loading.model import Model
from shared_ir.artifact.value import CompiledArtifact
from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr import Binary, BinaryOp, Expr, Select, Var
from shared_ir.expr.dim import symbol
from shared_ir.plan.program import KernelSpec, Launch, Plan, TensorSpec
from shared_ir.sizes import Sizes
from tests.native_models import INNER, MAX_BATCH, WIDTH, NativeModel, build_model, toy_feeds, toy_plan, toy_reference

SIZES = (1, 2, 3, 16, 17, 100, MAX_BATCH)
Feeds = dict[str, np.ndarray[Any, Any]]


@pytest.fixture(scope="module")
def artifact() -> CompiledArtifact:
    return build_model().artifact()


@pytest.fixture(params=["aot", "graph"])
def kind(request: pytest.FixtureRequest) -> ExecutorKind:
    found: ExecutorKind = request.param
    return found


@pytest.fixture
def model(artifact: CompiledArtifact, kind: ExecutorKind) -> Iterator[Model]:
    with load_model(artifact, threads=2, executor=kind) as loaded:
        yield loaded


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_executors_agree_bit_for_bit_at_every_size(artifact: CompiledArtifact, threads: int) -> None:
    with (
        load_model(artifact, threads, "aot") as aot,
        load_model(artifact, threads, "graph") as graph,
        load_model(artifact, 1, "aot") as single,
    ):
        for batch in (*SIZES, *reversed(SIZES)):  # sizes grow and shrink: the arena is kept
            feeds = toy_feeds(batch, seed=batch)
            results = [m.run(feeds) for m in (aot, graph, single)]
            for name, expected in toy_reference(feeds).items():
                np.testing.assert_allclose(results[0][name], expected, rtol=1e-5, atol=1e-5)
                assert results[0][name].dtype == np.float32
                assert results[0][name].tobytes() == results[1][name].tobytes() == results[2][name].tobytes()


def test_no_rows_give_no_rows(model: Model) -> None:
    found = model.run(toy_feeds(0))
    assert {name: array.shape for name, array in found.items()} == {"sum": (0, WIDTH), "pairs": (0, WIDTH)}


def test_specs(model: Model) -> None:
    assert [str(t.name) for t in model.inputs] == ["x", "r"]
    assert str(model.outputs[1].shape[0]) == "(batch + 1) // 2"


def test_arrays_of_any_layout(model: Model) -> None:
    feeds = toy_feeds(6)
    expected = model.run(feeds)
    padded = np.zeros((6, INNER * 2), np.float32)
    padded[:, ::2] = feeds["x"]
    raw = np.zeros(feeds["r"].nbytes + 1, np.uint8)
    unaligned = raw[1:].view(np.float32).reshape(feeds["r"].shape)
    unaligned[:] = feeds["r"]
    frozen = feeds["r"].copy()
    frozen.flags.writeable = False
    layouts: list[Feeds] = [
        {"x": np.asfortranarray(feeds["x"]), "r": unaligned},
        {"x": padded[:, ::2], "r": frozen},
        {"r": feeds["r"], "x": feeds["x"][::-1][::-1]},
    ]
    for other in layouts:
        found = model.run(other)
        assert all(found[name].tobytes() == expected[name].tobytes() for name in expected)


def test_results_are_the_callers_own(model: Model) -> None:
    first = model.run(toy_feeds(3))
    kept = first["sum"].copy()
    model.run(toy_feeds(3, seed=99))
    np.testing.assert_array_equal(first["sum"], kept)
    first["sum"][:] = 0  # writable


def wrong(**changes: Any) -> Feeds:
    return {name: array for name, array in (toy_feeds(4) | changes).items() if array is not None}


@pytest.mark.parametrize(
    ("feeds", "tensor", "expected", "received"),
    [
        (wrong(r=None), "r", "x, r", "x"),
        (wrong(y=np.zeros(1)), "y", "x, r", "x, r, y"),
        (wrong(x=np.zeros((4, INNER))), "x", "float32", "float64"),
        (wrong(x=np.zeros((4, INNER), ">f4")), "x", "float32", "float32 of foreign byte order"),
        (wrong(x=[[1, 2], [3, 4]]), "x", "float32", "int64"),
        (wrong(x=np.zeros(INNER, np.float32)), "x", "float32[batch, 12]", "[12]"),
        (wrong(x=np.zeros((4, INNER, 1), np.float32)), "x", "float32[batch, 12]", "[4, 12, 1]"),
        (wrong(x=np.zeros((4, 13), np.float32)), "x", "float32[batch, 12]", "[4, 13]"),
        (wrong(r=np.zeros((3, WIDTH), np.float32)), "", "4", "3"),
        (toy_feeds(MAX_BATCH + 1), "", "at least 0", "-1"),
        ({}, "x", "x, r", "nothing"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_refusals_name_tensor_expected_and_received(
    model: Model, feeds: Feeds, tensor: str, expected: str, received: str
) -> None:
    with pytest.raises(IngotError) as caught:
        model.run(feeds)
    error = caught.value
    assert error.code is ErrorCode.INVALID_ARGUMENT
    assert (error.tensor, error.expected, error.received) == (tensor, expected, received)
    assert tensor in error.message
    model.run(toy_feeds(4))  # unharmed


def test_symbols_and_constraints_are_named(model: Model) -> None:
    with pytest.raises(IngotError, match=r"input 'r' axis 0 \(batch\)"):
        model.run(wrong(r=np.zeros((3, WIDTH), np.float32)))
    with pytest.raises(IngotError, match="rows left of the largest batch"):
        model.run(toy_feeds(MAX_BATCH + 1))


@pytest.mark.parametrize(("threads", "instances"), [(1, 1), (1, 4), (2, 3)])
def test_eight_python_threads(artifact: CompiledArtifact, kind: ExecutorKind, threads: int, instances: int) -> None:
    cases = [(feeds, toy_reference(feeds)) for feeds in (toy_feeds(batch, seed=batch) for batch in SIZES)]
    with load_model(artifact, threads, kind, instances) as model, ThreadPoolExecutor(8) as pool:

        def work(worker: int) -> int:
            for i in range(60):
                feeds, expected = cases[(worker + i) % len(cases)]
                found = model.run(feeds)
                for name, array in expected.items():
                    np.testing.assert_allclose(found[name], array, rtol=1e-5, atol=1e-5)
            return 1

        assert sum(pool.map(work, range(8))) == 8


SLEEPER = """
#include <time.h>
void k_sleep(void *const *b, const long *s, long begin, long end, void *scratch, const volatile int *stop) {
  (void)stop;
  struct timespec t = {0, 50 * 1000 * 1000};
  (void)b; (void)s; (void)begin; (void)end; (void)scratch;
  nanosleep(&t, 0);
}
"""


def sleeper(tasks: int) -> CompiledArtifact:
    plan = Plan(
        "sleeper", (), (), (), (), (), (KernelSpec("sleep"),), (Launch(0, (), (), tasks, label="nap", flops=7),)
    )
    built = build_model(plan=plan, kernels=SLEEPER, symbols=("k_sleep",))
    return NativeModel(plan, built.target, built.objects, b"").artifact()


def test_the_gil_is_released_while_a_model_runs() -> None:
    with load_model(sleeper(1), threads=1) as model:
        runner = threading.Thread(target=lambda: model.run({}))
        runner.start()
        turns = 0
        while runner.is_alive():
            turns += 1
            time.sleep(0.001)
        assert turns > 10


def test_instances_run_at_once_and_calls_beyond_them_wait() -> None:
    def seconds(instances: int) -> float:
        with load_model(sleeper(1), threads=1, instances=instances) as model, ThreadPoolExecutor(4) as pool:
            start = time.perf_counter()
            list(pool.map(lambda _: model.run({}), range(4)))
            return time.perf_counter() - start

    assert seconds(1) >= 0.2
    assert seconds(4) < 0.19


def test_tasks_run_in_parallel_on_the_models_own_threads() -> None:
    with load_model(sleeper(4), threads=4) as model:
        start = time.perf_counter()
        model.run({})
        assert time.perf_counter() - start < 0.19  # four naps of 50 ms; each thread takes one call


def test_models_that_share_one_mapping(artifact: CompiledArtifact) -> None:
    models = load_models(artifact, 3, Resources(threads=1))
    models[0].close()
    feeds = toy_feeds(5)
    assert models[1].run(feeds)["sum"].tobytes() == models[2].run(feeds)["sum"].tobytes()
    models[1].close()
    models[2].run(feeds)
    models[2].close()


def test_profile_is_in_the_order_of_the_plan(model: Model) -> None:
    rows = model.profile(toy_feeds(10), repeat=3)
    assert [(row.label, row.kernel, row.nodes) for row in rows] == [
        ("x @ w", "matmul", ("MatMul_0",)),
        ("add", "add", ("Add_0",)),
        ("pairs", "pairs", ("Pairs_0",)),
    ]
    assert (rows[0].flops, rows[0].bytes) == (10 * 2 * INNER * WIDTH, 10 * WIDTH * 4)
    assert all(0 < row.seconds < 1 for row in rows)


def test_profile_measures_the_kernel() -> None:
    with load_model(sleeper(1), threads=1) as model:
        (row,) = model.profile({}, repeat=1)
        assert 0.05 <= row.seconds < 0.2
        assert (row.label, row.flops) == ("nap", 7)


def test_profile_repeats_launches_where_they_stand(artifact: CompiledArtifact, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[tuple[int, int]] = []
    first = {0: 9_000.0, 1: 50.0, 2: 2e6}  # nanoseconds of the launch of the run, by kernel

    def counted(self: Handle, kernel: int, buffers: Any, symbols: Any, tasks: int, times: int) -> float:
        ran.append((kernel, times))
        return first[kernel] if times == 1 else 40.0

    monkeypatch.setattr(Handle, "time_kernel", counted)
    with load_model(artifact, threads=1) as model:
        rows = model.profile(toy_feeds(10), repeat=2, warm=3)
    assert [row.seconds for row in rows] == [40e-9] * 3
    # as often as asked, and more often where the time would be that of the clock
    assert ran == [(0, 1), (0, 3), (1, 1), (1, 400), (2, 1), (2, 3)] * 2


def test_profile_of_a_library_that_cannot_time(monkeypatch: pytest.MonkeyPatch) -> None:
    earlier = tuple(n for n in PUBLIC_SYMBOLS if n != "ingot_time_kernel")
    monkeypatch.setattr("compiler_service.compiler.codegen.toolchain.link.PUBLIC_SYMBOLS", earlier)
    artifact = build_model().artifact()
    assert read_shared_library(artifact.library).exports == earlier
    with load_model(artifact, threads=2) as model:
        rows = model.profile(toy_feeds(10), repeat=2, warm=3)
    assert [row.kernel for row in rows] == ["matmul", "add", "pairs"]
    assert all(0 < row.seconds < 1 for row in rows)


def test_launches_in_place_are_repeated_beside_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan adds r to the product where it lies, then once more into the output."""
    plan = toy_plan()
    product, add, pairs = (s for s in plan.steps if isinstance(s, Launch))
    plan = replace(plan, steps=(product, replace(add, buffers=(3, 1, 3)), add, pairs))
    found: list[list[Any]] = []
    execute = GraphExecutor._execute

    def kept(self: GraphExecutor, *arguments: Any) -> list[Any]:
        found.append(execute(self, *arguments))
        return found[-1]

    monkeypatch.setattr(GraphExecutor, "_execute", kept)
    feeds = toy_feeds(100)
    with load_model(build_model(plan=plan).artifact(), threads=2) as model:
        rows = model.profile(feeds, repeat=2, warm=4)
        expected = model.run(feeds)
    assert [row.kernel for row in rows] == ["matmul", "add", "add", "pairs"]
    assert len(found) == 3
    for outputs in found:
        for output, name in zip(outputs, ("sum", "pairs"), strict=True):
            assert output.tobytes() == expected[name].tobytes()


@pytest.mark.parametrize(
    ("blocks", "expected"),
    [([(64, 64), (128, 32), (32, 32)], False), ([(64, 65), (128, 32)], True), ([(64, 8), (64, 8)], True), ([], False)],
)
def test_blocks_that_share_memory(blocks: list[tuple[int, int]], expected: bool) -> None:
    assert overlap(blocks) is expected


def test_many_shapes_do_not_pile_up(artifact: CompiledArtifact) -> None:
    with load_model(artifact, threads=1) as model:
        for batch in range(1, 400):
            assert model.run(toy_feeds(batch))["sum"].shape == (batch, WIDTH)
        gc.collect()
        feeds = toy_feeds(1)
        np.testing.assert_allclose(model.run(feeds)["sum"], toy_reference(feeds)["sum"], rtol=1e-5, atol=1e-5)


def test_fixed_cost_of_a_call(artifact: CompiledArtifact) -> None:
    feeds = toy_feeds(1)
    with load_model(artifact, threads=1) as model:
        times = []
        for _ in range(2000):
            start = time.perf_counter_ns()
            model.run(feeds)
            times.append(time.perf_counter_ns() - start)
    assert min(times) < 30_000  # nanoseconds; 8 us on an idle machine, for two inputs and two outputs


def test_every_dtype_has_arrays() -> None:
    for dtype in DType:
        if dtype is not DType.STRING:
            assert array_dtype(dtype).itemsize == max(1, dtype.bits // 8), dtype
    with pytest.raises(IngotError, match="string"):
        array_dtype(DType.STRING)


def test_spec_type(model: Model) -> None:
    assert all(isinstance(spec, TensorSpec) for spec in (*model.inputs, *model.outputs))


def test_sizes_deeper_than_the_stack_of_python() -> None:
    total: Expr = symbol("n")
    count = 5000
    for index in range(count):
        total = Binary(BinaryOp.ADD, total, Var(f"n{index}"))
    values = {"n": 5, **{f"n{index}": index for index in range(count)}}
    assert Sizes(values).value(total) == 5 + sum(range(count))


def test_only_the_chosen_part_of_a_selection_is_computed() -> None:
    n = symbol("n")
    sizes = Sizes({"n": 3})
    assert sizes.value(Select(n < 4, n * 2, Var("not_yet"))) == 6
    with pytest.raises(IngotError, match="not_yet") as caught:
        sizes.value(Select(n < 3, n * 2, Var("not_yet")))
    assert caught.value.code is ErrorCode.ARTIFACT_CORRUPT
