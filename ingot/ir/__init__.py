"""Programs as values: what the compiler works on, to look at, to write and to run without compiling it."""

from shared_ir.extras import needing

with needing("compiler", "ingot.ir"):
    from ingot.ir.loops import LoopFunction
    from ingot.ir.programs import LoopCall, LoopProgram

__all__ = ("LoopCall", "LoopFunction", "LoopProgram")
