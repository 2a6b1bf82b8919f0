"""Graph passes: graph IR to graph IR."""

from compiler_service.graph_passes.pass_manager import Instrument, Pass, PassContext, Pipeline
from compiler_service.graph_passes.pipelines import default_pipeline
from compiler_service.graph_passes.plan_memory import MemoryPlan, Placement, plan_memory

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
