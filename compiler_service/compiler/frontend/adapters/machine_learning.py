"""Operators of ai.onnx.ml on numbers, as operators of ai.onnx: what scikit-learn exporters write around their models."""

from __future__ import annotations

import math

import numpy as np

from compiler_service.compiler.frontend.adapters.chain import Chain
from compiler_service.compiler.frontend.adapters.operands import Operands
from compiler_service.compiler.frontend.importing.node import SourceNode
from shared_ir.dtype import DType

Nodes = tuple[SourceNode, ...]


def array_feature_extractor(node: SourceNode, operands: Operands) -> Nodes:
    """Elements of the last axis; a vector counts as a row."""
    chain = Chain(node, operands)
    x, indices = node.inputs
    flat = chain.add("Reshape", indices, operands.int64s("flat", (-1,)))
    if operands.rank(x) == 1:
        x = chain.add("Unsqueeze", x, operands.int64s("rows", (0,)))
    chain.as_output(chain.add("Gather", x, flat, axis=-1))
    return tuple(chain.nodes)


def binarizer(node: SourceNode, operands: Operands) -> Nodes:
    chain = Chain(node, operands)
    x = node.inputs[0]
    above = chain.add("Greater", x, operands.like("threshold", node.attributes.get("threshold", 0.0), x))
    chain.as_output(chain.add("CastLike", above, x))
    return tuple(chain.nodes)


def scaler(node: SourceNode, operands: Operands) -> Nodes:
    """``(x - offset) * scale``, both one number or one per feature."""
    chain = Chain(node, operands)
    x = as_float(chain, node.inputs[0])
    for op, key in (("Sub", "offset"), ("Mul", "scale")):
        if node.attributes.get(key):
            x = chain.add(op, x, chain.constant(key, node.attributes[key]))
    chain.as_output(x)
    return tuple(chain.nodes)


def normalizer(node: SourceNode, operands: Operands) -> Nodes:
    """Rows divided by their norm; rows of which that is 0 stay. NOTE: MAX is the largest element, as the operator's page and ONNX Runtime
    have it, not the largest magnitude, as onnx.reference has."""
    chain = Chain(node, operands)
    x = as_float(chain, node.inputs[0])
    axes = operands.int64s("axes", (-1,))
    match node.attributes.get("norm", "MAX"):
        case "MAX":
            norm = chain.add("ReduceMax", x, axes, keepdims=1)
        case "L1":
            norm = chain.add("ReduceL1", x, axes, keepdims=1)
        case "L2":
            norm = chain.add("ReduceL2", x, axes, keepdims=1)
        case other:
            raise operands.unsupported("norm", "MAX, L1 or L2", str(other))
    is_zero = chain.add("Equal", norm, chain.constant("zero", 0.0))
    chain.as_output(chain.add("Div", x, chain.add("Where", is_zero, chain.constant("one", 1.0), norm)))
    return tuple(chain.nodes)


def imputer(node: SourceNode, operands: Operands) -> Nodes:
    """Missing elements (NaN, or a given value) replaced, by feature."""
    chain = Chain(node, operands)
    x = node.inputs[0]
    floats = chain.attribute("imputed_value_floats")
    if floats:
        values, missing = chain.constant("imputed", floats), node.attributes.get("replaced_value_float", 0.0)
    else:
        values = chain.constant("imputed", chain.required("imputed_value_int64s"), np.int64)
        missing = node.attributes.get("replaced_value_int64", 0)
    is_missing = (
        chain.add("IsNaN", x) if math.isnan(missing) else chain.add("Equal", x, operands.like("missing", missing, x))
    )
    chain.as_output(chain.add("Where", is_missing, chain.add("CastLike", values, x), x))
    return tuple(chain.nodes)


def feature_vectorizer(node: SourceNode, operands: Operands) -> Nodes:
    """Columns of all inputs side by side, each cut or filled up with zeros to its dimension."""
    chain = Chain(node, operands)
    parts = []
    for name, size in zip(node.inputs, node.attributes["inputdimensions"], strict=True):
        part = as_float(chain, name)
        if operands.rank(name) == 1:
            part = chain.add("Unsqueeze", part, operands.int64s("columns", (1,)))
        width = operands.shape(name)[1] if operands.rank(name) > 1 else 1
        if width != size:
            if not isinstance(width, int):
                raise operands.unsupported("inputdimensions", "inputs of a static width", str(width))
            part = chain.add("Pad", part, operands.int64s("pads", (0, 0, 0, size - width)), mode="constant")
        parts.append(part)
    chain.as_output(chain.add("Concat", *parts, axis=1))
    return tuple(chain.nodes)


def one_hot_encoder(node: SourceNode, operands: Operands) -> Nodes:
    """A column per category; unknown categories give zeros, or end the run where ``zeros`` is 0."""
    chain = Chain(node, operands)
    strings, x = chain.attribute("cats_strings"), node.inputs[0]
    categories = np.array(strings, object) if strings else np.array(chain.attribute("cats_int64s", ()), np.int64)
    x = x if strings else chain.add("Cast", x, to=DType.INT64)
    wide = chain.add("Unsqueeze", x, operands.int64s("axis", (-1,)))
    found = chain.add("Equal", wide, operands.constant("categories", categories))
    if not chain.attribute("zeros"):
        is_known = chain.add("ReduceMax", chain.add("Cast", found, to=DType.INT64), operands.int64s("axis", (-1,)))
        unknown = chain.add(
            "Sub", operands.int64s("one", (1,)), chain.add("Reshape", is_known, operands.int64s("flat", (-1,)))
        )
        unknown = chain.add("ReduceSum", unknown, operands.int64s("rows", (0,)), keepdims=1)
        chain.require(unknown, 0, f"node '{node.title}': the input must hold categories alone, since zeros is 0")
    chain.as_output(chain.add("Cast", found, to=DType.FLOAT32))
    return tuple(chain.nodes)


_NAN_IS_A_KEY = 4
"""The version of LabelEncoder from which on a NaN is found; before, it equals nothing, itself included."""


def label_encoder(node: SourceNode, operands: Operands) -> Nodes:
    """A table; other keys give the default."""
    chain = Chain(node, operands)
    keys, values = _table(chain, "keys"), _table(chain, "values")
    if classes := chain.attribute("classes_strings"):  # the form of opset 1
        names, numbers = np.array(classes, object), np.arange(len(classes), dtype=np.int64)
        keys, values = (names, numbers) if operands.dtype(node.inputs[0]) is DType.STRING else (numbers, names)
    if keys is None or values is None:
        raise operands.unsupported("keys, values", "lists of int64, float or strings, or tensors of them", "none")
    if node.opset < _NAN_IS_A_KEY and keys.dtype.kind == "f":
        keys, values = keys[~np.isnan(keys)], values[~np.isnan(keys)]
    table = np.concatenate([values, _default(chain, values)])
    inputs = operands.constant("keys", keys), operands.constant("values", table)
    chain.as_output(chain.add("ingot.Lookup", node.inputs[0], *inputs))
    return tuple(chain.nodes)


def category_mapper(node: SourceNode, operands: Operands) -> Nodes:
    """Names to numbers, or numbers to names."""
    chain = Chain(node, operands)
    names, numbers = np.array(chain.attribute("cats_strings", ()), object), chain.attribute("cats_int64s", ())
    default_name, default_number = chain.attribute("default_string", "_Unused"), chain.attribute("default_int64", -1)
    if operands.dtype(node.inputs[0]) is DType.STRING:
        keys, values = names, np.array([*numbers, default_number], np.int64)
    else:
        keys, values = np.array(numbers, np.int64), np.array([*names, default_name], object)
    inputs = operands.constant("keys", keys), operands.constant("values", values)
    chain.as_output(chain.add("ingot.Lookup", node.inputs[0], *inputs))
    return tuple(chain.nodes)


_LISTS = (("int64s", "default_int64", np.int64, -1), ("floats", "default_float", np.float32, -0.0))


def _table(chain: Chain, side: str) -> np.ndarray | None:
    """The keys or values of a LabelEncoder."""
    if tensor := chain.attribute(f"{side}_tensor"):
        return chain.operands.array(tensor).reshape(-1)
    if strings := chain.attribute(f"{side}_strings"):
        return np.array(strings, object)
    found = ((chain.attribute(f"{side}_{kind}"), dtype) for kind, _, dtype, _ in _LISTS)
    return next((np.array(numbers, dtype) for numbers, dtype in found if numbers), None)


def _default(chain: Chain, values: np.ndarray) -> np.ndarray:
    """One element of the type of ``values``."""
    if tensor := chain.attribute("default_tensor"):
        return chain.operands.array(tensor).reshape(-1)[:1].astype(values.dtype)
    if values.dtype == object:
        return np.array([chain.attribute("default_string", "_Unused")], object)
    kind = _LISTS[0] if values.dtype.kind == "i" else _LISTS[1]
    return np.array([chain.attribute(kind[1], kind[3])], values.dtype)


def linear_regressor(node: SourceNode, operands: Operands) -> Nodes:
    chain = Chain(node, operands)
    targets = node.attributes.get("targets", 1)
    scores = _linear_scores(chain, targets)
    chain.as_output(post_transformed(chain, scores, targets))
    return tuple(chain.nodes)


def linear_classifier(node: SourceNode, operands: Operands) -> Nodes:
    """Label and scores of every class; one score alone is that of the second of two classes."""
    chain = Chain(node, operands)
    labels = class_labels(chain)
    features = operands.shape(node.inputs[0])[-1]
    given = len(chain.required("coefficients"))
    count = given // max(1, features) if isinstance(features, int) else max(1, len(labels))
    scores = _linear_scores(chain, count)
    if count == 1 and len(labels) == 2:
        chain.as_output(two_labels(chain, scores, labels, 0.5 if _is_probability(node) else 0.0))
        scores = second_class(chain, scores, is_probability=False)
        transform = node.attributes.get("post_transform", "NONE")
        if transform == "PROBIT":
            raise operands.unsupported("post_transform", "another one for two classes", transform)
        chain.as_output(post_transformed(chain, scores, 2), 1)
        return tuple(chain.nodes)
    best = chain.add("ArgMax", scores, axis=1, keepdims=0)
    chain.as_output(chain.add("Gather", operands.constant("labels", labels), best))
    chain.as_output(post_transformed(chain, scores, count), 1)
    return tuple(chain.nodes)


def _is_probability(node: SourceNode) -> bool:
    return False


def _linear_scores(chain: Chain, targets: int) -> str:
    node = chain.node
    x = as_float(chain, node.inputs[0])
    table = chain.rows("coefficients", targets).T
    scores = chain.add("MatMul", x, chain.constant("coefficients", np.ascontiguousarray(table)))
    if node.attributes.get("intercepts"):
        scores = chain.add("Add", scores, chain.constant("intercepts", node.attributes["intercepts"]))
    return scores


# -- shared with tree ensembles and support vector machines


def as_float(chain: Chain, x: str) -> str:
    """``x`` as float32."""
    return chain.add("Cast", x, to=DType.FLOAT32)


def class_labels(chain: Chain) -> np.ndarray:
    """int64, or strings."""
    get = chain.attribute
    if strings := get("classlabels_strings"):
        return np.array(strings, object)
    numbers = get("classlabels_int64s") or get("classlabels_ints") or ()
    if not numbers:
        raise chain.operands.unsupported("class labels", "integers or strings", "none")
    return np.array(numbers, np.int64)


def two_labels(chain: Chain, scores: str, labels: np.ndarray, threshold: float) -> str:
    """The label of each row of one score: the second one above ``threshold``."""
    flat = chain.add("Squeeze", scores, chain.operands.int64s("column", (1,)))
    above = chain.add("Greater", flat, chain.constant("threshold", threshold))
    second, first = (chain.operands.constant(f"label_{i}", labels[i : i + 1].reshape(())) for i in (1, 0))
    return chain.add("Where", above, second, first)


def second_class(chain: Chain, scores: str, *, is_probability: bool) -> str:
    """One score as those of two classes: ``(1 - s, s)`` of a probability, else ``(-s, s)``."""
    other = chain.add("Sub", chain.constant("one", 1.0), scores) if is_probability else chain.add("Neg", scores)
    return chain.add("Concat", other, scores, axis=1)


def post_transformed(chain: Chain, scores: str, count: int) -> str:
    """``count`` scores of each row, transformed; a single one only by PROBIT, as ONNX Runtime has it."""
    transform = chain.attribute("post_transform", "NONE")
    match "NONE" if count == 1 and transform in ("LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO") else transform:
        case "NONE":
            return scores
        case "LOGISTIC":
            return chain.add("Sigmoid", scores)
        case "SOFTMAX":
            return chain.add("Softmax", scores, axis=1)
        case "SOFTMAX_ZERO":
            return chain.add("ingot.SoftmaxZero", scores)
        case "PROBIT":
            return chain.add("ingot.Probit", scores)
        case other:
            expected = "NONE, LOGISTIC, SOFTMAX, SOFTMAX_ZERO or PROBIT"
            raise chain.operands.unsupported("post_transform", expected, str(other))
