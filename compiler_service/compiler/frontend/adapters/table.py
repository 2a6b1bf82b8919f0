"""Which form of which operator needs an adapter."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

from compiler_service.compiler.frontend.adapters import (
    attributes_to_inputs,
    broadcasting,
    decomposition,
    machine_learning,
    ngrams,
    normalization,
    renaming,
    resize,
    support_vectors,
    trees,
)
from compiler_service.compiler.frontend.adapters.microsoft import normalization as microsoft_normalization
from compiler_service.compiler.frontend.adapters.microsoft.table import MICROSOFT
from compiler_service.compiler.frontend.adapters.operands import Operands
from compiler_service.compiler.frontend.importing.node import SourceNode
from compiler_service.compiler.frontend.reading.source import NEWEST_OPSET
from compiler_service.compiler.frontend.standard.forms import Schema
from compiler_service.compiler.frontend.standard.schemas import WRITTEN_EARLY, find_schema
from compiler_service.compiler.frontend.standard.uses import EVERYWHERE
from shared_ir.errors import ErrorCode, IngotError

Adapter: TypeAlias = Callable[[SourceNode, Operands], tuple[SourceNode, ...]]


@dataclass(frozen=True)
class Adaptation:
    """``adapt`` brings a form from before opset ``before`` to the newest one."""

    before: int
    adapt: Adapter


_REDUCTIONS = tuple(
    f"Reduce{kind}" for kind in ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "SumSquare")
)
_ALWAYS = NEWEST_OPSET + 1
_BINARY = ("Add", "Sub", "Mul", "Div", "Pow", "And", "Or", "Xor", "Equal", "Greater", "Less")

_MACHINE_LEARNING: Mapping[str, Adapter] = {
    "ArrayFeatureExtractor": machine_learning.array_feature_extractor,
    "Binarizer": machine_learning.binarizer,
    "CategoryMapper": machine_learning.category_mapper,
    "FeatureVectorizer": machine_learning.feature_vectorizer,
    "Imputer": machine_learning.imputer,
    "LabelEncoder": machine_learning.label_encoder,
    "LinearClassifier": machine_learning.linear_classifier,
    "LinearRegressor": machine_learning.linear_regressor,
    "Normalizer": machine_learning.normalizer,
    "OneHotEncoder": machine_learning.one_hot_encoder,
    "SVMClassifier": support_vectors.svm_classifier,
    "SVMRegressor": support_vectors.svm_regressor,
    "Scaler": machine_learning.scaler,
    "TreeEnsemble": trees.tree_ensemble,
    "TreeEnsembleClassifier": trees.tree_ensemble_classifier,
    "TreeEnsembleRegressor": trees.tree_ensemble_regressor,
}

ADAPTATIONS: Mapping[str, Adaptation] = MappingProxyType(
    {
        **{op: Adaptation(18, attributes_to_inputs.axes) for op in _REDUCTIONS},
        **{op: Adaptation(7, broadcasting.from_axis) for op in _BINARY},
        **{op: Adaptation(13, normalization.softmax) for op in ("Softmax", "LogSoftmax", "Hardmax")},
        **{op: Adaptation(_ALWAYS, renaming.recurrent) for op in ("RNN", "GRU", "LSTM")},
        **{op: Adaptation(2, renaming.norm_order) for op in ("LpPool", "GlobalLpPool")},
        "ReduceSum": Adaptation(13, attributes_to_inputs.axes),
        "Squeeze": Adaptation(13, attributes_to_inputs.axes),
        "Unsqueeze": Adaptation(13, attributes_to_inputs.axes),
        "Split": Adaptation(18, attributes_to_inputs.split),
        "Slice": Adaptation(_ALWAYS, attributes_to_inputs.slice_),
        "Pad": Adaptation(11, attributes_to_inputs.pad),
        "Clip": Adaptation(11, attributes_to_inputs.clip),
        "Dropout": Adaptation(12, attributes_to_inputs.dropout),
        "TopK": Adaptation(_ALWAYS, attributes_to_inputs.top_k),
        "Reshape": Adaptation(5, attributes_to_inputs.reshape),
        "Tile": Adaptation(6, attributes_to_inputs.tile),
        "DFT": Adaptation(_ALWAYS, attributes_to_inputs.dft),
        "STFT": Adaptation(_ALWAYS, decomposition.stft),
        **{op: Adaptation(_ALWAYS, decomposition.variadic) for op in ("Sum", "Max", "Min", "Mean")},
        "Det": Adaptation(_ALWAYS, decomposition.determinant),
        "TfIdfVectorizer": Adaptation(_ALWAYS, ngrams.tf_idf),
        "PRelu": Adaptation(7, broadcasting.prelu),
        "Gemm": Adaptation(7, broadcasting.gemm),
        "BatchNormalization": Adaptation(14, normalization.batch_normalization),
        "GroupNormalization": Adaptation(21, normalization.group_normalization),
        "Upsample": Adaptation(_ALWAYS, resize.upsample),
        "Resize": Adaptation(11, resize.resize_10),
        "Concat": Adaptation(4, renaming.concat),
        "Cast": Adaptation(6, renaming.cast_1),
        "Scatter": Adaptation(_ALWAYS, renaming.scatter),
        "GridSample": Adaptation(20, renaming.grid_sample),
        "RoiAlign": Adaptation(_ALWAYS, renaming.roi_align),
        "Scan": Adaptation(9, decomposition.scan_8),
        "SimplifiedLayerNormalization": Adaptation(_ALWAYS, microsoft_normalization.simplified_layer_normalization),
        **{f"ai.onnx.ml.{op}": Adaptation(_ALWAYS, adapt) for op, adapt in _MACHINE_LEARNING.items()},
        **{f"com.microsoft.{op}": Adaptation(_ALWAYS, adapt) for op, adapt in MICROSOFT.items()},
    }
)


_RENAMED = MappingProxyType(
    {
        "Upsample": "Resize",
        "Scatter": "ScatterElements",
        "TopK": "ingot.Ranks",
        "DFT": "ingot.Fourier",
        "STFT": "ingot.Fourier",
        "Det": "ingot.Pivot",
        "TfIdfVectorizer": "ingot.NgramCounts",
    }
)


def newest_name(node: SourceNode) -> str:
    """The operator that ``node`` becomes, or one of several."""
    return "Identity" if node.domain else _RENAMED.get(node.op, node.op)


def is_adapted(node: SourceNode) -> bool:
    """Whether :func:`adapt` changes ``node``, and so may ask about its inputs."""
    adaptation = ADAPTATIONS.get(node.qualified)
    return adaptation is not None and node.opset < adaptation.before


def adapt(node: SourceNode, operands: Operands) -> tuple[SourceNode, ...]:
    """``node`` in the newest form of its operator, possibly as several nodes in order.

    Raises:
        IngotError: UNSUPPORTED_OPSET for a form that has no adapter, UNSUPPORTED_ATTRIBUTE for a case it leaves out.
    """
    if is_adapted(node):
        return ADAPTATIONS[node.qualified].adapt(node, operands)
    if not node.domain:
        _check_compatible(node)
    return (node,)


def _check_compatible(node: SourceNode) -> None:
    """The form of ``node`` must be one that the newest form contains."""
    newest = find_schema(node.op, "", NEWEST_OPSET)
    used = newest if node.op in WRITTEN_EARLY else find_schema(node.op, "", node.opset)
    if used is not None and newest is not None and not newest.deprecated and _contains(newest, used):
        return
    raise IngotError(
        ErrorCode.UNSUPPORTED_OPSET,
        f"{node.op} as opset {node.opset} defines it is not supported",
        node=str(node),
        expected="a newer form of the operator",
        received=f"the form of opset {used.since_version if used is not None else node.opset}",
        remedy="Convert the model to a newer opset (onnx.version_converter) or export it again.",
    )


def _contains(newest: Schema, used: Schema) -> bool:
    attributes = set(used.attributes) - set(EVERYWHERE)
    return attributes <= set(newest.attributes) and len(used.inputs) <= len(newest.inputs)
