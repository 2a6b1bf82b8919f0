"""Requests to a model whose memory lies between guard pages, each in a child that may die of it.

Every request runs twice, over memory full of one byte and of another: answers that differ hold what the run has not computed.
"""

from __future__ import annotations

import faulthandler
import hashlib
import json
import os
import resource
import signal
import sys
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import IO

import numpy as np
import onnx

from compiler_service.compiler.codegen.toolchain.host import host_target
from compiler_service.compiler.codegen.toolchain.link import guarded_memory
from compiler_service.compiler.pipeline import CompileOptions, ModelSource, compile_model
from runtime_service.executors import signature
from runtime_service.loading.loader import load_model
from runtime_service.loading.model import Model
from shared_ir.artifact.value import CompiledArtifact
from shared_ir.errors import ErrorCode, IngotError
from tests.guard.arrays import empty, guarded
from tests.guard.requests import Request
from tests.oracle.case import Array

POISONS = (0x5B, 0xC6)
_SECONDS = 20
"""What a run may take, of the processor."""
_MEMORY_BYTES = 3 << 30
_FAULTS = (ErrorCode.COMPILER_FAULT, ErrorCode.INTERNAL, ErrorCode.ARTIFACT_CORRUPT)


def compiled(model: onnx.ModelProto, level: int = 3, name: str = "") -> CompiledArtifact:
    """An artifact whose runtime puts guard pages around its memory.

    Raises:
        IngotError: of the model.
    """
    with guarded_memory(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        source = ModelSource.of(model.SerializeToString())
        return compile_model(source, host_target(), CompileOptions(opt_level=level, name=name), workers=0)


def findings(artifact: CompiledArtifact, requests: Sequence[Request]) -> list[str]:
    """What is wrong with the answers: one line each."""
    found: list[str] = []
    first = 0
    while first < len(requests):
        begun, lines, status = in_a_child(partial(_serve, artifact, requests, first), first)
        found += lines
        if status == 0:
            break
        what = signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else f"exit status {status}"
        found.append(f"{requests[min(begun, len(requests) - 1)].change}: {what}")
        first = begun + 1
    return found


def in_a_child(serve: Callable[[IO[str]], None], first: int) -> tuple[int, list[str], int]:
    """What ``serve`` writes into a pipe: the last number that was begun, what was found, and how the child ended."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        try:
            with os.fdopen(writing, "w") as pipe:
                serve(pipe)
            os._exit(0)
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
            os._exit(1)
    os.close(writing)
    begun, found = first, []
    with os.fdopen(reading) as pipe:
        for line in pipe:
            message = json.loads(line)
            begun = message["begun"]
            if message["found"]:
                found.append(message["found"])
    return begun, found, os.waitpid(child, 0)[1]


def _serve(artifact: CompiledArtifact, requests: Sequence[Request], first: int, pipe: IO[str]) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signature._empty = empty
    faulthandler.disable()  # what a child dies of is told by its status
    with load_model(artifact, threads=1) as model, np.errstate(all="ignore"):
        for number in range(first, len(requests)):
            print(json.dumps({"begun": number, "found": ""}), file=pipe, flush=True)
            signal.setitimer(signal.ITIMER_PROF, _SECONDS)
            found = _asked(model, requests[number])
            signal.setitimer(signal.ITIMER_PROF, 0)
            if found:
                line = f"{requests[number].change}: {found}"
                print(json.dumps({"begun": number, "found": line}), file=pipe, flush=True)


def _asked(model: Model, request: Request) -> str:
    """What is wrong with the answers to ``request``, if anything."""
    answers = [_answer(model, request, poison) for poison in POISONS]
    fault = next((a for a in answers if isinstance(a, str) and a.startswith("fault")), "")
    if fault or answers[0] == answers[1]:
        return fault
    return "" if _answer(model, request, POISONS[0]) != answers[0] else "the answer holds what the run has not written"


def _answer(model: Model, request: Request, poison: int) -> str | list[tuple[str, bytes]]:
    """The outputs as text and bytes, or what was said instead; ``fault`` begins what must not be said."""
    os.environ["INGOT_POISON"] = str(poison)
    try:
        outputs = model.run({name: guarded(np.asarray(a)) for name, a in request.feeds.items()})
    except IngotError as error:
        return f"{'fault: ' if error.code in _FAULTS else ''}{error.code}: {error}"
    except Exception as error:
        return f"fault: {type(error).__name__}: {error}"
    return [(f"{name} {np.shape(a)}", _digest(a)) for name, a in outputs.items()]


def _digest(value: Array) -> bytes:
    array = np.ascontiguousarray(value)
    return (
        repr(array.tolist()).encode()
        if array.dtype.hasobject
        else hashlib.blake2b(array.reshape(-1).view(np.uint8).data).digest()
    )
