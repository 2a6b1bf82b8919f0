"""A part of a model for another code generator: annotate, merge, partition.

A code generator says by patterns which nodes it takes. Three passes mark them, join what lies side by side, and make functions of the
parts; everything else stays with Ingot. Here a code generator of some fifty lines takes products of matrices with what follows them, and
writes C for them. Its constants are handed to it once, when the model is loaded: it keeps them transposed.

    python examples/partition.py
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import ingot
from ingot import codegen, ir

OPEN = """\
#include <stdlib.h>

/* w [k][n] -> [n][k], so that a result reads both of its operands in order. */
static float *transposed(const float *w, int k, int n) {
  float *t = malloc((size_t)k * n * sizeof(float));
  for (int i = 0; t && i < k; i++)
    for (int j = 0; j < n; j++) t[j * k + i] = w[i * n + j];
  return t;
}
static void product(const float *x, const float *t, const float *b, float *y, int64_t rows, int k, int n, int relu) {
  for (int64_t r = 0; r < rows; r++)
    for (int j = 0; j < n; j++) {
      float sum = b ? b[j] : 0.0f;
      for (int i = 0; i < k; i++) sum += x[r * k + i] * t[j * k + i];
      y[r * n + j] = relu && sum < 0.0f ? 0.0f : sum;
    }
}
"""


class PlainC(codegen.ExternalCodegen):
    """Products of rows with constant matrices, as C."""

    version = "plain-c-1"

    @property
    def patterns(self) -> Sequence[codegen.NodePattern]:
        constants = frozenset({"w", "b"})
        return (
            codegen.NodePattern("Relu(Add(MatMul(x, w), b))", constants=constants, where=is_taken),
            codegen.NodePattern("Add(MatMul(x, w), b)", constants=constants, where=is_taken),
        )

    def part(self, graph: ir.Graph, target: codegen.Target, symbol: str) -> bytes:
        layers = layers_of(graph)
        numbers = {value: i for i, value in enumerate(graph.constants)}
        opened, run = list[str](), list[str]()
        rows, source = "symbols[0]", "buffers[0]"
        for i, (w, b, relu) in enumerate(layers):
            k, n = w.shape
            last = i + 1 == len(layers)
            result = f"buffers[{1 + len(numbers)}]" if last else f"between{i}"
            opened += [f"if (!(s->t[{i}] = transposed(constants[{numbers[w]}], {k}, {n}))) return 2;"]
            opened += [f"s->b[{i}] = constants[{numbers[b]}];"]
            run += [] if last else [f"float *{result} = malloc((size_t){rows} * {n} * sizeof(float));"]
            run += [] if last else [f"if (!{result}) return 2;"]
            run += [f"product({source}, s->t[{i}], s->b[{i}], {result}, {rows}, {k}, {n}, {int(relu)});"]
            run += [f"free({source});"] if i else []
            source = result
        return codegen.compile_c(whole(symbol, len(layers), opened, run), target)


def is_taken(match: codegen.Match) -> bool:
    """Rows of any number, of floats."""
    x, w, b = (match.values[name] for name in ("x", "w", "b"))
    return (
        x.type.rank == 2 and b.shape == w.shape[1:] and not isinstance(x.shape[0], int) and x.dtype is ir.DType.FLOAT32
    )


def layers_of(graph: ir.Graph) -> list[tuple[ir.Value, ir.Value, bool]]:
    """Matrix, bias and whether a ReLU follows, of each product; the parts that fit the patterns are chains of these."""
    found: list[tuple[ir.Value, ir.Value, bool]] = []
    for node in graph.nodes:
        if node.op == "MatMul":
            matrix = node.operands[1]
        elif node.op == "Add":
            found.append((matrix, next(v for v in node.operands if v in graph.constants), False))
        else:
            found[-1] = (*found[-1][:2], True)
    return found


def whole(symbol: str, layers: int, opened: list[str], run: list[str]) -> str:
    """The C of a part."""
    return "\n".join(
        [
            codegen.part_header(),
            OPEN,
            f"typedef struct {{ float *t[{layers}]; const float *b[{layers}]; }} layers;",
            "static int32_t open_part(const void *const *constants, int32_t threads, void **state, char *error) {",
            "  layers *s = *state = calloc(1, sizeof(layers));",
            "  if (!s) return 2;",
            *(f"  {line}" for line in opened),
            "  return 0;",
            "}",
            "static int32_t run_part(void *state, void *const *buffers, const int64_t *symbols, char *error) {",
            "  layers *s = state;",
            *(f"  {line}" for line in run),
            "  return 0;",
            "}",
            "static void close_part(void *state) {",
            "  layers *s = state;",
            f"  for (int i = 0; i < {layers}; i++) free(s->t[i]);",
            "  free(s);",
            "}",
            f"const ingot_part {symbol} = {{open_part, run_part, close_part}};",
        ]
    )


def network() -> onnx.ModelProto:
    """Two layers, a softmax, and one more."""
    random = np.random.default_rng(0)
    sizes = {"a": (16, 32), "b": (32, 8), "c": (8, 4)}
    weights = {f"w{n}": random.standard_normal(shape).astype(np.float32) / 4 for n, shape in sizes.items()}
    weights |= {f"b{n}": random.standard_normal(shape[1]).astype(np.float32) for n, shape in sizes.items()}
    nodes = [
        helper.make_node("MatMul", ["x", "wa"], ["pa"]),
        helper.make_node("Add", ["pa", "ba"], ["sa"]),
        helper.make_node("Relu", ["sa"], ["ra"]),
        helper.make_node("MatMul", ["ra", "wb"], ["pb"]),
        helper.make_node("Add", ["pb", "bb"], ["sb"]),
        helper.make_node("Softmax", ["sb"], ["s"]),
        helper.make_node("MatMul", ["s", "wc"], ["pc"]),
        helper.make_node("Add", ["pc", "bc"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "layers",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 4])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def main() -> None:
    codegen.register_external("plain_c", PlainC())
    module = ir.from_onnx(network())

    annotated = ir.passes.AnnotateTarget("plain_c")(module)
    merged = ir.passes.MergeRegions()(annotated)
    partitioned = ir.passes.PartitionGraph()(merged)
    for name, each in (("annotated", annotated), ("merged", merged)):
        print(f"{name}: {sum(n.op == 'ingot.Group' for n in each.main.graph.nodes)} regions")
    print(partitioned)

    x = np.random.default_rng(1).standard_normal((5, 16)).astype(np.float32)
    artifact = ingot.compile(partitioned)
    for kernel in artifact.plan.kernels:
        print(f"{kernel.name}: by {kernel.part or 'Ingot'}")
    with ingot.load(artifact) as ours, ingot.load(ingot.compile(module)) as plain:
        difference = np.abs(ours.run({"x": x})["y"] - plain.run({"x": x})["y"]).max()
    print(f"largest difference to the model compiled whole: {difference:.1e}")
    assert difference < 1e-5


if __name__ == "__main__":
    main()
