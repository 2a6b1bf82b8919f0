"""ai.onnx.ml through compiled code, compared with ONNX Runtime."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from shared_ir.errors import ErrorCode, IngotError
from tests.cases import every
from tests.conformance.compiled import check_against_onnx_runtime, one_node, run_compiled, run_onnx_runtime

pytestmark = pytest.mark.slow

RNG = np.random.default_rng(7)
X = RNG.normal(size=(33, 5)).astype(np.float32)


def check(op: str, feeds: dict[str, np.ndarray], outputs: int = 1, opset: int = 3, **attributes: Any) -> None:
    check_against_onnx_runtime(one_node(op, feeds, outputs, "ai.onnx.ml", opset, **attributes), feeds)


@pytest.mark.parametrize("norm", ["MAX", "L1", "L2"])
def test_normalizer(norm: str) -> None:
    check("Normalizer", {"x": np.abs(X)}, norm=norm)


def test_scaler() -> None:
    check("Scaler", {"x": X}, offset=[0.5, 1.0, -2.0, 0.0, 3.0], scale=[2.0, 1.0, 0.5, -1.0, 3.0])
    check("Scaler", {"x": X.astype(np.float64)}, offset=[0.5], scale=[2.0])


def test_imputer() -> None:
    x = X.copy()
    x[::3, 1] = np.nan
    check("Imputer", {"x": x}, imputed_value_floats=[1.0, 2.0, 3.0, 4.0, 5.0], replaced_value_float=float("nan"))
    check("Imputer", {"x": np.arange(15).reshape(3, 5)}, imputed_value_int64s=[-9], replaced_value_int64=7)


def test_one_hot_encoder_gives_zeros_for_unknown_categories() -> None:
    check("OneHotEncoder", {"x": np.array([[3], [1], [8], [2]])}, cats_int64s=[1, 2, 3], zeros=1)


def test_label_encoder() -> None:
    check("LabelEncoder", {"x": np.array([3, 1, 8])}, keys_int64s=[1, 3], values_floats=[0.5, 1.5], default_float=9.0)
    feeds = {"x": np.array([0.5, np.nan, 2.0], np.float32)}
    check("LabelEncoder", feeds, opset=4, keys_floats=[0.5, float("nan")], values_int64s=[7, 8], default_int64=-3)


def test_feature_vectorizer() -> None:
    check("FeatureVectorizer", {"a": X, "b": X[:, :2].copy()}, inputdimensions=[5, 2])


@pytest.mark.parametrize("transform", every(["NONE", "LOGISTIC", "SOFTMAX"], quick={"SOFTMAX"}))
def test_linear_models(transform: str) -> None:
    coefficients, intercepts = RNG.normal(size=15).tolist(), [0.1, -0.2, 0.3]
    check("LinearRegressor", {"x": X}, coefficients=coefficients, intercepts=intercepts, targets=3)
    check(
        "LinearClassifier",
        {"x": X},
        outputs=2,
        coefficients=coefficients,
        intercepts=intercepts,
        classlabels_ints=[4, 7, 2],
        post_transform=transform,
    )


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["LINEAR", "POLY", "RBF", "SIGMOID"])
def test_support_vector_regression(kernel: str) -> None:
    check(
        "SVMRegressor",
        {"x": X},
        coefficients=RNG.normal(size=4).tolist(),
        kernel_params=[0.3, 0.5, 2.0],
        kernel_type=kernel,
        n_supports=4,
        rho=[0.25],
        support_vectors=RNG.normal(size=20).tolist(),
    )


def forest(trees: int, depth: int, mode: str) -> dict[str, Any]:
    """Random complete trees, as the ``nodes_*`` attributes."""
    inner, total = 2**depth - 1, 2 ** (depth + 1) - 1
    columns: dict[str, list[Any]] = {k: [] for k in ("treeids", "nodeids", "featureids", "values", "modes")}
    columns |= {k: [] for k in ("truenodeids", "falsenodeids", "missing_value_tracks_true")}
    for tree in range(trees):
        for number in range(total):
            is_inner = number < inner
            columns["treeids"].append(tree)
            columns["nodeids"].append(number)
            columns["featureids"].append(int(RNG.integers(5)) if is_inner else 0)
            columns["values"].append(float(np.float32(RNG.normal())) if is_inner else 0.0)
            columns["modes"].append(f"BRANCH_{mode}" if is_inner else "LEAF")
            columns["truenodeids"].append(2 * number + 1 if is_inner else 0)
            columns["falsenodeids"].append(2 * number + 2 if is_inner else 0)
            columns["missing_value_tracks_true"].append(int(RNG.integers(2)))
    return {f"nodes_{k}": v for k, v in columns.items()}


def leaf_weights(prefix: str, trees: int, depth: int, targets: list[int], *, positive: bool) -> dict[str, Any]:
    rows = [
        (tree, node, target, float(RNG.uniform() / trees if positive else RNG.normal()))
        for tree in range(trees)
        for node in range(2**depth - 1, 2 ** (depth + 1) - 1)
        for target in targets
    ]
    names = [f"{prefix}_{k}" for k in ("treeids", "nodeids", "ids", "weights")]
    return dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "aggregate"),
    every(
        itertools.product(("LEQ", "LT", "GT"), ("SUM", "AVERAGE", "MIN", "MAX")),
        quick={("LEQ", "SUM"), ("LT", "AVERAGE"), ("GT", "MIN"), ("LEQ", "MAX")},
    ),
)
def test_tree_ensemble_regressor(mode: str, aggregate: str) -> None:
    x = X.copy()
    x[::4, 2] = np.nan
    attributes = {**forest(6, 3, mode), **leaf_weights("target", 6, 3, [0, 1], positive=False)}
    check("TreeEnsembleRegressor", {"x": x}, n_targets=2, aggregate_function=aggregate, **attributes)


@pytest.mark.parametrize("transform", every(["NONE", "LOGISTIC", "SOFTMAX"], quick={"SOFTMAX"}))
def test_tree_ensemble_classifier(transform: str) -> None:
    attributes = {**forest(5, 3, "LEQ"), **leaf_weights("class", 5, 3, [0, 1, 2], positive=True)}
    check(
        "TreeEnsembleClassifier",
        {"x": X},
        outputs=2,
        classlabels_int64s=[10, 20, 30],
        post_transform=transform,
        **attributes,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("transform", "positive", "scored"),
    every(
        itertools.product(("NONE", "LOGISTIC", "SOFTMAX"), (True, False), (0, 1)),
        quick={("NONE", True, 1), ("NONE", False, 0), ("LOGISTIC", True, 0), ("SOFTMAX", False, 1)},
    ),
)
def test_tree_ensemble_of_two_classes_of_which_one_is_scored(transform: str, positive: bool, scored: int) -> None:
    attributes = {**forest(5, 3, "LEQ"), **leaf_weights("class", 5, 3, [scored], positive=positive)}
    check(
        "TreeEnsembleClassifier",
        {"x": X},
        outputs=2,
        classlabels_int64s=[0, 1],
        post_transform=transform,
        **attributes,
    )


@pytest.mark.parametrize("trees", [1, 3, 11])
def test_deep_trees(trees: int) -> None:
    """Written as one expression, a path of eleven levels would mention its first node four million times."""
    attributes = {**forest(trees, 11, "LEQ"), **leaf_weights("target", trees, 11, [0], positive=False)}
    check("TreeEnsembleRegressor", {"x": X}, n_targets=1, **attributes)


@pytest.mark.parametrize("mode", ["GTE", "EQ", "NEQ"])
def test_other_tests_of_trees(mode: str) -> None:
    attributes = {**forest(9, 4, mode), **leaf_weights("target", 9, 4, [0], positive=False)}
    limits = np.array(attributes["nodes_values"], np.float32)
    x = np.resize(limits[limits != 0], (40, 5)).astype(np.float32)
    check("TreeEnsembleRegressor", {"x": x}, n_targets=1, **attributes)


@pytest.mark.parametrize(
    ("column", "width", "expected"), [(4, 3, "rows of at least 5 features"), (-1, 5, "columns of the input")]
)
def test_trees_that_test_what_rows_do_not_have_are_refused(column: int, width: int, expected: str) -> None:
    attributes = {**forest(2, 3, "LEQ"), **leaf_weights("target", 2, 3, [0], positive=False)}
    attributes["nodes_featureids"][0] = column
    with pytest.raises(IngotError, match=expected) as caught:
        check("TreeEnsembleRegressor", {"x": X[:, :width]}, n_targets=1, **attributes)
    assert caught.value.code is ErrorCode.UNSUPPORTED_ATTRIBUTE


@pytest.mark.parametrize("labels", [["no", "yes", "maybe"], [3, 7, -1]])
def test_classifiers_with_labels_of_any_type_and_maps(labels: list[Any]) -> None:
    """As skl2onnx exports them by default."""
    key = "classlabels_strings" if isinstance(labels[0], str) else "classlabels_ints"
    zip_key = key.replace("ints", "int64s")
    nodes = [
        helper.make_node(
            "LinearClassifier",
            ["x"],
            ["label", "scores"],
            domain="ai.onnx.ml",
            coefficients=RNG.normal(size=15).tolist(),
            intercepts=[0.1, -0.2, 0.3],
            post_transform="SOFTMAX",
            **{key: labels},
        ),
        helper.make_node("ZipMap", ["scores"], ["maps"], domain="ai.onnx.ml", **{zip_key: labels}),
    ]
    label_type = onnx.TensorProto.STRING if isinstance(labels[0], str) else onnx.TensorProto.INT64
    maps = onnx.ValueInfoProto(name="maps")
    maps.type.sequence_type.elem_type.map_type.key_type = label_type
    maps.type.sequence_type.elem_type.map_type.value_type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    outputs = [helper.make_tensor_value_info("label", label_type, ["n"]), maps]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", 1, ["n", 5])], outputs)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 1)]
    proto = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    (label, found), (expected_label, expected) = run_compiled(proto, {"x": X}), run_onnx_runtime(proto, {"x": X})
    assert label.tolist() == expected_label.tolist()
    assert len(found) == len(expected) == 33
    for own, theirs in zip(found, expected, strict=True):
        assert own == pytest.approx(theirs, rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kernel", "counts", "probabilities"),
    every(
        [(*k, p) for k in (("RBF", (2, 3, 2)), ("LINEAR", (3, 2)), ("POLY", (2, 1, 3, 2, 2))) for p in (False, True)],
        quick={("RBF", (2, 3, 2), False), ("LINEAR", (3, 2), True), ("POLY", (2, 1, 3, 2, 2), False)},
    ),
)
def test_support_vector_classifiers(kernel: str, counts: tuple[int, ...], probabilities: bool) -> None:
    classes, total = len(counts), sum(counts)
    pairs = classes * (classes - 1) // 2
    given: dict[str, Any] = {"prob_a": (-RNG.random(pairs)).tolist(), "prob_b": RNG.normal(size=pairs).tolist()}
    check(
        "SVMClassifier",
        {"x": X},
        outputs=2,
        opset=1,
        kernel_type=kernel,
        kernel_params=[0.2, 0.3, 2.0],
        post_transform="NONE",
        support_vectors=RNG.normal(size=total * 5).tolist(),
        vectors_per_class=counts,
        coefficients=RNG.normal(size=(classes - 1) * total).tolist(),
        rho=RNG.normal(size=pairs).tolist(),
        classlabels_ints=list(range(7, 7 + classes)),
        **(given if probabilities else {}),
    )


@pytest.mark.parametrize("zeros", [0, 1])
def test_one_hot_encoder_of_unknown_categories(zeros: int) -> None:
    known, unknown = np.array([[1, 2], [3, 3]]), np.array([[1, 7], [2, 2]])
    model = one_node("OneHotEncoder", {"x": known}, domain="ai.onnx.ml", opset=3, cats_int64s=[1, 2, 3], zeros=zeros)
    check_against_onnx_runtime(model, {"x": known})
    if zeros:
        check_against_onnx_runtime(model, {"x": unknown})
    else:
        with pytest.raises(IngotError, match="must hold categories alone"):
            run_compiled(model, {"x": unknown})
