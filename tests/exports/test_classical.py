"""Models of scikit-learn and LightGBM, as skl2onnx and onnxmltools write them."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import onnx
import pytest

pytest.importorskip("sklearn", reason="needs the extra `exports`: make exports")
pytest.importorskip("skl2onnx", reason="needs the extra `exports`: make exports")

from skl2onnx import to_onnx
from sklearn import (
    cluster,
    decomposition,
    ensemble,
    feature_selection,
    linear_model,
    naive_bayes,
    neighbors,
    neural_network,
    pipeline,
    preprocessing,
    svm,
    tree,
)

from tests.exports.beside import check

_RANDOM = np.random.default_rng(0)
_X = _RANDOM.normal(size=(60, 5)).astype(np.float32)
_CLASSES = (_X[:, 0] + _X[:, 1] > 0).astype(np.int64) + (_X[:, 2] > 0.7)
_NUMBERS = (_X @ np.arange(5) + 0.1).astype(np.float32)

_CLASSIFIERS: tuple[Any, ...] = (
    linear_model.LogisticRegression(), linear_model.SGDClassifier(random_state=0), svm.LinearSVC(), svm.SVC(),
    svm.SVC(kernel="poly"), naive_bayes.GaussianNB(), tree.DecisionTreeClassifier(random_state=0),
    ensemble.RandomForestClassifier(8, random_state=0), ensemble.GradientBoostingClassifier(n_estimators=6, random_state=0),
    ensemble.HistGradientBoostingClassifier(max_iter=6), neighbors.KNeighborsClassifier(3),
    neural_network.MLPClassifier((6,), max_iter=30, random_state=0), ensemble.AdaBoostClassifier(n_estimators=4, random_state=0),
)  # fmt: skip
_REGRESSORS: tuple[Any, ...] = (
    linear_model.LinearRegression(), linear_model.Ridge(), linear_model.Lasso(0.1), linear_model.BayesianRidge(), svm.SVR(),
    tree.DecisionTreeRegressor(random_state=0), ensemble.RandomForestRegressor(8, random_state=0),
    ensemble.GradientBoostingRegressor(n_estimators=6, random_state=0), ensemble.ExtraTreesRegressor(8, random_state=0),
    neighbors.KNeighborsRegressor(3), neural_network.MLPRegressor(hidden_layer_sizes=(6,), max_iter=30, random_state=0),
)  # fmt: skip
_TRANSFORMERS: tuple[Any, ...] = (
    preprocessing.StandardScaler(), preprocessing.MinMaxScaler(), preprocessing.RobustScaler(), preprocessing.MaxAbsScaler(),
    preprocessing.Normalizer(), preprocessing.Binarizer(), preprocessing.PolynomialFeatures(2),
    preprocessing.KBinsDiscretizer(3, encode="ordinal"),
    preprocessing.PowerTransformer(), decomposition.PCA(2), decomposition.TruncatedSVD(2), cluster.KMeans(3, random_state=0),
    feature_selection.SelectKBest(k=2),
)  # fmt: skip


def _name(estimator: Any) -> str:
    kernel = getattr(estimator, "kernel", "")
    return type(estimator).__name__ + (f"-{kernel}" if isinstance(kernel, str) and kernel == "poly" else "")


def _exported(estimator: Any, targets: Any) -> onnx.ModelProto:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        estimator.fit(_X, targets)
        has_map = hasattr(estimator, "classes_") and not isinstance(estimator, svm.LinearSVC)
        options = {"zipmap": False} if has_map else None
        return to_onnx(estimator, _X[:1], options=options, target_opset={"": 18, "ai.onnx.ml": 3})


def _runs(model: onnx.ModelProto) -> list[dict[str, Any]]:
    name = model.graph.input[0].name
    return [{name: _RANDOM.normal(size=(rows, 5)).astype(np.float32)} for rows in (1, 7)]


@pytest.mark.slow
@pytest.mark.parametrize("estimator", _CLASSIFIERS, ids=_name)
def test_classifiers(estimator: Any) -> None:
    model = _exported(estimator, _CLASSES)
    check(model, _runs(model))


@pytest.mark.slow
@pytest.mark.parametrize("estimator", _REGRESSORS, ids=_name)
def test_regressors(estimator: Any) -> None:
    model = _exported(estimator, _NUMBERS)
    check(model, _runs(model))


@pytest.mark.slow
@pytest.mark.parametrize("estimator", _TRANSFORMERS, ids=_name)
def test_transformers(estimator: Any) -> None:
    model = _exported(estimator, _CLASSES)
    check(model, _runs(model))


@pytest.mark.slow
def test_pipeline() -> None:
    steps = [preprocessing.StandardScaler(), decomposition.PCA(3), linear_model.LogisticRegression()]
    model = _exported(pipeline.make_pipeline(*steps), _CLASSES)
    check(model, _runs(model))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["classifier", "regressor", "binary"])
def test_lightgbm(kind: str) -> None:
    lightgbm = pytest.importorskip("lightgbm", reason="needs the extra `exports`: make exports")
    tools = pytest.importorskip("onnxmltools", reason="needs the extra `exports`: make exports")
    from onnxmltools.convert.common.data_types import FloatTensorType

    targets = {"classifier": _CLASSES, "regressor": _NUMBERS, "binary": (_CLASSES > 0).astype(np.int64)}[kind]
    make = lightgbm.LGBMRegressor if kind == "regressor" else lightgbm.LGBMClassifier
    fitted = make(n_estimators=6, min_child_samples=3, verbose=-1).fit(_X, targets)
    more = {} if kind == "regressor" else {"zipmap": False}
    model = tools.convert_lightgbm(fitted, initial_types=[("x", FloatTensorType([None, 5]))], target_opset=15, **more)
    check(model, _runs(model))
