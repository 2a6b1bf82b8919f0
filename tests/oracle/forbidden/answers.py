"""Who answers a run: compiled code, ONNX Runtime, onnx.reference. The oracles answer in processes of their own, which may die."""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import resource
import signal
import warnings
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx
import onnxruntime
from onnx.reference import ReferenceEvaluator

from compiler_service.compiler.codegen.toolchain.host import host_target
from compiler_service.compiler.frontend.reading.source import ModelSource
from compiler_service.compiler.pipeline import CompileOptions, compile_model
from runtime_service.loading.loader import load_model
from shared_ir.artifact.value import CompiledArtifact
from shared_ir.errors import IngotError
from tests.oracle.judge import FAULTS

Array = np.ndarray
Feeds = Mapping[str, Array]
_Answer = Callable[[Feeds], object]

SECONDS, BYTES = 5, 12 << 30
"""What one answer of an oracle may take."""


def compiled_answers(models: Sequence[onnx.ModelProto], runs: Sequence[Feeds]) -> list[str]:
    """Of each run the shapes of what the first of ``models`` that can be compiled gives; empty where it refuses."""
    artifact = _compiled(models)
    with load_model(artifact, threads=1) as loaded:
        return [_compiled_answer(loaded.run, feeds) for feeds in runs]


def _compiled(models: Sequence[onnx.ModelProto]) -> CompiledArtifact:
    model, *others = models
    try:
        return compile_model(
            ModelSource.of(model.SerializeToString()), host_target(), CompileOptions(opt_level=0), workers=0
        )
    except IngotError as error:
        if error.code in FAULTS or not others:
            raise
        return _compiled(others)


def _compiled_answer(run: Callable[[Feeds], Mapping[str, object]], feeds: Feeds) -> str:
    try:
        return str([a.shape if isinstance(a, Array) else "no tensor" for a in run(feeds).values()])
    except IngotError as error:
        if error.code in FAULTS:
            raise
        return ""


def runtime_answers(model: onnx.ModelProto, runs: Sequence[Feeds]) -> list[bool]:
    """Of each run whether ONNX Runtime answers it; of none where it does not know the operator."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    except Exception:  # an operator or a type that it lacks
        return [False] * len(runs)
    return _answered(lambda feeds: session.run(None, dict(feeds)), runs)


def reference_answers(model: onnx.ModelProto, runs: Sequence[Feeds]) -> list[bool]:
    evaluator = ReferenceEvaluator(model)

    def answer(feeds: Feeds) -> object:
        with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):
            return evaluator.run(None, dict(feeds))

    return _answered(answer, runs)


def _answered(answer: _Answer, runs: Sequence[Feeds]) -> list[bool]:
    """A run that takes its process with it is not answered; the next process goes on behind it."""
    found: list[bool] = []
    context = multiprocessing.get_context("fork")
    while len(found) < len(runs):
        receiver, sender = context.Pipe(duplex=False)
        child = context.Process(target=_answer_all, args=(answer, runs[len(found) :], sender))
        with warnings.catch_warnings(action="ignore"):
            child.start()
        sender.close()
        try:
            while len(found) < len(runs):
                found.append(receiver.recv())
        except EOFError:
            found.append(False)
        child.join()
    return found


def _answer_all(answer: _Answer, runs: Sequence[Feeds], sender: multiprocessing.connection.Connection) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))
    for feeds in runs:
        signal.alarm(SECONDS)
        try:
            answer(feeds)
        except Exception:  # what an oracle says of a run is its own affair
            sender.send(False)
        else:
            sender.send(True)
