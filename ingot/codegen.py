"""Code generators of one's own: a class that makes code of loop functions, registered for a kind of targets.

``register_backend("c99", MyBackend())`` has ``ingot.compile(model, target="c99 -mtriple=x86_64-linux-gnu")`` ask ``MyBackend``, in this
process. :class:`Backend` says all that it is asked for; :class:`LlvmBackend` is ours, and can be derived from. The rest are the nodes
that a loop function consists of, and what their text looks like (``ingot.ir.LoopFunction``).
"""

from shared_ir.dtype import DType
from shared_ir.expr import Binary, BinaryOp, Cast, Const, Expr, Reinterpret, Scalar, Select, Unary, UnaryOp, Var, lift
from shared_ir.extras import needing
from shared_ir.machine.target import Target

with needing("compiler", "ingot.codegen"):
    from compiler_service.compiler.backends.face import Backend, ObjectMaker, SourceCode
    from compiler_service.compiler.backends.llvm import LLVM_IR, LlvmBackend
    from compiler_service.compiler.backends.table import register_backend
    from compiler_service.compiler.codegen.toolchain.zig import compile_c
    from compiler_service.compiler.external.face import ExternalCodegen, part_header
    from compiler_service.compiler.external.onednn import OneDnn
    from compiler_service.compiler.external.table import register_external
    from compiler_service.compiler.graph_passes.parts.patterns import Match, NodePattern
    from compiler_service.compiler.loop_ir.ir import (
        Allocate,
        Block,
        Broadcast,
        Buffer,
        BufferLoad,
        BufferScope,
        Checkpoint,
        For,
        ForKind,
        Function,
        If,
        Let,
        Prefetch,
        Ramp,
        Shuffle,
        Statement,
        Store,
        VectorReduce,
        VectorVar,
    )
    from compiler_service.compiler.loop_ir.passes import LOOP_PASSES
    from compiler_service.compiler.loop_ir.pipeline import LoopFact, LoopPass
    from compiler_service.compiler.tensor_expr.strides import row_major
    from compiler_service.compiler.tensor_expr.tensor import ReduceOp

__all__ = (
    "LLVM_IR",
    "LOOP_PASSES",
    "Allocate",
    "Backend",
    "Binary",
    "BinaryOp",
    "Block",
    "Broadcast",
    "Buffer",
    "BufferLoad",
    "BufferScope",
    "Cast",
    "Checkpoint",
    "Const",
    "DType",
    "Expr",
    "ExternalCodegen",
    "For",
    "ForKind",
    "Function",
    "If",
    "Let",
    "LlvmBackend",
    "LoopFact",
    "LoopPass",
    "Match",
    "NodePattern",
    "ObjectMaker",
    "OneDnn",
    "Prefetch",
    "Ramp",
    "ReduceOp",
    "Reinterpret",
    "Scalar",
    "Select",
    "Shuffle",
    "SourceCode",
    "Statement",
    "Store",
    "Target",
    "Unary",
    "UnaryOp",
    "Var",
    "VectorReduce",
    "VectorVar",
    "compile_c",
    "lift",
    "part_header",
    "register_backend",
    "register_external",
    "row_major",
)
