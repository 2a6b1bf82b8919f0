"""Modules print, parse, verify, run, are compiled and saved; what does not fit together is refused with a sentence."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from onnx import helper
from onnx.backend.test.case.node import collect_testcases

import ingot
from ingot import ir, te
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.graph.ir import Module as Model
from tests.ingot.ir.programs import INCREMENT, Array, double, doubled_and_increased, drawn, expected
from tests.ingot.small_models import classifier, expected_scores, model, value
from tests.shared_ir.graph.random_graphs import modules, same_graph

LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"


def run(module: ir.Module, x: Array) -> Array:
    (found,) = ingot.load(ingot.compile(module, workers=0)).run({"x": x}).values()
    return np.asarray(found)


# -- text


def parsed_again(module: ir.Module) -> ir.Module:
    found = ir.Module.parse(str(module), module.constants)
    assert str(found) == str(module)
    return found


@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=50)
@given(modules())
def test_parse_inverts_print(drawn_model: Model) -> None:
    module = ir.Module._of(drawn_model).with_(INCREMENT, double())
    found = parsed_again(module)
    assert same_graph(found.main.graph, module.main.graph)
    assert (found.interface.input_names, found.interface.metadata) == (drawn_model.input_names, drawn_model.metadata)


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted(LIGHT.glob("*.onnx")), ids=lambda p: p.stem)
def test_parse_inverts_print_of_models(path: Path) -> None:
    parsed_again(ir.from_onnx(path))


@pytest.mark.slow
def test_parse_inverts_print_of_the_conformance_models() -> None:
    """Every fifth of them: strings, sequences, loops, every operator and element type."""
    imported = 0
    for case in collect_testcases(None)[::5]:
        with contextlib.suppress(IngotError):
            module = ir.from_onnx(case.model)
            imported += 1
            parsed_again(module).verify()
    assert imported > 300


@pytest.mark.parametrize("seed", range(20))
def test_parse_inverts_print_of_functions_that_call_each_other(seed: int) -> None:
    parsed_again(drawn(random.Random(seed)).module).verify()


def test_strings_and_defaults_are_in_the_text() -> None:
    strings = helper.make_tensor("words", onnx.TensorProto.STRING, [2], [b"yes", b"no"])
    node = helper.make_node("Equal", ["x", "words"], ["y"])
    graph = helper.make_graph(
        [node, helper.make_node("Mul", ["a", "factor"], ["b"])],
        "g",
        [
            helper.make_tensor_value_info("x", onnx.TensorProto.STRING, [2]),
            value("a", [3]),
            value("factor", [3]),
        ],
        [helper.make_tensor_value_info("y", onnx.TensorProto.BOOL, [2]), value("b", [3])],
        [strings, onnx.numpy_helper.from_array(np.full(3, 2, np.float32), "factor")],
    )
    module = ir.from_onnx(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=10))
    found = parsed_again(module).interface
    assert set(found.strings) >= {"yes", "no"}
    assert found.objects["x"].dtype is ir.DType.STRING
    np.testing.assert_array_equal(found.defaults["factor"], np.full(3, 2, np.float32))


def test_text_of_a_module() -> None:
    text = str(doubled_and_increased())
    assert text.startswith("module {opset=0}\ngraph main(%x: float32[n, 4]) -> (%y) {\n")
    assert '%double: float32[n * 4] = ingot.Invoke(%reshape) {function="double"}' in text
    assert text.endswith("    for d0 in 0..min(n - t * 64, 64):\n        y[t * 64 + d0] = x[t * 64 + d0] + 1.0\n")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("module {opset=1}\ngraph main() -> () {\n}\nloops\n", "line 4: the text of a module holds graphs"),
        ("module {opset=1}\nfunction f(out y: float32[1])\nfor task t in 0..1:\n    y[0] = z\n", "line 4"),
        ("module {opset=1}\ngraph f() -> () { }\ngraph f() -> () { }", "a name of its own"),
        ("module {opset=1}\ngraph main() -> (%y) { }", "%y is not defined"),
    ],
)
def test_text_that_is_none(text: str, message: str) -> None:
    with pytest.raises(IngotError, match=message) as caught:
        ir.Module.parse(text)
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT


# -- meaning


@pytest.mark.parametrize("size", [0, 1, 15, 16, 17, 1003])
def test_calls_of_graphs_and_loops_compile(size: int) -> None:
    module = doubled_and_increased()
    x = np.random.default_rng(size).standard_normal((size, 4)).astype(np.float32)
    np.testing.assert_allclose(module.interpret(x)[0], expected(x), rtol=1e-6)
    np.testing.assert_allclose(run(module, x), expected(x), rtol=1e-6)


@pytest.mark.parametrize("level", [0, 1, 2])
def test_calls_compile_at_every_level(level: int) -> None:
    x = np.linspace(-1, 1, 20, dtype=np.float32).reshape(5, 4)
    found = ingot.load(ingot.compile(doubled_and_increased(), opt_level=level, workers=0)).run({"x": x})
    np.testing.assert_allclose(found["y"], expected(x), rtol=1e-6)


@pytest.mark.parametrize("seed", range(30))
def test_drawn_functions_mean_what_they_are_made_of(seed: int) -> None:
    found = drawn(random.Random(seed))
    for x in (np.linspace(-2, 3, 70, dtype=np.float32), np.linspace(-3, -1, 3, dtype=np.float32)):
        np.testing.assert_allclose(found.module.interpret(x)[0], found.expected(x), rtol=1e-6)


@pytest.mark.slow
@pytest.mark.sampled
@pytest.mark.parametrize("seed", range(100, 120))
def test_so_does_the_code(seed: int) -> None:
    found = drawn(random.Random(seed))
    x = np.linspace(-2, 3, 70, dtype=np.float32)
    np.testing.assert_allclose(run(found.module, x), found.expected(x), rtol=1e-6)


def test_functions_by_name() -> None:
    module = doubled_and_increased()
    assert ([f.name for f in module], len(module)) == (["main", "double", "unused", "increment"], 4)
    twice, more = module["double"], module["increment"]
    (found,) = twice.interpret(np.ones(3, np.float32))
    np.testing.assert_array_equal(found, np.full(3, 2, np.float32))
    np.testing.assert_array_equal(more.interpret(found)[0], np.full(3, 3, np.float32))
    np.testing.assert_array_equal(module.interpret(found, function="unused")[0], -found)
    assert "unused" not in module.without("unused")
    with pytest.raises(IngotError, match="no function 'triple'") as caught:
        module["triple"]
    assert (caught.value.code, caught.value.expected) == (
        ErrorCode.NOT_FOUND,
        "one of main, double, unused, increment",
    )
    with pytest.raises(IngotError, match="calls others"):
        module.main.interpret(found)


def test_symbols_and_names_of_a_function_are_its_own() -> None:
    """It is called with its own symbols the other way round, defines a symbol, and has a branch that reads a value of its own."""
    module = ir.Module.parse("""
        module {opset=1}
        graph main(%a: float32[n, m], %b: float32[m, n], %v: float32[m]) -> (%p, %q, %c, %d) {
          %p: float32[n, m] = ingot.Invoke(%b) {function="turned"}
          %q: float32[m, n] = ingot.Invoke(%a) {function="turned"}
          %c: int64[k] = ingot.Invoke(%v) {function="places"}
          %w: float32[m] = Neg(%v)
          %d: int64[l] = ingot.Invoke(%w) {function="places"}
        }
        graph turned(%a: float32[n, m]) -> (%p) {
          const %zero: float32[] = [0.0]
          %t: float32[m, n] = Transpose(%a) {perm=(1, 0)}
          %sum: float32[] = ReduceSum(%t, _) {keepdims=0}
          %q: bool[] = Greater(%sum, %zero)
          %p: float32[m, n] = If(%q) {
            then_branch=graph then() -> (%b) {
              %b: float32[m, n] = Neg(%t)
            },
            else_branch=graph otherwise() -> (%c) {
              %c: float32[m, n] = Abs(%t)
            }
          }
        }
        graph places(%a: float32[n]) -> (%found) {
          const %zero: float32[] = [0.0]
          %set: bool[n] = Greater(%a, %zero)
          %ones: int64[n] = Cast(%set) {to=int64}
          %sum: int64[1] = ReduceSum(%ones) {keepdims=1}
          %count: int64[1] = ingot.Define(%sum) {symbols=(`k`,)}
          %found: int64[k] = ingot.Positions(%set) {count=`k`}
        }
    """)
    a, b = np.arange(6, dtype=np.float32).reshape(2, 3), -np.ones((3, 2), np.float32)
    p, q, positive, negative = module.interpret(a, b, v := np.array([1, -2, 3], np.float32))
    np.testing.assert_array_equal(p, np.abs(b.T))
    np.testing.assert_array_equal(q, -a.T)
    np.testing.assert_array_equal(positive, [0, 2])
    np.testing.assert_array_equal(negative, [1])
    found = ingot.load(ingot.compile(module, workers=0)).run({"a": a, "b": b, "v": v})
    for name, wanted in zip("pqcd", (p, q, positive, negative), strict=True):
        np.testing.assert_array_equal(found[name], wanted)


def test_a_function_may_give_what_it_is_given() -> None:
    module = ir.Module.parse("""
        module {opset=1}
        graph main(%x: float32[n]) -> (%a, %b, %c) {
          %a: float32[n], %b: float32[n], %c: float32[2] = ingot.Invoke(%x) {function="same"}
        }
        graph same(%x: float32[n]) -> (%x, %x, %two) {
          const %two: float32[2] = [1.0, 2.0]
        }
    """)
    x = np.arange(3, dtype=np.float32)
    for result, wanted in zip(module.interpret(x), (x, x, [1, 2]), strict=True):
        np.testing.assert_array_equal(result, wanted)
    found = ingot.load(ingot.compile(module, workers=0)).run({"x": x})
    np.testing.assert_array_equal(found["c"], [1, 2])


# -- what does not fit


@pytest.mark.parametrize(
    ("functions", "code", "message"),
    [
        (
            """
            graph main(%x: float32[n]) -> (%y) { %y: float32[n] = ingot.Invoke(%x) {function="f"} }
            graph f(%x: float32[n]) -> (%y) { %y: float32[n] = ingot.Invoke(%x) {function="main"} }
            """,
            ErrorCode.INVALID_ARGUMENT,
            "received main calls f calls main",
        ),
        (
            'graph main(%x: float32[n]) -> (%y) { %y: float32[n] = ingot.Invoke(%x) {function="g"} }',
            ErrorCode.NOT_FOUND,
            "no function 'g'",
        ),
        (
            """
            graph main(%x: float32[n, 4]) -> (%y) { %y: float32[n] = ingot.Invoke(%x) {function="f"} "call" }
            graph f(%x: float32[n]) -> (%y) { %y: float32[n] = Neg(%x) }
            """,
            ErrorCode.TYPE_MISMATCH,
            "function 'f' does not fit it; at node 'call",
        ),
        (
            """
            graph main(%x: float32[n], %z: float32[m]) -> (%y) { %y: float32[n] = ingot.Invoke(%x, %z) {function="f"} }
            graph f(%x: float32[n], %z: float32[n]) -> (%y) { %y: float32[n] = Add(%x, %z) }
            """,
            ErrorCode.TYPE_MISMATCH,
            "expected float32\\[n\\], received %z: float32\\[m\\]",
        ),
        (
            "graph main(%x: float32[n, 4]) -> (%y) { %y: float32[n, 5] = Neg(%x) }",
            ErrorCode.TYPE_MISMATCH,
            "another type than its operator gives",
        ),
        (
            "graph main(%x: float32[n, 4]) -> (%y) { %y: float32[n, 4] = Nag(%x) }",
            ErrorCode.UNSUPPORTED_OPERATOR,
            "no operator Nag",
        ),
    ],
)
def test_what_does_not_fit_is_refused(functions: str, code: ErrorCode, message: str) -> None:
    module = ir.Module.parse(f"module {{opset=1}} {functions}")
    for asked in (module.verify, lambda: ingot.compile(module)):
        with pytest.raises(IngotError, match=message) as caught:
            asked()
        assert caught.value.code is code


def chain(length: int, calls: int) -> ir.Module:
    """Functions of which each calls the next so many times."""
    text = ["module {opset=1}"]
    for number in range(length):
        name, next_one = "main" if number == 0 else f"f{number}", f"f{number + 1}"
        nodes = [f'%v{i + 1}: float32[n] = ingot.Invoke(%v{i}) {{function="{next_one}"}}' for i in range(calls)]
        text.append(f"graph {name}(%v0: float32[n]) -> (%v{calls}) {{ {' '.join(nodes)} }}")
    return ir.Module.parse(
        "\n".join([*text, f"graph f{length}(%x: float32[n]) -> (%y) {{ %y: float32[n] = Neg(%x) }}"])
    )


def test_calls_are_as_deep_as_they_like_and_no_more_than_memory_holds() -> None:
    deep, many = chain(1500, 1), chain(40, 2)
    x = np.arange(3, dtype=np.float32)
    np.testing.assert_array_equal(deep.interpret(x)[0], -x)
    many.verify()
    for asked in (lambda: many.interpret(x), lambda: ingot.compile(many)):
        with pytest.raises(IngotError, match="too many nodes") as caught:
            asked()
        assert caught.value.code is ErrorCode.LIMIT_EXCEEDED


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "function f(x: float32[n], out y: float32[n], out z: float32[n]; n: int64)\n"
            "for task t in 0..n:\n    y[t] = x[t]\n    z[t] = x[t]\n",
            "expected one result",
        ),
        (
            "function f(x: float32[2 * n], out y: float32[2 * n]; n: int64)\nfor task t in 0..2 * n:\n    y[t] = x[t]\n",
            "symbols that are extents of its arguments, received n",
        ),
        (
            "function f(x: int64[n], out y: int64[n]; n: int64)\nfor task t in 0..n:\n    y[t] = x[x[t]]\n",
            "proven inside",
        ),
    ],
)
def test_loops_that_no_graph_can_call(text: str, message: str) -> None:
    b = ir.GraphBuilder()
    x = b.input("x", (4,), "int64" if "int64[n]," in text else "float32")
    with pytest.raises(IngotError, match=message):
        b.call(ir.LoopFunction.parse(text), x)


@pytest.mark.parametrize(
    ("op", "attributes"),
    [("Loops", {"program": str(INCREMENT)}), ("Cumulative", {"axis": 0, "product": 0}), ("None", {})],
)
def test_a_model_brings_no_operators_of_the_compiler(op: str, attributes: dict[str, str | int]) -> None:
    """An ONNX file may not say what memory is written to, nor what the compiler takes for granted."""
    proto = model(
        [helper.make_node(op, ["x"], ["y"], domain="ingot", **attributes)],
        [value("x", ["n"])],
        [value("y", ["n"])],
    )
    proto.opset_import.append(helper.make_opsetid("ingot", 1))
    with pytest.raises(IngotError) as caught:
        ir.from_onnx(proto)
    assert caught.value.code is ErrorCode.UNSUPPORTED_DOMAIN


def test_a_module_without_main_is_not_compiled() -> None:
    with pytest.raises(IngotError, match="no function 'main'"):
        ingot.compile(ir.Module((double(), INCREMENT)))


def test_loops_of_a_schedule_are_called() -> None:
    """What ``te.lower`` makes, with a tail, vectors and tasks."""
    m = te.var("m")
    first, second = te.placeholder((m,), name="first"), te.placeholder((m,), name="second")
    total = te.compute((m,), lambda i: first[i] + second[i], name="total")
    schedule = te.schedule(total)
    outer, inner = schedule[total].split("i", 64)
    schedule[total].vectorize(inner, 16).parallel(outer)
    add = te.lower(schedule, [first, second], name="add")["total"]
    b = ir.GraphBuilder()
    x = b.input("x", (ir.symbol("n"), 3))
    rows = b.reshape(x, (-1,))
    module = ir.Module((b.function(b.call(add, rows, b.neg(b.call(add, rows, rows)), name="y")), add))
    parsed_again(module).verify()
    given_x = np.random.default_rng(0).random((45, 3), dtype=np.float32)
    for found in (module.interpret(given_x)[0], run(module, given_x)):
        np.testing.assert_allclose(found, -given_x.reshape(-1), rtol=1e-6)


def test_a_module_has_been_read_already() -> None:
    for option in ({"shapes": {"x": [1, 4]}}, {"overridable": ["x"]}, {"external_data": {"x": b""}}):
        with pytest.raises(IngotError, match="a module has been read"):
            ingot.compile(doubled_and_increased(), **option)


def test_calls_of_loops_run_in_every_executor_and_bundle() -> None:
    x = np.linspace(-1, 1, 20, dtype=np.float32).reshape(5, 4)
    artifact = ingot.compile(doubled_and_increased(), bundle="shared")
    assert artifact.attachments["bundle.so"]
    for executor in ("aot", "graph"):
        found = ingot.load(artifact, executor=executor).run({"x": x})
        np.testing.assert_allclose(found["y"], expected(x), rtol=1e-6)
    assert ingot.compile(doubled_and_increased(), "raspberry-pi/4b").manifest.cpu == "cortex-a72"


# -- models and files


def test_a_model_as_a_module() -> None:
    proto, x = classifier(), np.random.default_rng(0).random((2, 3, 8, 8), dtype=np.float32)
    module = ir.from_onnx(proto, shapes={"image": ["batch", 3, 8, 8]})
    assert str(module.main.graph.inputs[0]) == "%image: float32[batch, 3, 8, 8]"
    wanted = expected_scores(proto, x)
    np.testing.assert_allclose(module.interpret(x)[0], wanted, rtol=1e-4)
    artifact = ingot.compile(module, name="of-a-module")
    np.testing.assert_allclose(ingot.load(artifact).run({"image": x})["scores"], wanted, rtol=1e-4)
    assert artifact.manifest.key == ingot.compile(parsed_again(module), name="of-a-module").manifest.key
    assert artifact.manifest.key != ingot.compile(module, name="of-a-module", opt_level=2).manifest.key


def test_save_and_load(tmp_path: Path) -> None:
    for name, module in (("model", ir.from_onnx(classifier())), ("functions", doubled_and_increased())):
        module.save(tmp_path / name)
        assert str(ir.load(tmp_path / name)) == str(module)
        ir.load(tmp_path / name).save(tmp_path / "again")
        assert (tmp_path / "again").read_bytes() == (tmp_path / name).read_bytes()


def test_arrays_of_every_element_type_are_saved(tmp_path: Path) -> None:
    import ml_dtypes

    b = ir.GraphBuilder()
    arrays = [
        np.arange(40).astype(t)
        for t in (np.uint8, np.float16, np.float64, np.int64, ml_dtypes.bfloat16, ml_dtypes.int4)
    ]
    outputs = [b.identity(b.constant(a)) for a in arrays]
    module = ir.Module((ir.GraphFunction(ir.Graph("main", (), tuple(outputs), tuple(b._nodes.nodes), b._nodes.added)),))
    module.save(tmp_path / "all")
    found = ir.load(tmp_path / "all").main.graph.constants
    assert [a.dtype for a in found.values()] == [a.dtype for a in arrays]
    for was, now in zip(arrays, found.values(), strict=True):
        np.testing.assert_array_equal(was, now)


@pytest.mark.parametrize("damage", [b"", b"PK", b"module {opset=1}"])
def test_a_file_that_is_no_module(tmp_path: Path, damage: bytes) -> None:
    (tmp_path / "file").write_bytes(damage)
    with pytest.raises(IngotError, match="no module, or damaged") as caught:
        ir.load(tmp_path / "file")
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT
    with pytest.raises(IngotError) as caught:
        ir.load(tmp_path / "none")
    assert caught.value.code is ErrorCode.NOT_FOUND
