"""Passes alone and in sequences, those of the compiler and those of users, with whoever watches them."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import pytest

import ingot
from compiler_service.compiler.graph_passes.pipelines import PASSES
from compiler_service.compiler.graph_passes.pipelines import default_pipeline as own_pipeline
from ingot import ir
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.machine.target import parse_target
from tests.ingot.ir.programs import doubled_and_increased, expected
from tests.ingot.small_models import classifier, expected_scores

SQUARES = """
    module {opset=1}
    graph main(%x: float32[n]) -> (%z) {
      const %two: float32[] = [2.0]
      const %two_again: float32[] = [2.0]
      %a: float32[n] = Pow(%x, %two) "a"
      %b: float32[n] = Pow(%x, %two_again) "b"
      %dead: float32[n] = Neg(%x)
      %z: float32[n] = Add(%a, %b)
    }
"""


def product(node: ir.Node, site: ir.Site) -> ir.Value | None:
    """x ** 2 -> x * x"""
    base, power = node.operands
    return site.node("Mul", base, base) if site.scalar(power) == 2 else None


@ir.function_pass("square-by-product", level=1, forbids=["grouped"], gives=["squares-multiplied"])
def square_by_product(graph: ir.Graph) -> ir.Graph:
    return ir.rewrite(graph, [ir.rule("Pow", product)])


def ops(module: ir.Module) -> list[str]:
    return [n.op for n in module.main.graph.nodes]


# -- alone


def test_an_own_pass() -> None:
    module = ir.Module.parse(SQUARES)
    found = square_by_product(module)
    assert ops(found) == ["Mul", "Mul", "Add"]
    assert square_by_product(found) is found
    x = np.arange(4, dtype=np.float32)
    np.testing.assert_array_equal(found.interpret(x)[0], 2 * x**2)


def test_each_pass_of_the_compiler_is_callable() -> None:
    module = ir.Module.parse(SQUARES)
    names = set(dir(ir.passes)) - set(ir.passes.__all__)
    assert names == {p.__name__ for p in PASSES.values()}
    for name in sorted(names):
        made = getattr(ir.passes, name)
        assert made.__doc__
        assert isinstance(made()(module), ir.Module)
    assert ops(ir.passes.EliminateDeadCode()(module)) == ["Pow", "Pow", "Add"]
    assert ops(ir.passes.EliminateCommonSubexpressions()(module)).count("Pow") == 1
    assert set(ops(ir.passes.Fuse()(module))) == {"ingot.Group"}
    assert str(ir.passes.Fuse(merge=False)) == "fuse{merge=false}"
    assert ir.passes.of_name("fold-constants") == ir.passes.FoldConstants()
    with pytest.raises(AttributeError, match="Fuze"):
        ir.passes.Fuze  # noqa: B018
    with pytest.raises(IngotError, match="no pass 'fuze'"):
        ir.passes.of_name("fuze")


def test_basic_block_form() -> None:
    module = ir.Module.parse("""
        module {opset=1}
        graph main(%x: float32[n], %c: bool[]) -> (%y) {
          %a: float32[n] = Exp(%x)
          %b: float32[n] = Sqrt(%a)
          %shared: float32[n] = Neg(%x)
          %y: float32[n] = If(%c) {
            then_branch=graph then() -> (%t) { %t: float32[n] = Add(%b, %shared) },
            else_branch=graph otherwise() -> (%o) { %o: float32[n] = Abs(%shared) }
          }
        }
    """)
    found = ir.passes.BasicBlocks()(module)
    assert ops(found) == ["Neg", "If"]
    then, otherwise = found.main.graph.nodes[1].subgraphs
    assert ([n.op for n in then.nodes], [n.op for n in otherwise.nodes]) == (["Exp", "Sqrt", "Add"], ["Abs"])
    x = np.array([1, 4], np.float32)
    for flag in (True, False):
        condition = np.array(flag)
        np.testing.assert_array_equal(found.interpret(x, condition)[0], module.interpret(x, condition)[0])
    assert ir.passes.BasicBlocks()(found) is found


def test_functions_that_nobody_calls_and_calls_inlined() -> None:
    module = doubled_and_increased()
    alive = ir.passes.EliminateDeadFunctions()(module)
    assert [f.name for f in alive] == ["main", "double", "increment"]
    inlined = ir.passes.InlineCalls()(alive)
    assert ops(inlined) == ["Reshape", "Mul", "Mul", "ingot.Loops", "Relu"]
    assert [f.name for f in ir.passes.EliminateDeadFunctions()(inlined)] == ["main"]
    x = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)
    np.testing.assert_allclose(inlined.interpret(x)[0], expected(x), rtol=1e-6)


def test_passes_of_the_compiler_run_on_functions_that_call_others() -> None:
    module = doubled_and_increased()
    x = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)
    for item in ir.default_pipeline("x86-64-v3"):
        module = item(module)
        module.verify()
        np.testing.assert_allclose(module.interpret(x)[0], expected(x), rtol=1e-6)


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (lambda graph: graph.with_(nodes=graph.nodes[1:]), "after pass 'wrong': .* %a is used but not defined"),
        (
            lambda graph: graph.with_(nodes=(*graph.nodes, ir.Node("Nag", (), ()))),
            "after pass 'wrong': .*no operator Nag",
        ),
        (lambda graph: None, "pass 'wrong' failed.*it gives NoneType for a graph"),
        (lambda graph: 1 / 0, "pass 'wrong' failed.*ZeroDivisionError"),
        (
            lambda graph: ir.rewrite(graph, [ir.rule("Neg", lambda n, s: s.node("Neg", *n.operands))]),
            "in pass 'wrong'.*rest",
        ),
    ],
)
def test_what_an_own_pass_makes_is_checked(result: object, message: str) -> None:
    wrong = ir.function_pass("wrong")(result)  # type: ignore[arg-type]
    with pytest.raises(IngotError, match=message) as caught:
        wrong(ir.Module.parse(SQUARES))
    assert caught.value.code is not ErrorCode.COMPILER_FAULT


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda: ir.function_pass(lambda graph: graph), r'a pass has a name.*@ir.function_pass\("name"\)'),  # type: ignore[arg-type]
        (lambda: ir.Sequential([lambda module: module]), "a sequence is of passes.*received <lambda>"),  # type: ignore[list-item]
        (lambda: ir.Sequential([ir.passes.Fuse]), "a sequence is of passes.*received Fuse"),  # type: ignore[list-item]
        (lambda: ingot.compile(classifier(), pipeline=[ir.passes.Fuse()]), "a pipeline is a sequence"),  # type: ignore[arg-type]
        (lambda: ir.Module((ir.Module.parse(SQUARES).main.graph,)), "a module holds functions.*received Graph"),  # type: ignore[arg-type]
    ],
)
def test_what_is_handed_in_by_mistake_is_told(made: Callable[[], object], message: str) -> None:
    with pytest.raises(IngotError, match=message) as caught:
        made()
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT


# -- sequences


def test_conv_folded_and_fused_through_a_list_of_passes() -> None:
    """A convolution of a computed weight, its constants folded, it and what follows fused: looked at, run and compiled."""
    b = ir.GraphBuilder()
    n = ir.symbol("n")
    x = b.input("x", (n, 3, 8, 8))
    weight = b.mul(b.constant(np.ones((4, 3, 3, 3), np.float32)), 0.5)
    y = b.relu(b.add(b.conv(x, weight, pads=(1, 1, 1, 1)), b.constant(np.ones((4, 1, 1), np.float32))), name="y")
    module = ir.Module((b.function(y),))
    assert ops(module) == ["Mul", "Conv", "Add", "Relu"]
    steps = ir.Sequential([ir.passes.FoldConstants(), ir.passes.Fuse()])
    found = steps(module)
    (group,) = found.main.graph.nodes
    assert [node.op for node in group.subgraphs[0].nodes] == ["Conv", "Add", "Relu"]
    image = np.random.default_rng(0).random((2, 3, 8, 8), dtype=np.float32)
    wanted = module.interpret(image)[0]
    np.testing.assert_allclose(found.interpret(image)[0], wanted, rtol=1e-5)
    np.testing.assert_allclose(ingot.load(ingot.compile(module)).run({"x": image})["y"], wanted, rtol=1e-5)


def test_a_sequence_is_a_value() -> None:
    first, fuse = ir.passes.FoldConstants(), ir.passes.Fuse()
    steps = ir.Sequential([first, ir.Sequential([fuse])])
    assert (str(steps), steps.names, len(steps)) == ("fold-constants,fuse", ("fold-constants", "fuse"), 2)
    put = steps.before("fuse", square_by_product).after("fold-constants", ir.passes.EliminateDeadCode())
    assert put.names == ("fold-constants", "eliminate-dead-code", "square-by-product", "fuse")
    assert steps.names == ("fold-constants", "fuse")
    assert put.without("square-by-product", "fuse").names == ("fold-constants", "eliminate-dead-code")
    twice = ir.Sequential([first, ir.passes.EliminateDeadCode(), first])
    assert twice.before("fold-constants", square_by_product).names[0] == "square-by-product"
    assert twice.after("fold-constants", square_by_product).names[-1] == "square-by-product"
    with pytest.raises(IngotError, match=r"no pass 'fuze'.*one of fuse"):
        steps.before("fuze", square_by_product)


def test_orders_that_the_passes_do_not_admit() -> None:
    with pytest.raises(IngotError, match="'square-by-product' must not find grouped"):
        ir.Sequential([ir.passes.Fuse(), square_by_product])
    after = ir.function_pass("after", needs=["squares-multiplied"])(lambda graph: graph)
    with pytest.raises(IngotError, match="'after' needs squares-multiplied and comes before"):
        ir.Sequential([after, square_by_product])
    assert len(ir.Sequential([square_by_product, after])) == 2
    typo = ir.function_pass("typo", needs=["shape-folded"])(lambda graph: graph)
    with pytest.raises(IngotError, match=r"'shape-folded', which no pass gives.*shapes-folded"):
        ir.Sequential([typo])
    with pytest.raises(IngotError, match="no optimisation level"):
        ir.function_pass("low", level=-1)
    with pytest.raises(IngotError, match="a list of names"):
        ir.module_pass("facts", needs="grouped")


@pytest.mark.parametrize("target", ["x86-64-v3", "amd/zen4", "raspberry-pi/4b"])
@pytest.mark.parametrize("level", [0, 1, 2, 3])
def test_the_default_pipeline_is_that_of_the_compiler(target: str, level: int) -> None:
    found = ir.default_pipeline(target, level)
    assert str(found) == str(own_pipeline(level, parse_target(target), filters=level == 3))


# -- contexts


class Names(ir.Instrument):
    def __init__(self) -> None:
        self.seen: list[str] = []

    def before(self, name: str, module: ir.Module) -> None:
        self.seen.append(f"before {name}")

    def after(self, name: str, module: ir.Module, seconds: float) -> None:
        self.seen.append(f"after {name}")


def test_contexts_say_which_passes_run() -> None:
    module, steps = ir.Module.parse(SQUARES), ir.Sequential([square_by_product, ir.passes.Fuse()])
    with ir.PassContext(opt_level=0):
        assert "Pow" in str(steps(module))
        with ir.PassContext(disabled=["square-by-product"]):
            assert "Pow" in str(steps(module))
        assert ir.PassContext.current().opt_level == 0
    assert "Pow" not in str(steps(module))
    assert ir.PassContext.current() == ir.PassContext()


def test_contexts_end_with_an_error_and_are_of_one_thread() -> None:
    with pytest.raises(ZeroDivisionError), ir.PassContext(opt_level=1):
        raise ZeroDivisionError
    found = list[int]()
    with ir.PassContext(opt_level=1):
        thread = threading.Thread(target=lambda: found.append(ir.PassContext.current().opt_level))
        thread.start()
        thread.join()
    assert (found, ir.PassContext.current().opt_level) == ([3], 3)
    for wrong in ({"opt_level": 4}, {"opt_level": True}, {"disabled": "fuse"}):
        with pytest.raises(IngotError):
            ir.PassContext(**wrong)


def test_instruments_are_told_of_every_pass() -> None:
    names, timing, printed = Names(), ir.Timing(), list[str]()
    steps = ir.Sequential([square_by_product, ir.passes.FoldShapes()])
    with ir.PassContext(instruments=[names, timing, ir.Printing(printed.append)]):
        steps(ir.Module.parse(SQUARES))
    assert names.seen == [f"{w} {n}" for n in steps.names for w in ("before", "after")]
    assert [name for name, _ in timing.seconds] == list(steps.names)
    assert "ms  square-by-product" in str(timing)
    assert printed[0].startswith("# square-by-product\nmodule {opset=1}\ngraph main")
    assert printed[1] == "# fold-shapes: nothing changed"


# -- compilation


def test_a_pipeline_of_ones_own_is_compiled() -> None:
    module, x = ir.Module.parse(SQUARES), np.arange(20, dtype=np.float32)
    names = Names()
    pipeline = ir.default_pipeline().before("fuse", square_by_product)
    with ir.PassContext(instruments=[names]):
        artifact = ingot.compile(module, pipeline=pipeline)
    assert names.seen.index("before square-by-product") < names.seen.index("before fuse")
    np.testing.assert_allclose(ingot.load(artifact).run({"x": x})["z"], 2 * x**2, rtol=1e-6)
    assert artifact.manifest.key == ingot.compile(module, pipeline=pipeline).manifest.key
    other = pipeline.before("fuse", ir.function_pass("negated")(lambda g: ir.rewrite(g, [ir.rule("Pow", negated)])))
    changed = ingot.compile(module, pipeline=other.without("square-by-product"), opt_level=0)
    assert changed.manifest.key != ingot.compile(module, opt_level=0).manifest.key


def negated(node: ir.Node, site: ir.Site) -> ir.Value | None:
    base, power = node.operands
    return None if site.producer(base, "Neg") else site.node("Pow", site.node("Neg", base), power)


def test_a_context_reaches_compilation() -> None:
    proto, names = classifier(), Names()
    with ir.PassContext(opt_level=1, disabled=["eliminate-dead-code"], instruments=[names]):
        artifact = ingot.compile(proto)
    assert artifact.manifest.options["opt_level"] == 1
    assert artifact.manifest.options["disabled_passes"] == ["eliminate-dead-code"]
    assert "after fuse" in names.seen
    assert (
        artifact.manifest.key == ingot.compile(proto, opt_level=1, disabled_passes=["eliminate-dead-code"]).manifest.key
    )
    assert not {"before fold-batch-norm", "before eliminate-dead-code"} & set(names.seen)
    with ir.PassContext(opt_level=1):
        assert ingot.compile(proto, opt_level=2).manifest.options["opt_level"] == 2
    image = np.random.default_rng(0).random((1, 3, 8, 8), dtype=np.float32)
    found = ingot.load(artifact).run({"image": image})["scores"]
    np.testing.assert_allclose(found, expected_scores(proto, image), rtol=1e-4)


def test_what_cannot_be_compiled_so_is_refused() -> None:
    data = classifier().SerializeToString()
    for asked in ({"pipeline": ir.default_pipeline()}, {}):
        with pytest.raises(IngotError, match="in_process=True"), ir.PassContext(instruments=[ir.Timing()]):
            ingot.compile(data, **asked)  # type: ignore[arg-type]
    ingot.compile(data, pipeline=ir.default_pipeline(), in_process=True)
    with pytest.raises(IngotError, match=r"lacks passes.*fold-shapes"):
        ingot.compile(classifier(), pipeline=ir.Sequential([ir.passes.Fuse()]))


def test_what_a_context_cannot_disable_in_compilation() -> None:
    for name, message in (("fuse", "needed at every level"), ("fuze", "unknown pass 'fuze'")):
        with pytest.raises(IngotError, match=message), ir.PassContext(disabled=[name], instruments=[ir.Timing()]):
            ingot.compile(classifier())


def test_what_went_through_the_pipeline_already_is_compiled_without() -> None:
    done = ir.default_pipeline()(ir.from_onnx(classifier()))
    image = np.random.default_rng(0).random((1, 3, 8, 8), dtype=np.float32)
    artifact = ingot.compile(done, pipeline=ir.Sequential(()))
    found = ingot.load(artifact).run({"image": image})["scores"]
    np.testing.assert_allclose(found, expected_scores(classifier(), image), rtol=1e-4)
    with pytest.raises(IngotError, match="in groups already"):
        ingot.compile(done)
