"""Silero's voice activity detectors, with pinned and with dynamic shapes, against ONNX Runtime over several calls.

``silero_vad.onnx`` has one branch per sampling rate: pinned to 576 samples, that for 8 kHz cannot run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import onnxruntime
import pytest

import ingot
from ingot import IngotError
from runtime_service.loading.loader import ExecutorKind
from shared_ir.errors import ErrorCode
from tests.e2e.published_models import SILERO_VAD, cached_or_skip

pytestmark = pytest.mark.slow

CALLS = 4
TOLERANCE = 1e-4
"""Largest error, relative to the largest element."""

LOGISTIC_ERROR = 1e-7
"""ONNX Runtime adds 0.5 in the logistic function of float32, so its own probabilities near 0 are this far off: half an ulp of 1."""

Arrays: TypeAlias = dict[str, np.ndarray]


@dataclass(frozen=True)
class Case:
    """One size of the inputs. ``carried`` says which output is which input of the next call."""

    model: str
    shapes: Mapping[str, tuple[int, ...]]
    carried: Mapping[str, str]
    rate: int | None = None
    pinned: tuple[str, ...] = field(default=("input",))

    def __str__(self) -> str:
        return "-".join(map(str, (self.model, *self.shapes["input"], *([self.rate] if self.rate else []))))

    @property
    def pins(self) -> dict[str, list[int]]:
        return {name: list(self.shapes[name]) for name in self.pinned}

    def start(self) -> Arrays:
        given: Arrays = {name: np.zeros(shape, np.float32) for name, shape in self.shapes.items()}
        return given | ({} if self.rate is None else {"sr": np.array(self.rate, np.int64)})


def detector(model: str, batch: int, samples: int, rate: int | None = None) -> Case:
    shapes = {"input": (batch, samples), "state": (2, batch, 128)}
    return Case(model, shapes, {"stateN": "state"}, rate, ("input", "state"))


def sequence(steps: int) -> Case:
    shapes = {"input": (steps, 576), "h": (1, 1, 128), "c": (1, 1, 128)}
    return Case("silero_vad_16k_sequence", shapes, {"hn": "h", "cn": "c"})


CASES = (
    *(detector("silero_vad", *size) for size in ((1, 576, 16000), (3, 512, 16000), (2, 288, 8000))),
    *(detector("silero_vad_16k_op15", *size, 16000) for size in ((1, 576), (3, 512), (2, 288))),
    *(detector("silero_vad_half", *size) for size in ((1, 576), (3, 512), (2, 288))),
    *(detector("silero_vad_op18_ifless", *size) for size in ((1, 576, 16000), (3, 1088, 16000), (2, 288, 8000))),
    *(sequence(steps) for steps in (1, 4, 7)),
    detector("silero_vad_openvino_16k", 1, 576),  # the model itself fixes its only size
)


@pytest.fixture(scope="module")
def dynamic() -> dict[str, ingot.Artifact]:
    """Artifacts for every size, by model, as they are compiled."""
    return {}


def compiled(case: Case, dynamic: dict[str, ingot.Artifact] | None) -> ingot.Artifact:
    path = cached_or_skip(SILERO_VAD, f"{case.model}.onnx")
    if dynamic is None:
        return ingot.compile(path, shapes=case.pins)
    if case.model not in dynamic:
        dynamic[case.model] = ingot.compile(path)
    return dynamic[case.model]


@pytest.mark.sampled
@pytest.mark.parametrize("pinned", [True, False], ids=["pinned", "dynamic"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_several_calls_agree_with_onnx_runtime(case: Case, pinned: bool, dynamic: dict[str, ingot.Artifact]) -> None:
    rng = np.random.default_rng(0)
    with ingot.load(compiled(case, None if pinned else dynamic)) as model:
        session = onnxruntime.InferenceSession(
            str(cached_or_skip(SILERO_VAD, f"{case.model}.onnx")), providers=["CPUExecutionProvider"]
        )
        names = [output.name for output in session.get_outputs()]
        ours, theirs = case.start(), case.start()
        for _ in range(CALLS):
            ours["input"] = theirs["input"] = rng.normal(0, 0.2, case.shapes["input"]).astype(np.float32)
            found, expected = model.run(ours), dict(zip(names, session.run(None, theirs), strict=True))
            for name, array in expected.items():
                assert found[name].shape == array.shape
                allowed = max(TOLERANCE * np.abs(array).max(), LOGISTIC_ERROR)
                assert np.abs(found[name] - array).max() <= allowed, name
            ours |= {name: found[output] for output, name in case.carried.items()}
            theirs |= {name: expected[output] for output, name in case.carried.items()}


@pytest.mark.parametrize("executor", ["aot", "graph"])
def test_the_rate_that_does_not_fit_the_pinned_shape_is_refused_by_the_run(executor: ExecutorKind) -> None:
    case = detector("silero_vad", 1, 576, 16000)
    path = cached_or_skip(SILERO_VAD, "silero_vad.onnx")
    with ingot.load(ingot.compile(path, shapes=case.pins), executor=executor) as model:
        assert model.run(case.start())["output"].shape == (1, 1)
        with pytest.raises(IngotError, match="node 'If_0': its else_branch cannot run") as caught:
            model.run(case.start() | {"sr": np.array(8000, np.int64)})
        assert caught.value.code is ErrorCode.INVALID_ARGUMENT
        assert "X and R must have 3 axes" in str(caught.value)
