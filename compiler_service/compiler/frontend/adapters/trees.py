"""Tree ensembles of ai.onnx.ml: the leaf that a row reaches in every tree, then the sum of the weights of the leaves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from compiler_service.compiler.frontend.adapters.chain import Chain
from compiler_service.compiler.frontend.adapters.forest import DEEPEST, MODES, Forest, packed
from compiler_service.compiler.frontend.adapters.machine_learning import (
    as_float,
    class_labels,
    post_transformed,
    second_class,
    two_labels,
)
from compiler_service.compiler.frontend.adapters.operands import Operands
from compiler_service.compiler.frontend.importing.node import SourceNode
from compiler_service.compiler.tensor_expr.operators.classical import neutral_weight
from shared_ir.dtype import DType

Nodes = tuple[SourceNode, ...]

_MOST_WEIGHTS = 1 << 28
"""Of all nodes for all targets."""
_AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
_TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
_MEMBER = 6


def _scores(chain: Chain, forest: Forest, weights: np.ndarray, aggregate: str = "SUM") -> str:
    """``[n, targets]``: over all trees, the ``weights`` ``[nodes, targets]`` of the leaves that rows reach."""
    if not len(forest.roots):
        raise chain.operands.unsupported("nodes", "at least one tree", "none")
    records = packed(forest)
    if records is None:
        raise chain.operands.unsupported("nodes", f"trees of at most {DEEPEST} levels without cycles", "others")
    columns = forest.features[~forest.is_leaf]
    if columns.min(initial=0) < 0:
        raise chain.operands.unsupported("nodes_featureids", "columns of the input", str(columns.min()))
    tables = [
        chain.constant(label, values, values.dtype.type)
        for label, values in (("roots", records.roots), ("records", records.words), ("steps", records.steps))
    ]
    found = chain.add(
        "ingot.TreeLeaves",
        _input(chain, int(columns.max(initial=0)) + 1),
        *tables,
        trees=len(forest.roots),
        is_missing_tested=int(records.is_missing_tested),
    )
    table = weights[records.leaves]
    return chain.add("ingot.TreeScores", found, chain.constant("weights", table, table.dtype.type), aggregate=aggregate)


def _is_double(chain: Chain) -> bool:
    return chain.operands.dtype(chain.node.inputs[0]) is DType.FLOAT64


def _input(chain: Chain, columns: int) -> str:
    """The features, in double precision where the model has them so, of at least ``columns`` columns."""
    x = chain.node.inputs[0]
    shape = chain.operands.shape(x)
    width = shape[-1] if len(shape) == 2 else 0
    if isinstance(width, int) and width < columns:
        raise chain.operands.unsupported("nodes_featureids", f"rows of at least {columns} features", f"{shape}")
    x = x if _is_double(chain) else as_float(chain, x)
    if not isinstance(width, int):  # what a row lacks is 0, where reading it would leave the memory of the input
        x = chain.add("Pad", x, chain.operands.int64s("pads", (0, 0, 0, columns)), mode="constant")
    return x


@dataclass(frozen=True)
class _Index:
    """Where the node of a tree stands in the lists of the model."""

    trees: np.ndarray
    nodes: np.ndarray

    def find(self, trees: np.ndarray, nodes: np.ndarray) -> np.ndarray:
        """-1 where there is none, of several the last."""
        wanted, (keys, order) = self._keys(trees, nodes), self._sorted
        is_known = np.isin(trees, self._own[0]) & np.isin(nodes, self._own[1])
        places = np.searchsorted(keys, wanted, side="right") - 1
        found = np.maximum(places, 0)
        if not len(keys):
            return places
        return np.where(is_known & (places >= 0) & (keys[found] == wanted), order[found], -1)

    @cached_property
    def _own(self) -> tuple[np.ndarray, np.ndarray]:
        return np.unique(self.trees), np.unique(self.nodes)

    @cached_property
    def _sorted(self) -> tuple[np.ndarray, np.ndarray]:
        """The numbers of all pairs in order, and where each stands."""
        keys = self._keys(self.trees, self.nodes)
        order = np.argsort(keys, kind="stable")
        return keys[order], order

    def _keys(self, trees: np.ndarray, nodes: np.ndarray) -> np.ndarray:
        """A number for each pair of a tree and a node that occur."""
        own_trees, own_nodes = self._own
        return np.searchsorted(own_trees, trees) * (len(own_nodes) + 1) + np.searchsorted(own_nodes, nodes)


def _old_forest(chain: Chain) -> tuple[Forest, _Index]:
    """The trees of TreeEnsembleRegressor and TreeEnsembleClassifier, and where their nodes are."""
    names = ("treeids", "nodeids", "featureids", "falsenodeids", "truenodeids")
    trees, nodes, features, no, yes = (_integers(chain, f"nodes_{name}") for name in names)
    thresholds = np.array(_floats(chain, "nodes_values"), np.float64 if _is_double(chain) else np.float32)
    modes = [mode.removeprefix("BRANCH_") for mode in chain.attribute("nodes_modes") or ()]
    tracks = _integers(chain, "nodes_missing_value_tracks_true")
    missing = tracks.astype(bool) if len(tracks) else np.zeros(len(trees), bool)
    lengths = {len(column) for column in (trees, nodes, features, no, yes, thresholds, modes, missing)}
    if len(lengths) > 1:
        raise chain.operands.unsupported("nodes", "lists of one length", f"lengths {sorted(lengths)}")
    if unknown := set(modes) - {*MODES, "LEAF"}:
        raise chain.operands.unsupported("nodes_modes", ", ".join(MODES), ", ".join(sorted(unknown)))
    index = _Index(trees, nodes)
    is_leaf = np.array([mode == "LEAF" for mode in modes], bool)
    children = np.repeat(np.where(is_leaf, np.arange(len(trees)), -1)[:, None], 2, 1)
    for side, targets in enumerate((no, yes)):
        children[~is_leaf, side] = index.find(trees[~is_leaf], targets[~is_leaf])
    if (children < 0).any():
        at = np.flatnonzero((children < 0).any(1))[0]
        raise chain.operands.unsupported("nodes_truenodeids", "nodes of the same tree", f"{no[at]}, {yes[at]}")
    _, first = np.unique(trees, return_index=True)
    codes = np.array([MODES.index(mode) if mode != "LEAF" else 0 for mode in modes], np.int8)
    return Forest(np.sort(first), children, features, thresholds, codes, missing), index


def _integers(chain: Chain, name: str) -> np.ndarray:
    return np.array(chain.attribute(name) or (), np.int64)


def _floats(chain: Chain, name: str) -> Sequence[float]:
    """A list of floats given as such or, for doubles, as a tensor."""
    tensor = chain.attribute(f"{name}_as_tensor")
    if tensor is not None:
        return [float(v) for v in chain.operands.array(tensor).reshape(-1)]
    return tuple(chain.attribute(name) or ())


def _weights(chain: Chain, index: _Index, prefix: str, targets: int, aggregate: str) -> np.ndarray:
    """float32 ``[nodes, targets]``"""
    trees, nodes, ids = (_integers(chain, f"{prefix}_{name}") for name in ("treeids", "nodeids", "ids"))
    weights = np.array(_floats(chain, f"{prefix}_weights"), np.float32)
    fit = len(trees) == len(nodes) == len(ids) == len(weights)
    at = index.find(trees, nodes) if fit else trees
    if not fit or (at < 0).any() or not ((ids >= 0) & (ids < targets)).all():
        raise chain.operands.unsupported(f"{prefix}_ids", f"nodes of the trees, and targets below {targets}", "others")
    _require_room(chain, len(index.trees), targets)
    total, is_given = np.zeros((len(index.trees), targets), np.float32), np.zeros((len(index.trees), targets), bool)
    np.add.at(total, (at, ids), weights)
    is_given[at, ids] = True
    return np.where(is_given, total, np.float32(neutral_weight(aggregate)))


def tree_ensemble_regressor(node: SourceNode, operands: Operands) -> Nodes:
    chain = Chain(node, operands)
    targets, aggregate = node.attributes.get("n_targets", 1), node.attributes.get("aggregate_function", "SUM")
    forest, index = _old_forest(chain)
    scores = _scores(chain, forest, _weights(chain, index, "target", targets, aggregate), aggregate)
    base = _floats(chain, "base_values")
    if base:
        scores = chain.add("Add", scores, chain.constant("base_values", base))
    chain.as_output(post_transformed(chain, scores, targets))
    return tuple(chain.nodes)


def tree_ensemble_classifier(node: SourceNode, operands: Operands) -> Nodes:
    """Labels, and scores of all classes. Two classes of which the trees score only one: the other gets the rest."""
    chain = Chain(node, operands)
    labels = class_labels(chain)
    forest, index = _old_forest(chain)
    table = _weights(chain, index, "class", len(labels), "SUM")
    scored = sorted(set(node.attributes["class_ids"]))
    base = _floats(chain, "base_values")
    if len(labels) == 2 and len(scored) == 1:
        is_probability = min(_floats(chain, "class_weights"), default=0.0) >= 0
        score = _scores(chain, forest, table[:, scored])
        if base:
            score = chain.add("Add", score, chain.constant("base_values", base[-1:]))
        chain.as_output(two_labels(chain, score, labels, 0.5 if is_probability else 0.0))
        chain.as_output(_both_classes(chain, score, scored[0], is_probability=is_probability), 1)
        return tuple(chain.nodes)
    scores = _scores(chain, forest, table)
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
    roots = [reader.tree(root) for root in get("tree_roots")]
    aggregate = _named(chain, "aggregate_function", _AGGREGATES, 1)
    targets = get("n_targets")
    dtype = np.float64 if _is_double(chain) else np.float32
    _require_room(chain, len(reader.children), targets)
    weights = np.full((len(reader.children), targets), neutral_weight(aggregate), dtype)
    values = operands.array(get("leaf_weights")).reshape(-1)
    _require_within(chain, "leaf_targetids", get("leaf_targetids"), targets)
    if len(values) != len(get("leaf_targetids")):
        raise operands.unsupported("leaf_weights", f"{len(get('leaf_targetids'))} weights", str(len(values)))
    for number, leaf in reader.leaf_of.items():
        weights[number, get("leaf_targetids")[leaf]] = values[leaf]
    scores = _scores(chain, reader.forest(roots, dtype), weights, aggregate)
    chain.node = node.with_(attributes={"post_transform": _named(chain, "post_transform", _TRANSFORMS, 0)})
    chain.as_output(post_transformed(chain, scores, targets))
    return tuple(chain.nodes)


def _named(chain: Chain, attribute: str, names: Sequence[str], default: int) -> str:
    number = int(chain.attribute(attribute, default))
    _require_within(chain, attribute, (number,), len(names))
    return names[number]


def _require_room(chain: Chain, nodes: int, targets: int) -> None:
    if not 0 < targets <= _MOST_WEIGHTS // max(1, nodes):
        most = _MOST_WEIGHTS // max(1, nodes)
        raise chain.operands.unsupported("n_targets", f"1 to {most} targets of {nodes} nodes", str(targets))


def _require_within(chain: Chain, attribute: str, numbers: Sequence[int], count: int) -> None:
    wrong = next((n for n in numbers if not 0 <= n < count), None)
    if wrong is not None:
        raise chain.operands.unsupported(attribute, f"numbers from 0 to {count - 1}", str(wrong))


@dataclass
class _Reader:
    """Copies trees of TreeEnsemble; tests of membership become chains of comparisons."""

    chain: Chain
    children: list[list[int]] = field(default_factory=list)
    tests: list[tuple[int, float, int, bool]] = field(default_factory=list)
    leaf_of: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        get, array = self.chain.attribute, self.chain.operands.array
        self.splits = [float(v) for v in array(get("nodes_splits")).reshape(-1)]
        self.modes = [int(v) for v in array(get("nodes_modes")).reshape(-1)]
        self.features = get("nodes_featureids")
        self.missing = get("nodes_missing_value_tracks_true") or (0,) * len(self.modes)
        self._check()
        self.edges = tuple(
            list(zip(get(f"nodes_{side}nodeids"), get(f"nodes_{side}leafs"), strict=True)) for side in ("false", "true")
        )
        self.sets = self._member_sets()

    def _check(self) -> None:
        """The lists have an element for every node, and lead to nodes and leaves that there are."""
        get, nodes, leaves = self.chain.attribute, len(self.modes), len(self.chain.attribute("leaf_targetids"))
        edges = [f"nodes_{side}{kind}" for side in ("false", "true") for kind in ("nodeids", "leafs")]
        lists = {name: get(name) for name in ("nodes_featureids", *edges)}
        lists |= {"nodes_splits": self.splits, "nodes_missing_value_tracks_true": self.missing}
        for name, values in lists.items():
            if len(values) != nodes:
                raise self.chain.operands.unsupported(name, f"an element for each of {nodes} nodes", f"{len(values)}")
        for ids, leafs in zip(edges[::2], edges[1::2], strict=True):
            for is_leaf, count in ((False, nodes), (True, leaves)):
                own = [n for n, leaf in zip(lists[ids], lists[leafs], strict=True) if bool(leaf) is is_leaf]
                _require_within(self.chain, ids, own, count)
        _require_within(self.chain, "tree_roots", get("tree_roots"), nodes)

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
        number = self._add(0, 0.0, 0, False)
        self.leaf_of[number] = target
        return number

    def _node(self, source: int, level: int) -> int:
        if level > DEEPEST:
            raise self.chain.operands.unsupported("nodes", f"trees of at most {DEEPEST} levels", "deeper ones")
        is_member = self.modes[source] == _MEMBER
        limits = self.sets.get(source, []) if is_member else [self.splits[source]]
        mode = MODES.index("EQ") if is_member else self._mode(source)
        missing = bool(self.missing[source])
        tests = [self._add(self.features[source], limit, mode, missing) for limit in limits]
        no, yes = (self._edge(*edges[source], level + 1) for edges in self.edges)
        for test, following in zip(tests, [*tests[1:], no], strict=True):
            self.children[test] = [following, yes]
        return tests[0] if tests else no

    def _mode(self, source: int) -> int:
        mode = self.modes[source]
        if not 0 <= mode < len(MODES):
            raise self.chain.operands.unsupported("nodes_modes", f"0 to {_MEMBER}", str(mode))
        return mode

    def _add(self, feature: int, limit: float, mode: int, missing: bool) -> int:
        """A new node, a leaf as yet."""
        number = len(self.children)
        self.children.append([number, number])
        self.tests.append((feature, limit, mode, missing))
        return number

    def forest(self, roots: Sequence[int], dtype: type) -> Forest:
        features, limits, modes, missing = zip(*self.tests, strict=True)
        return Forest(
            np.array(roots, np.int64),
            np.array(self.children, np.int64),
            np.array(features, np.int64),
            np.array(limits, dtype),
            np.array(modes, np.int8),
            np.array(missing, bool),
        )
