"""Tree ensembles of ai.onnx.ml: one step down all trees at once per level, then the weights of the leaves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from compiler_service.frontend.adapters.chain import Chain
from compiler_service.frontend.adapters.machine_learning import (
    as_float,
    class_labels,
    post_transformed,
    second_class,
    two_labels,
)
from compiler_service.frontend.node import SourceNode
from compiler_service.frontend.operands import Operands
from compiler_service.tensor_expr.operators.classical import neutral_weight
from shared_ir.dtype import DType

Nodes = tuple[SourceNode, ...]

_AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
_TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
_MODES = ("LEQ", "LT", "GTE", "GT", "EQ", "NEQ")
_MEMBER = 6
_DEEPEST = 512


@dataclass
class Forest:
    """Binary trees in one array of nodes; leaves are their own children."""

    roots: list[int] = field(default_factory=list)
    children: list[list[int]] = field(default_factory=list)  # [where the test fails, where it holds]
    features: list[int] = field(default_factory=list)
    thresholds: list[float] = field(default_factory=list)
    modes: list[str] = field(default_factory=list)
    missing: list[bool] = field(default_factory=list)

    def add(self, feature: int = 0, threshold: float = 0.0, mode: str = "", missing: bool = False) -> int:
        """A new node, a leaf as yet."""
        number = len(self.children)
        self.children.append([number, number])
        self.features.append(feature)
        self.thresholds.append(threshold)
        self.modes.append(mode)
        self.missing.append(missing)
        return number

    def depth(self) -> int:
        """Steps from a root to the deepest leaf; -1 when a path does not end."""
        level, steps = list(self.roots), 0
        while True:
            inner = [n for n in dict.fromkeys(level) if self.children[n] != [n, n]]
            if not inner:
                return steps
            if steps == _DEEPEST:
                return -1
            level = [c for n in inner for c in self.children[n]]
            steps += 1


def leaves(chain: Chain, forest: Forest, x: str) -> str:
    """The leaf of every tree, int32 ``[n, trees]``."""
    depth = forest.depth()
    if depth < 0:
        raise chain.operands.unsupported("nodes", f"trees of at most {_DEEPEST} levels without cycles", "others")
    kinds = tuple(dict.fromkeys(m for m in forest.modes if m)) or ("LEQ",)
    codes = [kinds.index(m) if m else 0 for m in forest.modes]
    tables: tuple[tuple[str, Any, type], ...] = (
        ("roots", forest.roots, np.int32),
        ("children", forest.children, np.int32),
        ("features", forest.features, np.int32),
        ("thresholds", forest.thresholds, np.float64 if _is_double(chain) else np.float32),
        ("modes", codes, np.int32),
        ("missing", forest.missing, np.bool_),
    )
    names = [chain.constant(label, values, dtype) for label, values, dtype in tables]
    return chain.add("ingot.TreeLeaves", x, *names, depth=depth, kinds=kinds)


def _is_double(chain: Chain) -> bool:
    return chain.operands.dtype(chain.node.inputs[0]) is DType.FLOAT64


def _input(chain: Chain) -> str:
    """The features, in double precision where the model has them so."""
    x = chain.node.inputs[0]
    return x if _is_double(chain) else as_float(chain, x)


def _old_forest(chain: Chain) -> tuple[Forest, dict[tuple[int, int], int]]:
    """The trees of TreeEnsembleRegressor and TreeEnsembleClassifier, and the number of each (tree, node)."""
    get = chain.attribute
    keys = list(zip(get("nodes_treeids"), get("nodes_nodeids"), strict=True))
    forest = Forest()
    count = len(keys)
    tracks = get("nodes_missing_value_tracks_true") or (0,) * count
    values = _floats(chain, "nodes_values")
    modes = [m.removeprefix("BRANCH_") for m in get("nodes_modes")]
    for feature, value, mode, missing in zip(get("nodes_featureids"), values, modes, tracks, strict=True):
        is_leaf = mode == "LEAF"
        forest.add(0 if is_leaf else feature, value, "" if is_leaf else mode, bool(missing))
    numbers = {key: i for i, key in enumerate(keys)}
    targets = zip(get("nodes_falsenodeids"), get("nodes_truenodeids"), strict=True)
    for i, ((tree, _), (no, yes)) in enumerate(zip(keys, targets, strict=True)):
        if forest.modes[i]:
            if (tree, no) not in numbers or (tree, yes) not in numbers:
                raise chain.operands.unsupported("nodes_truenodeids", "nodes of the same tree", f"{no}, {yes}")
            forest.children[i] = [numbers[tree, no], numbers[tree, yes]]
    first: dict[int, int] = {}
    for i, (tree, _) in enumerate(keys):
        first.setdefault(tree, i)
    forest.roots = list(first.values())
    return forest, numbers


def _floats(chain: Chain, name: str) -> Sequence[float]:
    """A list of floats given as such or, for doubles, as a tensor."""
    tensor = chain.attribute(f"{name}_as_tensor")
    if tensor is not None:
        return [float(v) for v in chain.operands.array(tensor).reshape(-1)]
    return tuple(chain.attribute(name) or ())


def _weights(
    chain: Chain, numbers: dict[tuple[int, int], int], prefix: str, targets: int, aggregate: str
) -> np.ndarray:
    """float32 ``[nodes, targets]``"""
    get = chain.attribute
    table = np.full((len(numbers), targets), neutral_weight(aggregate), np.float32)
    given: set[tuple[int, int]] = set()
    rows = zip(
        *(get(f"{prefix}_{k}") for k in ("treeids", "nodeids", "ids")), _floats(chain, f"{prefix}_weights"), strict=True
    )
    for tree, node, target, weight in rows:
        at = numbers[tree, node], target
        table[at] = (table[at] if at in given else 0.0) + weight
        given.add(at)
    return table


def tree_ensemble_regressor(node: SourceNode, operands: Operands) -> Nodes:
    chain = Chain(node, operands)
    targets, aggregate = node.attributes.get("n_targets", 1), node.attributes.get("aggregate_function", "SUM")
    forest, numbers = _old_forest(chain)
    table = _weights(chain, numbers, "target", targets, aggregate)
    found = leaves(chain, forest, _input(chain))
    scores = chain.add("ingot.TreeScores", found, chain.constant("weights", table), aggregate=aggregate)
    base = _floats(chain, "base_values")
    if base:
        scores = chain.add("Add", scores, chain.constant("base_values", base))
    chain.as_output(post_transformed(chain, scores, targets))
    return tuple(chain.nodes)


def tree_ensemble_classifier(node: SourceNode, operands: Operands) -> Nodes:
    """Labels, and scores of all classes. Two classes of which the trees score only one: the other gets the rest."""
    chain = Chain(node, operands)
    labels = class_labels(chain)
    forest, numbers = _old_forest(chain)
    table = _weights(chain, numbers, "class", len(labels), "SUM")
    scored = sorted(set(node.attributes["class_ids"]))
    found = leaves(chain, forest, _input(chain))
    base = _floats(chain, "base_values")
    if len(labels) == 2 and len(scored) == 1:
        is_probability = min(_floats(chain, "class_weights"), default=0.0) >= 0
        column = np.ascontiguousarray(table[:, scored])
        score = chain.add("ingot.TreeScores", found, chain.constant("weights", column))
        if base:
            score = chain.add("Add", score, chain.constant("base_values", base[-1:]))
        chain.as_output(two_labels(chain, score, labels, 0.5 if is_probability else 0.0))
        chain.as_output(_both_classes(chain, score, scored[0], is_probability=is_probability), 1)
        return tuple(chain.nodes)
    scores = chain.add("ingot.TreeScores", found, chain.constant("weights", table))
    if base:
        scores = chain.add("Add", scores, chain.constant("base_values", base))
    best = chain.add("ArgMax", scores, axis=1, keepdims=0)
    chain.as_output(chain.add("Gather", operands.constant("labels", labels), best))
    chain.as_output(post_transformed(chain, scores, len(labels)), 1)
    return tuple(chain.nodes)


def _both_classes(chain: Chain, score: str, scored: int, *, is_probability: bool) -> str:
    """Scores of two classes from that of one, as ONNX Runtime has them (the standard leaves it open)."""
    if scored == 1:
        nothing = chain.add("Sub", score, score)
        return post_transformed(chain, chain.add("Concat", nothing, score, axis=1), 2)
    transform = chain.attribute("post_transform", "NONE")
    if transform == "PROBIT":
        raise chain.operands.unsupported("post_transform", "another one for two classes", transform)
    if transform == "LOGISTIC":
        return chain.add("Sigmoid", second_class(chain, score, is_probability=False))
    return second_class(chain, score, is_probability=is_probability)


def tree_ensemble(node: SourceNode, operands: Operands) -> Nodes:
    """TreeEnsemble of ai.onnx.ml 5: inner nodes and leaves in arrays of their own, tests of membership in sets."""
    chain = Chain(node, operands)
    reader = _Reader(chain)
    get = chain.attribute
    for root in get("tree_roots"):
        reader.forest.roots.append(reader.tree(root))
    aggregate = _AGGREGATES[get("aggregate_function", 1)]
    targets = get("n_targets")
    weights = np.full((len(reader.forest.children), targets), neutral_weight(aggregate))
    values = operands.array(get("leaf_weights")).reshape(-1)
    for number, leaf in reader.leaf_of.items():
        weights[number, get("leaf_targetids")[leaf]] = values[leaf]
    found = leaves(chain, reader.forest, _input(chain))
    dtype = np.float64 if _is_double(chain) else np.float32
    scores = chain.add("ingot.TreeScores", found, chain.constant("weights", weights, dtype), aggregate=aggregate)
    chain.node = node.with_(attributes={"post_transform": _TRANSFORMS[get("post_transform", 0)]})
    chain.as_output(post_transformed(chain, scores, targets))
    return tuple(chain.nodes)


@dataclass
class _Reader:
    """Copies trees of TreeEnsemble into a forest; tests of membership become chains of comparisons."""

    chain: Chain
    forest: Forest = field(default_factory=Forest)
    leaf_of: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        get, array = self.chain.attribute, self.chain.operands.array
        self.splits = [float(v) for v in array(get("nodes_splits")).reshape(-1)]
        self.modes = [int(v) for v in array(get("nodes_modes")).reshape(-1)]
        self.features = get("nodes_featureids")
        self.missing = get("nodes_missing_value_tracks_true") or (0,) * len(self.modes)
        self.edges = tuple(
            list(zip(get(f"nodes_{side}nodeids"), get(f"nodes_{side}leafs"), strict=True)) for side in ("false", "true")
        )
        self.sets = self._member_sets()

    def _member_sets(self) -> dict[int, list[float]]:
        """Members by node: lists divided by NaN, in the order of the nodes that test membership."""
        given = self.chain.attribute("membership_values")
        members = [] if given is None else [float(v) for v in self.chain.operands.array(given).reshape(-1)]
        groups: list[list[float]] = [[]]
        for value in members:
            if np.isnan(value):
                groups.append([])
            else:
                groups[-1].append(value)
        nodes = [i for i, mode in enumerate(self.modes) if mode == _MEMBER]
        return dict(zip(nodes, groups, strict=False))

    def tree(self, root: int) -> int:
        """The number in the forest of the tree that starts at node ``root``, a leaf when both ways lead to one leaf."""
        no, yes = (edges[root] for edges in self.edges)
        return self._edge(*yes) if no == yes and no[1] else self._node(root, 0)

    def _edge(self, target: int, is_leaf: int, level: int = 0) -> int:
        if not is_leaf:
            return self._node(target, level)
        number = self.forest.add()
        self.leaf_of[number] = target
        return number

    def _node(self, source: int, level: int) -> int:
        if level > _DEEPEST:
            raise self.chain.operands.unsupported("nodes", f"trees of at most {_DEEPEST} levels", "deeper ones")
        forest, missing = self.forest, bool(self.missing[source])
        is_member = self.modes[source] == _MEMBER
        limits = self.sets.get(source, []) if is_member else [self.splits[source]]
        mode = "EQ" if is_member else _MODES[self.modes[source]]
        tests = [forest.add(self.features[source], limit, mode, missing) for limit in limits]
        no, yes = (self._edge(*edges[source], level + 1) for edges in self.edges)
        for test, following in zip(tests, [*tests[1:], no], strict=True):
            forest.children[test] = [following, yes]
        return tests[0] if tests else no
