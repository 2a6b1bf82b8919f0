"""What is said of code generators of others that are wrong: as theirs, before anything is linked or run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

import ingot
from ingot import codegen, ir

Made = Callable[[codegen.Target, str], Any]

RUN = """
static int32_t run_part(void *state, void *const *buffers, const int64_t *symbols, char *error) {
  const float *x = buffers[0];
  float *y = buffers[1];
  for (int64_t i = 0; i < symbols[0]; i++) y[i] = x[i] > 0 ? x[i] : 0;
  return 0;
}
"""


class Giving(codegen.ExternalCodegen):
    """Takes ``Relu(x)``, and gives what it is told to."""

    version = "giving-1"

    def __init__(self, made: Made) -> None:
        self.made = made

    @property
    def patterns(self) -> Sequence[codegen.NodePattern]:
        return (codegen.NodePattern("Relu(x)"),)

    def part(self, graph: ir.Graph, target: codegen.Target, symbol: str) -> bytes:
        given: bytes = self.made(target, symbol)
        return given


def c_part(text: str) -> Made:
    """An object of C, in which ``@`` is the symbol."""
    return lambda target, symbol: codegen.compile_c(codegen.part_header() + RUN + text.replace("@", symbol), target)


def raising(target: codegen.Target, symbol: str) -> bytes:
    raise KeyError(symbol)


def artifact_of(module: ir.Module, own: codegen.ExternalCodegen) -> ingot.Artifact:
    codegen.register_external("giving", own)
    passes = [ir.passes.AnnotateTarget("giving"), ir.passes.MergeRegions(), ir.passes.PartitionGraph()]
    return ingot.compile(ir.Sequential(passes)(module), workers=0)


def rectified() -> ir.Module:
    b = ir.GraphBuilder("main")
    return ir.Module((b.function(b.neg(b.relu(b.exp(b.input("x", (ir.symbol("n"),)))), name="y")),))


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (lambda target, symbol: b"no object at all", "gave no object"),
        (lambda target, symbol: b"", "gave no object"),
        (lambda target, symbol: b"\x7fELF\x02\x01", "gave no object"),
        (lambda target, symbol: None, "gave no object"),
        (raising, "failed.*KeyError"),
        (c_part("int x;"), "gave an object without its part.*ingot_part"),
        (c_part("int @(void) { return 0; }"), "gave an object without its part"),
        (
            c_part("static const ingot_part @ = {0, run_part, 0}; const void *other = &@;"),
            "gave an object without its part",
        ),
        (c_part("no C"), "failed"),
    ],
)
def test_what_is_no_part_is_told_as_the_fault_of_who_made_it(made: Made, reason: str) -> None:
    with pytest.raises(ingot.IngotError, match=f"the code generator 'giving' {reason}") as caught:
        artifact_of(rectified(), Giving(made))
    assert (caught.value.code, caught.value.node) == (ingot.ErrorCode.INVALID_ARGUMENT, "giving_0")


def test_a_part_that_cannot_run_is_told_at_load() -> None:
    artifact = artifact_of(rectified(), Giving(c_part("const ingot_part @ = {0, 0, 0};")))
    with pytest.raises(ingot.IngotError, match="has no function to run") as caught:
        ingot.load(artifact, threads=1)
    assert caught.value.code is ingot.ErrorCode.ARTIFACT_INCOMPATIBLE


@pytest.mark.parametrize("wrong", [None, Giving, "dnnl"])
def test_what_is_registered_is_a_code_generator(wrong: Any) -> None:
    for register in (codegen.register_external, ingot.register_backend):
        with pytest.raises(ingot.IngotError, match="is no code generator"):
            register("giving", wrong)


@pytest.mark.parametrize("wrong", [None, 5, "LLVM", "a b"])
def test_targets_begin_with_a_name(wrong: Any) -> None:
    with pytest.raises(ingot.IngotError, match="no kind of targets"):
        ingot.register_backend(wrong, codegen.LlvmBackend())


def test_what_is_taken_is_said_by_patterns() -> None:
    for wrong in ("Relu(x)", 5):
        with pytest.raises(ingot.IngotError, match="is said by patterns"):
            ir.passes.AnnotateTarget("giving", [wrong])  # type: ignore[list-item]
    for text in (None, 5, "ingot.Group(x)", "f().g(x)"):
        with pytest.raises(ingot.IngotError, match="is no pattern of nodes"):
            codegen.NodePattern(text)  # type: ignore[arg-type]
    with pytest.raises(ingot.IngotError, match="constants Relu that it does not name"):
        codegen.NodePattern("Relu(x)", constants=frozenset({"Relu"}))


@pytest.mark.parametrize(
    ("kernel", "reason"),
    [(lambda *given: int("nothing"), "failed.*ValueError"), (lambda *given: "int x;", "gave no code.*received str")],
)
def test_a_backend_that_fails_is_told_as_the_fault_of_who_made_it(kernel: Callable[..., Any], reason: str) -> None:
    wrong = type("Wrong", (codegen.LlvmBackend,), {"version": "wrong-1", "kernel": kernel})
    ingot.register_backend("wrong", wrong())
    with pytest.raises(ingot.IngotError, match=f"the code generator of targets 'wrong' {reason}") as caught:
        ingot.compile(rectified(), target="wrong", workers=0)
    assert caught.value.code is ingot.ErrorCode.INVALID_ARGUMENT


@pytest.mark.parametrize("library", [None, "", "a\0b", 5])
def test_a_library_has_a_name(library: Any) -> None:
    with pytest.raises(ingot.IngotError, match="no name of a library") as caught:
        codegen.OneDnn(library)
    assert caught.value.code is ingot.ErrorCode.INVALID_ARGUMENT


def test_what_was_annotated_before_a_sequence_is_partitioned_by_it() -> None:
    annotated = ir.passes.AnnotateTarget("any", [codegen.NodePattern("Relu(x)")])(rectified())
    module = ir.Sequential([ir.passes.MergeRegions(), ir.passes.PartitionGraph()])(annotated)
    assert "any_0" in module.by_name
    with pytest.raises(ingot.IngotError, match="annotate-target"):
        ir.Sequential([ir.passes.PartitionGraph(), ir.passes.AnnotateTarget("dnnl")])
