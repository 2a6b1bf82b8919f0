"""Support vector machines of ai.onnx.ml.

The standard leaves open how the decisions of the pairs of classes become labels and probabilities; this is what LIBSVM and ONNX
Runtime do: a vote for the label, and pairwise coupling for probabilities (Wu, Lin, Weng: Probability estimates for multi-class
classification by pairwise coupling, 2004, second method).
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
import onnx
from onnx import helper, numpy_helper

from compiler_service.compiler.frontend.adapters.chain import Chain
from compiler_service.compiler.frontend.adapters.machine_learning import as_float, class_labels, post_transformed
from compiler_service.compiler.frontend.adapters.operands import Operands
from compiler_service.compiler.frontend.importing.node import SourceNode
from shared_ir.dtype import DType

Nodes = tuple[SourceNode, ...]

MOST_COUPLED = 32
"""Classes whose probabilities are coupled: every one is some nodes of the loop."""

_ROUNDS = 100
_LEAST = 1e-7
"""Pairwise probabilities keep this distance from 0 and 1."""


def svm_regressor(node: SourceNode, operands: Operands) -> Nodes:
    """``sum over i of coefficient[i] * kernel(x, support[i]) + rho``; without support vectors a linear model."""
    chain = Chain(node, operands)
    get = chain.attribute
    x = as_float(chain, node.inputs[0])
    coefficients = np.array(chain.required("coefficients"), np.float32)
    count = get("n_supports", 0)
    if count:
        supports = chain.rows("support_vectors", count)
        x = _kernel(chain, x, supports)
    scores = chain.add("MatMul", x, chain.constant("coefficients", coefficients.reshape(-1, 1)))
    scores = chain.add("Add", scores, chain.constant("rho", chain.required("rho")[:1]))
    if get("one_class", 0):
        positive = chain.add("Greater", scores, chain.constant("zero", 0.0))
        scores = chain.add("Where", positive, chain.constant("inlier", 1.0), chain.constant("outlier", -1.0))
    chain.as_output(post_transformed(chain, scores, 1))
    return tuple(chain.nodes)


def svm_classifier(node: SourceNode, operands: Operands) -> Nodes:
    """The label with most votes of the pairs of classes; probabilities of all classes, or the decisions of the pairs."""
    chain = Chain(node, operands)
    labels, get = class_labels(chain), chain.attribute
    if not chain.required("vectors_per_class"):
        raise operands.unsupported("vectors_per_class", "support vectors", "none: use LinearClassifier")
    pairs = list(combinations(range(len(labels)), 2))
    decisions = _decisions(chain, as_float(chain, node.inputs[0]), pairs)
    chain.as_output(chain.add("Gather", operands.constant("labels", labels), _votes(chain, decisions, pairs)))
    transform = get("post_transform", "NONE")
    if get("prob_a"):
        chain.as_output(post_transformed(chain, _probabilities(chain, decisions, pairs), len(labels)), 1)
    elif len(labels) > 2:
        chain.as_output(post_transformed(chain, decisions, len(pairs)), 1)
    elif transform in ("NONE", "LOGISTIC"):
        both = chain.add("Concat", chain.add("Neg", decisions), decisions, axis=1)
        chain.as_output(post_transformed(chain, both, 2), 1)
    else:
        raise operands.unsupported(
            "post_transform", "NONE or LOGISTIC for two classes without probabilities", transform
        )
    return tuple(chain.nodes)


def _decisions(chain: Chain, x: str, pairs: list[tuple[int, int]]) -> str:
    """``[n, pairs]``; the coefficients of a vector against the other classes stand one below the other."""
    counts = chain.required("vectors_per_class")
    total, starts = sum(counts), np.cumsum((0, *counts))
    supports = chain.rows("support_vectors", total)
    given = chain.rows("coefficients", len(counts) - 1)
    table = np.zeros((total, len(pairs)), np.float32)
    for column, (i, j) in enumerate(pairs):
        first, second = slice(starts[i], starts[i + 1]), slice(starts[j], starts[j + 1])
        table[first, column] = given[j - 1, first]
        table[second, column] = given[i, second]
    found = chain.add("MatMul", _kernel(chain, x, supports), chain.constant("coefficients", table))
    return chain.add("Add", found, chain.constant("rho", chain.required("rho")))


def _votes(chain: Chain, decisions: str, pairs: list[tuple[int, int]]) -> str:
    """The class with most votes, the first of several."""
    count = 1 + max(j for _, j in pairs)
    votes = np.zeros((len(pairs), count), np.float32)
    for row, (i, j) in enumerate(pairs):
        votes[row, i], votes[row, j] = 1, -1
    wins = chain.add("Cast", chain.add("Greater", decisions, chain.constant("zero", 0.0)), to=DType.FLOAT32)
    base = np.array([sum(j == c for _, j in pairs) for c in range(count)], np.float32)  # every pair's second class
    total = chain.add("Add", chain.add("MatMul", wins, chain.constant("votes", votes)), chain.constant("base", base))
    return chain.add("ArgMax", total, axis=1, keepdims=0)


def _probabilities(chain: Chain, decisions: str, pairs: list[tuple[int, int]]) -> str:
    """``[n, classes]``"""
    count = 1 + max(j for _, j in pairs)
    if count > MOST_COUPLED:
        raise chain.operands.unsupported("prob_a", f"at most {MOST_COUPLED} classes", str(count))
    get, one = chain.attribute, chain.constant("one", 1.0)
    scaled = chain.add("Mul", decisions, chain.constant("prob_a", get("prob_a")))
    first = chain.add(
        "Sub", one, chain.add("Sigmoid", chain.add("Add", scaled, chain.constant("prob_b", get("prob_b"))))
    )
    first = chain.add("Clip", first, chain.constant("least", _LEAST), chain.constant("most", 1 - _LEAST))
    columns = chain.add("Concat", first, chain.add("Sub", one, first), axis=1)
    won, lost = (
        chain.add("Gather", columns, chain.operands.int64s(f"table_{t}", _table(pairs, count, t)), axis=1)
        for t in (0, 1)
    )
    shape = chain.operands.int64s("shape", (-1, count, count))
    off_diagonal = 1 - np.eye(count, dtype=np.float32)
    won, lost = (
        chain.add("Mul", chain.add("Reshape", m, shape), chain.constant("off_diagonal", off_diagonal))
        for m in (won, lost)
    )
    own = chain.add("MatMul", chain.add("Mul", lost, lost), chain.constant("ones", np.ones((count, 1), np.float32)))
    diagonal = chain.add("Mul", own, chain.constant("diagonal", np.eye(count, dtype=np.float32)))
    q = chain.add("Sub", diagonal, chain.add("Mul", won, lost))
    start = chain.add("Sub", own, own)
    start = chain.add("Add", start, chain.constant("even", 1 / count))
    rounds = chain.operands.constant("rounds", np.array(_ROUNDS))
    coupled = chain.add("Loop", rounds, "", start, body=_coupling(q, count))
    return chain.add("Squeeze", coupled, chain.operands.int64s("column", (2,)))


def _table(pairs: list[tuple[int, int]], count: int, transposed: int) -> list[int]:
    """Column of (pairs, pairs the other way round) for every entry of the matrix of classes; any column on its diagonal."""
    table = np.zeros((count, count), np.int64)
    for column, (i, j) in enumerate(pairs):
        table[i, j], table[j, i] = column, column + len(pairs)
    return [int(c) for c in (table.T if transposed else table).reshape(-1)]


def _coupling(q: str, count: int) -> onnx.GraphProto:
    """One round over the classes, of the rows ``p`` [n, classes, 1] that have not converged. Only forms that no opset changed."""
    nodes: list[onnx.NodeProto] = []
    constants: list[onnx.TensorProto] = []

    def put(op: str, *inputs: str, **attributes: object) -> str:
        nodes.append(helper.make_node(op, inputs, [f"svm_{len(nodes)}"], **attributes))
        return str(nodes[-1].output[0])

    def number(value: object, dtype: type = np.float32) -> str:
        constants.append(numpy_helper.from_array(np.array(value, dtype), f"svm_constant_{len(constants)}"))
        return str(constants[-1].name)

    one, two, ones, before = number(1), number(2), number(np.ones((1, count))), "svm_p"
    along = put("MatMul", q, before)
    total = put("MatMul", ones, put("Mul", before, along))
    far = put("Abs", put("Sub", along, total))
    parts = [put("Gather", far, number([i], np.int64), axis=1) for i in range(count)]
    done = put("Less", put("Max", *parts) if count > 1 else parts[0], number(0.005 / count))
    p = before
    for i in range(count):
        place = number([i], np.int64)
        row = put("Gather", q, place, axis=1)
        own, at = put("Gather", row, place, axis=2), put("Gather", along, place, axis=1)
        step = put("Div", put("Sub", total, at), own)
        scale = put("Add", step, one)
        change = put("Mul", step, put("Add", put("Mul", step, own), put("Mul", at, two)))
        total = put("Div", put("Div", put("Add", total, change), scale), scale)
        column = put("Transpose", row, perm=[0, 2, 1])
        along = put("Div", put("Add", along, put("Mul", step, column)), scale)
        p = put("Div", put("Add", p, put("Mul", step, number(np.eye(count)[:, i : i + 1]))), scale)
    nodes.append(helper.make_node("Where", [done, before, p], ["svm_next"]))
    nodes.append(helper.make_node("Identity", ["svm_go"], ["svm_on"]))
    value = helper.make_tensor_value_info
    inputs = [value("svm_i", 7, []), value("svm_go", 9, []), value(before, 1, [None, count, 1])]
    outputs = [value("svm_on", 9, []), value("svm_next", 1, [None, count, 1])]
    return helper.make_graph(nodes, "coupling", inputs, outputs, constants)


def _kernel(chain: Chain, x: str, supports: np.ndarray) -> str:
    """``[n, supports]``"""
    get = chain.attribute
    gamma, offset, degree = (*(get("kernel_params") or ()), 0.0, 0.0, 0.0)[:3]
    kind = get("kernel_type", "LINEAR")
    if kind == "RBF":
        return chain.add("ingot.GaussianKernel", x, chain.constant("supports", supports), gamma=gamma)
    product = chain.add("MatMul", x, chain.constant("supports", np.ascontiguousarray(supports.T)))
    if kind == "LINEAR":
        return product
    scaled = chain.add(
        "Add", chain.add("Mul", product, chain.constant("gamma", gamma)), chain.constant("offset", offset)
    )
    if kind == "SIGMOID":
        return chain.add("Tanh", scaled)
    if kind == "POLY":
        return chain.add("Pow", scaled, chain.constant("degree", degree))
    raise chain.operands.unsupported("kernel_type", "LINEAR, POLY, RBF or SIGMOID", kind)
