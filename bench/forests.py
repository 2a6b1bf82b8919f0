"""Models of decision trees as scikit-learn and boosting libraries export them, for one row and for many.

``python -m bench.forests FOLDER`` writes them; ``python -m bench.peers --models FOLDER`` times them. ``bagged_1000.onnx`` asks 50 deep
trees about 1000 rows, ``boosted_1.onnx`` 500 shallow ones about one; ``voted_n.onnx`` has five classes, and rows that only the run knows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper

from bench.saving import save_models

ROWS: tuple[int | str, ...] = (1, 1000, "n")
_DOMAINS = (helper.make_opsetid("ai.onnx.ml", 3), helper.make_opsetid("", 21))
_EARLY = 0.1
"""How many nodes end before the last level, from the third on."""


@dataclass(frozen=True)
class Shape:
    """How many trees of how many levels test how many features; one class is a regression."""

    trees: int
    levels: int
    features: int
    classes: int = 1


SHAPES: Mapping[str, Shape] = {
    "bagged": Shape(trees=50, levels=12, features=20),
    "boosted": Shape(trees=500, levels=8, features=50),
    "voted": Shape(trees=100, levels=8, features=30, classes=5),
}


@dataclass
class Lists:
    """The attributes of an ensemble under construction."""

    shape: Shape
    random: np.random.Generator
    nodes: dict[str, list[Any]] = field(default_factory=dict)
    leaves: dict[str, list[Any]] = field(default_factory=dict)

    def grow(self, tree: int, node: int = 0, level: int = 0) -> int:
        """Adds ``node`` of ``tree`` and all below it; the number of the next node."""
        if level == self.shape.levels or (level > 2 and self.random.random() < _EARLY):
            return self._leaf(tree, node)
        test = int(self.random.integers(self.shape.features)), float(self.random.normal())
        at = self._node(tree, node, "BRANCH_LEQ", *test)
        self.nodes["truenodeids"][at] = node + 1
        self.nodes["falsenodeids"][at] = self.grow(tree, node + 1, level + 1)
        return self.grow(tree, self.nodes["falsenodeids"][at], level + 1)

    def _leaf(self, tree: int, node: int) -> int:
        self._node(tree, node, "LEAF", 0, 0.0)
        for target in range(self.shape.classes):
            row = {"treeids": tree, "nodeids": node, "ids": target, "weights": float(self.random.random())}
            _append(self.leaves, row)
        return node + 1

    def _node(self, tree: int, node: int, mode: str, feature: int, value: float) -> int:
        row = {"treeids": tree, "nodeids": node, "modes": mode, "featureids": feature, "values": value}
        _append(self.nodes, {**row, "truenodeids": 0, "falsenodeids": 0})
        return len(self.nodes["treeids"]) - 1


def _append(lists: dict[str, list[Any]], row: Mapping[str, Any]) -> None:
    for name, value in row.items():
        lists.setdefault(name, []).append(value)


def forest_model(name: str, shape: Shape, rows: int | str) -> onnx.ModelProto:
    """``[rows, features]`` in float32 to a number or a class for each row."""
    lists = Lists(shape, np.random.default_rng(0))
    for tree in range(shape.trees):
        lists.grow(tree)
    many = shape.classes > 1
    op, prefix = ("TreeEnsembleClassifier", "class") if many else ("TreeEnsembleRegressor", "target")
    outputs = [helper.make_tensor_value_info("scores", onnx.TensorProto.FLOAT, [rows, shape.classes])]
    if many:
        outputs.insert(0, helper.make_tensor_value_info("label", onnx.TensorProto.INT64, [rows]))
    own = {"classlabels_int64s": list(range(shape.classes))} if many else {"n_targets": 1}
    attributes = {f"nodes_{k}": v for k, v in lists.nodes.items()} | {
        f"{prefix}_{k}": v for k, v in lists.leaves.items()
    }
    node = helper.make_node(op, ["x"], [o.name for o in outputs], domain="ai.onnx.ml", **own, **attributes)
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [rows, shape.features])
    graph = helper.make_graph([node], f"{name}_{rows}", [x], outputs)
    return helper.make_model(graph, opset_imports=_DOMAINS, ir_version=10)


if __name__ == "__main__":
    save_models(
        ((f"{name}_{rows}", forest_model(name, shape, rows)) for name, shape in SHAPES.items() for rows in ROWS),
        __doc__,
    )
