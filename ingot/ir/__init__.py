"""Programs as values: what the compiler works on, to look at, to write, to transform and to run without compiling it.

::

    from ingot import ir

    module = ir.from_onnx("model.onnx")
    print(module)
    print(ir.Sequential([ir.passes.FoldConstants(), ir.passes.Fuse()])(module))
    artifact = ingot.compile(module)
"""

from shared_ir.extras import needing

with needing("compiler", "ingot.ir"):
    from compiler_service.compiler.graph_passes.rewriting.rewrite import RewriteRule, Site, rewrite, rule
    from ingot.ir import passes
    from ingot.ir.builder import GraphBuilder, symbol
    from ingot.ir.functions import Function, GraphFunction
    from ingot.ir.instruments import Printing, Timing
    from ingot.ir.loops import LoopFunction
    from ingot.ir.module import ModelInterface, Module, load
    from ingot.ir.onnx import from_onnx
    from ingot.ir.passing import Pass, function_pass, module_pass
    from ingot.ir.programs import LoopCall, LoopProgram
    from ingot.ir.sequence import Sequential, default_pipeline
    from ingot.pass_context import Instrument, PassContext
    from shared_ir.dtype import DType
    from shared_ir.graph.ir import Graph, Node, Value
    from shared_ir.types import ObjectType, TensorType, ValueKind

__all__ = (
    "DType", "Function", "Graph", "GraphBuilder", "GraphFunction", "Instrument", "LoopCall", "LoopFunction", "LoopProgram",
    "ModelInterface", "Module", "Node", "ObjectType", "Pass", "PassContext", "Printing", "RewriteRule", "Sequential", "Site",
    "TensorType", "Timing", "Value", "ValueKind", "default_pipeline", "from_onnx", "function_pass", "load", "module_pass", "passes",
    "rewrite", "rule", "symbol",
)  # fmt: skip
