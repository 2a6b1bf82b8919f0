"""The passes that a model goes through, in order."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from compiler_service.compiler.graph_passes.algebra.fold_batch_norm import FoldBatchNorm
from compiler_service.compiler.graph_passes.algebra.simplify_algebra import SimplifyAlgebra
from compiler_service.compiler.graph_passes.cleaning.basic_blocks import BasicBlocks
from compiler_service.compiler.graph_passes.cleaning.eliminate_common_subexpressions import (
    EliminateCommonSubexpressions,
)
from compiler_service.compiler.graph_passes.cleaning.eliminate_dead_code import EliminateDeadCode
from compiler_service.compiler.graph_passes.cleaning.fold_constants import FoldConstants
from compiler_service.compiler.graph_passes.convolutions.divide_means import DivideMeans
from compiler_service.compiler.graph_passes.convolutions.factor_transforms import FactorTransforms
from compiler_service.compiler.graph_passes.convolutions.separate_phases import SeparatePhases
from compiler_service.compiler.graph_passes.convolutions.separate_taps import SeparateTaps
from compiler_service.compiler.graph_passes.fusion.fuse import Fuse
from compiler_service.compiler.graph_passes.fusion.tile_batch import Costs, TileBatch
from compiler_service.compiler.graph_passes.layout.choose_layout import ChooseLayout
from compiler_service.compiler.graph_passes.memory.pad_rows import PadRows
from compiler_service.compiler.graph_passes.memory.place_parts import PlaceParts
from compiler_service.compiler.graph_passes.memory.separate_outputs import SeparateOutputs
from compiler_service.compiler.graph_passes.memory.split_concatenations import SplitConcatenations
from compiler_service.compiler.graph_passes.normal_form.expand_operators import ExpandOperators
from compiler_service.compiler.graph_passes.normal_form.fold_shapes import FoldShapes
from compiler_service.compiler.graph_passes.normal_form.lower_loops import LowerLoops
from compiler_service.compiler.graph_passes.precision.halve_weights import HalveWeights
from compiler_service.compiler.graph_passes.precision.keep_quantized import KeepQuantized
from compiler_service.compiler.graph_passes.precision.multiply_bytes import MultiplyBytes
from compiler_service.compiler.graph_passes.precision.widen_floats import WidenFloats
from compiler_service.compiler.graph_passes.rewriting.pass_manager import Pass, Pipeline
from shared_ir.dtype import HALVES, DType
from shared_ir.machine.target import Target

PASSES: Mapping[str, type[Pass]] = MappingProxyType(
    {
        p.name: p
        for p in (
            ExpandOperators,
            LowerLoops,
            EliminateDeadCode,
            BasicBlocks,
            FoldShapes,
            WidenFloats,
            MultiplyBytes,
            KeepQuantized,
            FactorTransforms,
            FoldConstants,
            EliminateCommonSubexpressions,
            SimplifyAlgebra,
            FoldBatchNorm,
            SeparatePhases,
            ChooseLayout,
            SeparateTaps,
            DivideMeans,
            HalveWeights,
            Fuse,
            TileBatch,
            SeparateOutputs,
            PlaceParts,
            SplitConcatenations,
            PadRows,
        )
    }
)
"""Every pass by name; ``basic-blocks`` is in no pipeline of a level: what it saves depends on the branch that runs take."""

_DEQUANTIZED = frozenset({"DequantizeLinear"})
"""Weights that a model quantizes itself are bytes once what quantizes them is folded; floats again, once this is, too."""


def default_pipeline(opt_level: int, target: Target | None = None, *, filters: bool = False) -> Pipeline:
    """The pipeline for an optimisation level; run it under a context of the same level.

    0: what is needed to run (shapes folded, one group per operator). 1: also dead code, constants, common subexpressions.
    2: also batch norm and algebra. 3: also layout, fusion and concatenations without copies, branches added up, rounding that
    changes the last bit, and halves computed as float32.

    ``target``: its instructions and cores decide what is worth while; left out, one core that has no instruction for bytes.
    ``filters``: whether convolutions may be filtered by Winograd's algorithm.
    """
    dots = None if target is None else target.dot4
    cores = 1 if target is None else target.cores
    lanes = SeparateTaps.lanes if target is None else target.vector_bits // DType.FLOAT32.bits
    halves = HALVES if target is None or target.converts_halves else (DType.BFLOAT16,)
    passes: tuple[Pass, ...] = (
        ExpandOperators(),
        LowerLoops(),
        EliminateDeadCode(),
        FoldShapes(),
        WidenFloats(),
        *(() if dots is None else (FoldConstants(keeps=_DEQUANTIZED), MultiplyBytes(dots))),
        KeepQuantized(),
        FactorTransforms(),
        FoldConstants(),
        EliminateCommonSubexpressions(),
        SimplifyAlgebra(approximate=opt_level >= 3, dots=dots),
        FoldBatchNorm(branches=opt_level >= 3),
        SimplifyAlgebra(approximate=opt_level >= 3, dots=dots),
        FoldConstants(),
        *((SeparatePhases(),) if filters else ()),
        ChooseLayout(),
        SeparateTaps(lanes),
        *(() if cores == 1 else (DivideMeans(cores),)),
        FoldConstants(),
        EliminateCommonSubexpressions(),
        HalveWeights(halves),
        Fuse(merge=opt_level >= 3),
        TileBatch() if target is None else TileBatch(Costs.of(target)),
        SeparateOutputs(),
        PlaceParts(),
        SplitConcatenations(),
        PadRows(),
    )
    return Pipeline(tuple(p for p in passes if p.level <= opt_level))
