"""The objects that code generators of others give for their parts: asked for, and looked at before they are linked."""

from __future__ import annotations

import struct

from compiler_service.compiler.codegen.toolchain.elf import defined_objects
from compiler_service.compiler.external.onednn import OneDnn
from compiler_service.compiler.external.table import external_of
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.graph.ir import Graph
from shared_ir.machine.target import Target


def part_object(name: str, graph: Graph, target: Target, symbol: str) -> bytes:
    """What the code generator ``name`` makes of ``graph``.

    Raises:
        IngotError: NOT_FOUND, there is none of this name; INVALID_ARGUMENT, it failed, or what it gave is no object that
            exports ``symbol``; what it says itself.
    """
    own = external_of(name)
    try:
        given = own.part(graph, target, symbol)
    except IngotError as error:
        if error.code is ErrorCode.COMPILER_FAULT and not isinstance(own, OneDnn):
            raise _fault(name, graph, "failed", error.expected, error.message) from error
        raise error.located(node=graph.name) from error
    except Exception as error:
        raise _fault(name, graph, "failed", "", f"{type(error).__name__}: {error}"[:2000]) from error
    if not isinstance(given, bytes | bytearray | memoryview):
        raise _fault(name, graph, "gave no object", "bytes of an ELF object", type(given).__name__)
    data = bytes(given)
    try:
        exports = defined_objects(data)
    except (ValueError, IndexError, struct.error) as error:
        raise _fault(name, graph, "gave no object", "bytes of an ELF object", repr(data[:16])) from error
    if symbol not in exports:
        received = ", ".join(exports)[:200] or "no variable that others see"
        raise _fault(name, graph, "gave an object without its part", f"const ingot_part {symbol}", received)
    return data


def _fault(name: str, graph: Graph, what: str, expected: str, received: str) -> IngotError:
    message = f"the code generator {name!r} {what}"
    return IngotError(ErrorCode.INVALID_ARGUMENT, message, node=graph.name, expected=expected, received=received)
