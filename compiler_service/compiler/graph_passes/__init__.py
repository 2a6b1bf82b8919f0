"""Graph passes: graph IR to graph IR."""

from compiler_service.compiler.graph_passes.memory.plan_memory import MemoryPlan, Placement, plan_memory
from compiler_service.compiler.graph_passes.pipelines import default_pipeline
from compiler_service.compiler.graph_passes.rewriting.pass_manager import Instrument, Pass, PassContext, Pipeline

__all__ = [
    "Instrument",
    "MemoryPlan",
    "Pass",
    "PassContext",
    "Pipeline",
    "Placement",
    "default_pipeline",
    "plan_memory",
]
