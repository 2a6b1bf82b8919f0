"""The child process of :class:`~compiler_service.compiler.codegen.toolchain.objects.ObjectCompiler`: modules in, objects out.

LLVM may abort the process that it runs in, and llvmlite lets one thread in at a time; hence processes.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from compiler_service.compiler.codegen.toolchain.frames import read_frame, write_frame
from compiler_service.compiler.codegen.toolchain.machine import compile_ir, target_machine
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.machine.target import target_from_dict


def main() -> None:
    """Serves requests from standard input until it ends. The first names the target to warm up for."""
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever LLVM prints must not get between the frames
    requests = sys.stdin.buffer
    while (frame := read_frame(requests.read)) is not None:
        header, body = frame
        write_frame(replies, *_answer(header, body))


def _answer(header: dict[str, Any], body: bytes) -> tuple[dict[str, Any], bytes]:
    try:
        target = target_from_dict(header["target"])
        if not body:
            target_machine(target)
            return {"status": "ready"}, b""
        return {"status": "object"}, compile_ir(body.decode(), target)
    except IngotError as error:
        return {"status": "error", "error": error.to_dict()}, b""
    except Exception as error:
        fault = IngotError(ErrorCode.COMPILER_FAULT, f"{type(error).__name__}: {error}")
        return {"status": "error", "error": fault.to_dict()}, b""


if __name__ == "__main__":
    main()
