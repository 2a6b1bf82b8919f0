"""Operators of one's own in ONNX models, as ``te.register_operator`` defines them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import ingot
from compiler_service.compiler.tensor_expr import registry
from ingot import codegen, ir, te

RANDOM = np.random.default_rng(0)
DOMAIN = "com.example"
OTHER = te.placeholder((6,), name="other")


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    """As it was before: other tests look at all operators that there are."""
    inventory, versions = dict(registry._INVENTORY), dict(registry._OWN_VERSIONS)
    yield
    for live, saved in ((registry._INVENTORY, inventory), (registry._OWN_VERSIONS, versions)):
        live.clear()
        live.update(saved)  # type: ignore[arg-type]


def model_of(
    op: str, inputs: list[str], outputs: int = 1, dtype: int = TensorProto.FLOAT, **attributes: Any
) -> onnx.ModelProto:
    """One node between two of the standard, on ``x`` [n, 6]."""
    names = [f"o{i}" for i in range(outputs)]
    nodes = [
        helper.make_node("Add", ["x", "x"], ["a"]),
        helper.make_node(op, inputs, names, "own", domain=DOMAIN, **attributes),
        *(helper.make_node("Neg", [name], [f"y{i}"]) for i, name in enumerate(names)),
    ]
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("x", dtype, ["n", 6])],
        [helper.make_tensor_value_info(f"y{i}", dtype, None) for i in range(outputs)],
        [numpy_helper.from_array(np.arange(6, dtype=np.float32), "s")],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def define_scaled() -> None:
    @te.register_operator(DOMAIN, "Scaled", version="1")
    def scaled(x: te.Tensor, scale: te.Tensor | None = None, *, slope: float = 1.0) -> te.Tensor:
        if scale is None:
            return te.compute(x.shape, lambda *i: te.tanh(x[i] * slope))
        return te.compute(x.shape, lambda *i: te.tanh(x[i] * slope) * scale[i[-1]])


def x_of(rows: int) -> np.ndarray:
    return RANDOM.standard_normal((rows, 6)).astype(np.float32)


@pytest.mark.parametrize("level", [0, 1, 2, 3])
@pytest.mark.parametrize("executor", ["aot", "graph"])
def test_it_computes_what_it_says(executor: Literal["aot", "graph"], level: int) -> None:
    define_scaled()
    with ingot.load(
        ingot.compile(model_of("Scaled", ["a", "s"], slope=0.5), opt_level=level), executor=executor
    ) as model:
        for rows in (3, 0, 1):
            x = x_of(rows)
            expected = -np.tanh(0.5 * (x + x)) * np.arange(6, dtype=np.float32)
            np.testing.assert_allclose(model.run({"x": x})["y0"], expected, rtol=1e-5, atol=1e-6)


def test_it_is_fused_with_what_is_around_it() -> None:
    define_scaled()
    assert len(ingot.compile(model_of("Scaled", ["a", "s"])).plan.kernels) == 1


def test_inputs_may_be_left_out_and_attributes_have_defaults() -> None:
    define_scaled()
    with ingot.load(ingot.compile(model_of("Scaled", ["a"]))) as model:
        x = x_of(2)
        np.testing.assert_allclose(model.run({"x": x})["y0"], -np.tanh(x + x), rtol=1e-5)


def test_several_outputs_and_reductions() -> None:
    @te.register_operator(DOMAIN, "Ends")
    def ends(x: te.Tensor) -> tuple[te.Tensor, te.Tensor]:
        n, m = x.shape
        return te.sum((n,), (m,), lambda i, k: x[i, k]), te.max((n,), (m,), lambda i, k: x[i, k])

    with ingot.load(ingot.compile(model_of("Ends", ["a"], 2))) as model:
        x = x_of(4)
        found = model.run({"x": x})
        np.testing.assert_allclose(found["y0"], -(x + x).sum(1), rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(found["y1"], -(x + x).max(1))


def test_any_number_of_inputs_and_operators_of_the_standard_inside() -> None:
    @te.register_operator(DOMAIN, "SoftmaxOfSum")
    def softmax_of_sum(*xs: te.Tensor, axis: int = -1) -> te.Tensor:
        total = te.compute(xs[0].shape, lambda *i: sum((x[i] for x in xs[1:]), xs[0][i]))
        return te.nn.softmax(total, axis=axis)  # type: ignore[no-any-return]

    with ingot.load(ingot.compile(model_of("SoftmaxOfSum", ["a", "x", "x"], axis=0))) as model:
        x = x_of(5)
        powers = np.exp(4 * x - (4 * x).max(0))
        np.testing.assert_allclose(model.run({"x": x})["y0"], -powers / powers.sum(0), rtol=1e-5)


def test_modules_hold_it_are_read_back_and_interpreted() -> None:
    define_scaled()
    module = ir.from_onnx(model_of("Scaled", ["a", "s"], slope=2.0))
    assert str(ir.Module.parse(str(module), module.constants)) == str(module)
    x = x_of(3)
    np.testing.assert_allclose(
        module.interpret(x)[0], -np.tanh(4 * x) * np.arange(6, dtype=np.float32), rtol=1e-5, atol=1e-6
    )


def test_other_machines_get_it_too() -> None:
    define_scaled()
    assert ingot.compile(
        model_of("Scaled", ["a"]), target="llvm -mtriple=riscv64-linux-gnu"
    ).manifest.triple.startswith("riscv64")


def test_its_version_is_part_of_the_key_and_the_last_definition_counts() -> None:
    define_scaled()
    model = model_of("Scaled", ["a"])
    first = ingot.compile(model)

    @te.register_operator(DOMAIN, "Scaled", version="2")
    def scaled(x: te.Tensor) -> te.Tensor:
        return te.compute(x.shape, lambda *i: x[i] * 3.0)

    second = ingot.compile(model)
    assert first.manifest.key != second.manifest.key
    with ingot.load(second) as loaded:
        x = x_of(1)
        np.testing.assert_allclose(loaded.run({"x": x})["y0"], -6 * x, rtol=1e-6)


def test_a_file_is_read_in_this_process_where_it_says_so(tmp_path: Path) -> None:
    define_scaled()
    path = tmp_path / "model.onnx"
    onnx.save(model_of("Scaled", ["a"]), path)
    assert ingot.compile(path, in_process=True).plan.kernels
    with pytest.raises(ingot.IngotError, match="in_process=True") as caught:
        ingot.compile(path)
    assert caught.value.code is ingot.ErrorCode.UNSUPPORTED_DOMAIN


# -- mistakes


def test_nodes_that_do_not_fit_are_refused_by_name() -> None:
    define_scaled()
    for inputs, attributes, code in (
        (["a", "s", "s"], {}, ingot.ErrorCode.TYPE_MISMATCH),
        (["a"], {"sloep": 1.0}, ingot.ErrorCode.UNSUPPORTED_ATTRIBUTE),
        (["a"], {"slope": "steep"}, ingot.ErrorCode.INVALID_ARGUMENT),
    ):
        with pytest.raises(ingot.IngotError, match=r"com\.example\.Scaled") as caught:
            ingot.compile(model_of("Scaled", inputs, **attributes))
        assert caught.value.code is code


@pytest.mark.parametrize(
    ("definition", "said"),
    [
        (lambda x: {"x": x}["nothing"], "KeyError"),
        (lambda x: x.shape, "gives no tensors"),
        (lambda x: (), "gives no tensors"),
        (lambda x: None, "gives no tensors"),
        (lambda x: te.compute(x.shape, lambda i: x[i]), "the body does not take the axes"),
        (lambda x: te.compute(x.shape, lambda i, j: x[i, j] + OTHER[j]), "reads a tensor that is no input of it"),
        (lambda x: te.compute((te.var("elsewhere"), 6), lambda i, j: x[0, j]), "a symbol that no input of it has"),
        (lambda x: te.sum((6,), te.var("elsewhere"), lambda j, k: x[0, j]), "a symbol that no input of it has"),
    ],
)
def test_definitions_that_fail_are_told_as_their_own(definition: Any, said: str) -> None:
    te.register_operator(DOMAIN, "Odd")(definition)
    with pytest.raises(ingot.IngotError, match=said) as caught:
        ingot.compile(model_of("Odd", ["a"]))
    assert caught.value.blame == "user"


@pytest.mark.parametrize(
    ("domain", "name"),
    [
        ("", "Relu"),
        ("ai.onnx", "X"),
        ("ai.onnx.ml", "X"),
        ("com.microsoft", "X"),
        ("ingot", "X"),
        ("a b", "X"),
        ("com.x", ""),
        ("com.x", "a.b"),
    ],
)
def test_domains_that_have_their_operators_are_left_alone(domain: str, name: str) -> None:
    with pytest.raises(ingot.IngotError, match="no operator can be registered"):
        te.register_operator(domain, name)(lambda x: x)


def test_what_it_reads_at_positions_from_data_is_its_own_business() -> None:
    @te.register_operator(DOMAIN, "Picked")
    def picked(x: te.Tensor) -> te.Tensor:
        return te.compute(x.shape, lambda i, j: x[te.cast(x[i, 0], "int64"), j])

    for level in (0, 3):
        with pytest.raises(ingot.IngotError, match="not proven to be inside") as caught:
            ingot.compile(model_of("Picked", ["a"]), opt_level=level)
        assert (caught.value.code, caught.value.blame) == (ingot.ErrorCode.INVALID_ARGUMENT, "user")


@pytest.mark.parametrize("definition", [5, None, lambda x, **attributes: x])
def test_what_is_no_definition_is_refused_at_once(definition: Any) -> None:
    with pytest.raises(ingot.IngotError, match="is no definition"):
        te.register_operator(DOMAIN, "Odd")(definition)
    with pytest.raises(ingot.IngotError, match="version"):
        te.register_operator(DOMAIN, "Odd", version=1)(lambda x: x)  # type: ignore[arg-type]


def test_inputs_may_be_by_position_alone_and_arrays_stand_beside_them() -> None:
    @te.register_operator(DOMAIN, "Shifted")
    def shifted(x: te.Tensor, /) -> Any:
        return te.nn.add(x, np.arange(6, dtype=np.float32))

    x = RANDOM.standard_normal((2, 6)).astype(np.float32)
    with ingot.load(ingot.compile(model_of("Shifted", ["a"]))) as compiled:
        np.testing.assert_allclose(compiled.run({"x": x})["y0"], -(2 * x + np.arange(6)), rtol=1e-6)


def test_a_pattern_names_it_with_its_domain() -> None:
    te.register_operator(DOMAIN, "Shifted")(lambda x: te.compute(x.shape, lambda i, j: x[i, j] + 1.0))
    passes = [
        ir.passes.AnnotateTarget("any", [codegen.NodePattern(f"Neg({DOMAIN}.Shifted(x))")]),
        ir.passes.PartitionGraph(),
    ]
    module = ir.Sequential(passes)(ir.from_onnx(model_of("Shifted", ["a"])))
    part = module["any_0"]
    assert isinstance(part, ir.GraphFunction)
    assert [n.op for n in part.graph.nodes] == [f"{DOMAIN}.Shifted", "Neg"]
    assert str(ir.Module.parse(str(module), module.constants)) == str(module)
