"""What ``DEBUG`` shows of a kernel."""

from __future__ import annotations

from compiler_service.compiler.backends.face import SourceCode
from compiler_service.compiler.backends.llvm import LLVM_IR
from compiler_service.compiler.backends.table import backend_of
from compiler_service.compiler.loop_ir.text import print_function
from compiler_service.compiler.program.kernels import BuiltKernel
from compiler_service.compiler.progress import Log
from compiler_service.compiler.schedule.records import to_text
from shared_ir.machine.target import Target


def show_loops(log: Log, item: BuiltKernel, target: Target) -> None:
    """DEBUG 3 and 4: schedule, loop IR; before code is made of it, so that what no code can be made of is shown."""
    name = item.kernel.name
    if log.wants(3):
        rule, text = item.rule, f"{item.kernel.definition.text}\n{to_text(item.schedule)}"
        log.show(3, f"{name}.schedule", f"# {name} (rule: {rule})\n{text}")
    if log.wants(4):
        log.show(4, f"{name}.loops", print_function(item.kernel.lower(item.schedule, target)))
        log.show(4, f"{name}.flat", print_function(item.function))


def show_code(log: Log, name: str, source: SourceCode, target: Target) -> None:
    """DEBUG 5 and 6: LLVM IR, assembly."""
    if log.wants(5):
        log.show(5, f"{name}.llvm" if source.language == LLVM_IR else f"{name}.{source.language}", source.text)
    if log.wants(6):
        log.show(6, f"{name}.assembly", backend_of(target).assembly(source, target))
