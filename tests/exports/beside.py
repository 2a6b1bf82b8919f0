"""An exported model, compiled once and run at several sizes, beside ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
import onnxruntime

from compiler_service.compiler.codegen.toolchain.host import host_target
from compiler_service.compiler.frontend.reading.source import ModelSource
from compiler_service.compiler.pipeline import CompileOptions, compile_model
from runtime_service.loading.loader import load_model
from tests.oracle.vote import close, difference

Array = np.ndarray


def check(model: onnx.ModelProto, runs: Sequence[Mapping[str, Array]], levels: Sequence[int] = (0, 3)) -> None:
    """Outputs that are tensors agree with ONNX Runtime's in every run, at every level."""
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [spec.name for spec in session.get_outputs()]
    wanted = [dict(zip(names, session.run(None, dict(feeds)), strict=True)) for feeds in runs]
    for level in levels:
        source = ModelSource.of(model.SerializeToString())
        artifact = compile_model(source, host_target(), CompileOptions(opt_level=level), workers=0)
        with load_model(artifact, threads=1) as loaded:
            for run, (feeds, answers) in enumerate(zip(runs, wanted, strict=True)):
                _compare(loaded.run(feeds), answers, f"level {level}, run {run}")


def _compare(found: Mapping[str, Array], wanted: Mapping[str, Array], where: str) -> None:
    tensors = {n: w for n, w in wanted.items() if isinstance(w, np.ndarray) and w.dtype.kind in "fiub"}
    assert tensors, "no output is a tensor of numbers"
    for name, answer in tensors.items():
        own = np.asarray(found[name])
        assert close(own, answer, loosest=5e-4), f"{where}, {name}: {difference([own], [answer], loosest=5e-4)}"
