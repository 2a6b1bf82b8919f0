"""Operators of ai.onnx.ml, and sequences of tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.oracle.builder import Builder, fixed
from tests.oracle.families.along_axes import drawn_axis
from tests.oracle.families.table import family

_ML = "ai.onnx.ml"
_POST = (None, "NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO")


def _ml(b: Builder, version: int = 3) -> None:
    b.domain_opsets[_ML] = version


def _floats(b: Builder, count: int, low: float = -2, high: float = 2) -> list[float]:
    return [float(v) for v in np.round(b.draw.numbers().uniform(low, high, count), 3)]


def _rows(b: Builder, width: int) -> str:
    return b.input((b.axis(0, 7), *fixed(width)), values="tame", low=-2, high=2)


@family("Scaler", "Imputer")
def scaled(b: Builder, op: str) -> None:
    _ml(b)
    width = b.draw.integer(1, 5)
    count = b.draw.choose((width, 1))
    if op == "Scaler":
        attributes: dict[str, Any] = {"offset": _floats(b, count), "scale": _floats(b, count)}
    else:
        attributes = {
            "imputed_value_floats": _floats(b, count),
            "replaced_value_float": b.draw.choose((0.0, float("nan"), 1.0)),
        }
    b.out(b.node(op, _rows(b, width), domain=_ML, **attributes))


@family("Normalizer", "Binarizer")
def normalised(b: Builder, op: str) -> None:
    _ml(b)
    more: dict[str, Any] = {"norm": b.draw.choose(("MAX", "L1", "L2"))} if op == "Normalizer" else {"threshold": 0.25}
    b.out(b.node(op, _rows(b, b.draw.integer(1, 5)), domain=_ML, **more))


@family("ArrayFeatureExtractor")
def features(b: Builder, op: str) -> None:
    _ml(b)
    width = b.draw.integer(1, 6)
    chosen = b.draw.numbers().integers(0, width, b.draw.integer(1, 4))
    b.out(b.node(op, _rows(b, width), b.constant(chosen.astype(np.int64)), domain=_ML))


@family("LabelEncoder")
def labels(b: Builder, op: str) -> None:
    _ml(b)
    keys = list(range(b.draw.integer(1, 5)))
    x = b.input(b.shape(1, 2), np.int64, "tame", low=-2, high=6)
    more = {"keys_int64s": keys, "values_floats": _floats(b, len(keys)), "default_float": -1.5}
    b.out(b.node(op, x, domain=_ML, **more))


@family("OneHotEncoder")
def categories(b: Builder, op: str) -> None:
    _ml(b)
    known = list(range(b.draw.integer(1, 5)))
    x = b.input(b.shape(1, 2), np.int64, "tame", low=0, high=6)
    b.out(b.node(op, x, domain=_ML, cats_int64s=known, zeros=1))


@family("LinearRegressor")
def linear_regressor(b: Builder, op: str) -> None:
    _ml(b)
    width, targets = b.draw.integer(1, 5), b.draw.choose((1, 2, 3))
    more = {"coefficients": _floats(b, width * targets), "targets": targets, "post_transform": b.draw.choose(_POST[:3])}
    if b.draw.flag():
        more["intercepts"] = _floats(b, targets)
    b.out(b.node(op, _rows(b, width), domain=_ML, **more))


@family("LinearClassifier")
def linear_classifier(b: Builder, op: str) -> None:
    _ml(b)
    width, classes = b.draw.integer(1, 5), b.draw.choose((3, 2, 4))
    more = {"coefficients": _floats(b, width * classes), "intercepts": _floats(b, classes)}
    more |= {"classlabels_ints": list(range(classes)), "post_transform": b.draw.choose(_POST)}
    more["multi_class"] = b.draw.choose((None, 0, 1))
    b.out(*b.multi(op, [_rows(b, width)], 2, domain=_ML, **more))


@family("SVMRegressor")
def support_vectors(b: Builder, op: str) -> None:
    _ml(b)
    width, vectors = b.draw.integer(1, 4), b.draw.integer(1, 5)
    more: dict[str, Any] = {
        "kernel_type": b.draw.choose(("RBF", "LINEAR", "POLY", "SIGMOID")),
        "kernel_params": [0.5, 0.25, 2.0],
    }
    more |= {"coefficients": _floats(b, vectors), "support_vectors": _floats(b, width * vectors), "rho": _floats(b, 1)}
    b.out(b.node(op, _rows(b, width), domain=_ML, n_supports=vectors, **more))


def _trees(b: Builder, width: int) -> dict[str, list[Any]]:
    """A few complete trees of two levels of tests."""
    rows: dict[str, list[Any]] = {
        k: [] for k in ("treeids", "nodeids", "featureids", "values", "modes", "truenodeids", "falsenodeids")
    }
    modes = b.draw.choose((("BRANCH_LEQ",), ("BRANCH_LT",), ("BRANCH_GT", "BRANCH_LEQ"), ("BRANCH_GTE", "BRANCH_EQ")))
    for tree in range(b.draw.integer(1, 4)):
        for node in range(7):
            inner = node < 3
            rows["treeids"].append(tree)
            rows["nodeids"].append(node)
            rows["featureids"].append(b.draw.integer(0, width - 1) if inner else 0)
            rows["values"].append(b.draw.choose((0.5, 0.0, -0.75, 1.25)) if inner else 0.0)
            rows["modes"].append(b.draw.choose(modes) if inner else "LEAF")
            rows["truenodeids"].append(2 * node + 1 if inner else 0)
            rows["falsenodeids"].append(2 * node + 2 if inner else 0)
    return {f"nodes_{k}": v for k, v in rows.items()}


@family("TreeEnsembleRegressor", "TreeEnsembleClassifier")
def trees(b: Builder, op: str) -> None:
    _ml(b)
    width = b.draw.integer(1, 4)
    nodes = _trees(b, width)
    leaves = [
        (t, n)
        for t, n, m in zip(nodes["nodes_treeids"], nodes["nodes_nodeids"], nodes["nodes_modes"], strict=True)
        if m == "LEAF"
    ]
    prefix, ways = ("target", b.draw.choose((1, 2))) if op.endswith("Regressor") else ("class", b.draw.choose((3, 2)))
    more: dict[str, Any] = {
        f"{prefix}_treeids": [t for t, _ in leaves],
        f"{prefix}_nodeids": [n for _, n in leaves],
        f"{prefix}_ids": [b.draw.integer(0, ways - 1) for _ in leaves],
        f"{prefix}_weights": _floats(b, len(leaves)),
        "post_transform": b.draw.choose(_POST[:4]),
    }
    x = _rows(b, width)
    if op.endswith("Regressor"):
        more["aggregate_function"] = b.draw.choose((None, "SUM", "AVERAGE", "MIN", "MAX"))
        b.out(b.node(op, x, domain=_ML, n_targets=ways, **nodes, **more))
        return
    b.out(*b.multi(op, [x], 2, domain=_ML, classlabels_int64s=list(range(ways)), **nodes, **more))


@family("SequenceAt", "SequenceInsert", "SequenceErase", "SequenceLength", "ConcatFromSequence")
def sequences(b: Builder, op: str) -> None:
    """A sequence made of inputs of one rank, changed, and one tensor of it."""
    shape = b.shape(1, 3)
    parts = [b.input(shape, values="tame") for _ in range(b.draw.integer(1, 3))]
    held = b.node("SequenceConstruct", *parts)
    count = len(parts)
    place = b.parameter([np.array(b.draw.integer(-count, count - 1)) for _ in range(2)])
    match op:
        case "SequenceInsert":
            held = b.node(op, held, b.input(shape, values="tame"), *([place] if b.draw.flag() else []))
        case "SequenceErase" if count > 1:
            held = b.node(op, held, *([place] if b.draw.flag() else []))
        case "SequenceLength":
            b.out(b.node(op, held))
        case "SequenceAt":
            b.out(b.node(op, held, place))
            return
    new_axis = b.draw.choose((None, 0, 1))
    b.out(b.node("ConcatFromSequence", held, axis=drawn_axis(b, len(shape)), new_axis=new_axis))


@family("SplitToSequence")
def split_to_sequence(b: Builder, op: str) -> None:
    shape = b.shape(1, 3, least=1)
    axis = drawn_axis(b, len(shape))
    size = [] if b.draw.flag() else [b.constant(np.array(b.draw.integer(1, 3)))]
    keep = b.draw.choose((None, 0, 1)) if not size else None
    held = b.node(op, b.input(shape, values="tame"), *size, axis=axis, keepdims=keep)
    b.out(b.node("SequenceLength", held), b.node("SequenceAt", held, b.constant(np.array(b.draw.choose((0, -1))))))
