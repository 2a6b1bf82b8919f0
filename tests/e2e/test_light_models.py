"""The nine real graphs that the ``onnx`` package ships, with the outputs that it ships for them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.backend.test
import pytest
from onnx import numpy_helper
from onnx.backend.test.runner import Runner

import ingot

pytestmark = pytest.mark.slow
FOLDER = Path(onnx.backend.test.__file__).parent / "data" / "light"
NAMES = (
    "bvlc_alexnet",
    "densenet121",
    "inception_v1",
    "inception_v2",
    "resnet50",
    "shufflenet",
    "squeezenet",
    "vgg19",
    "zfnet512",
)


def test_these_are_all() -> None:
    assert sorted(path.stem for path in FOLDER.glob("*.onnx")) == [f"light_{name}" for name in NAMES]


@pytest.mark.sampled
@pytest.mark.parametrize("name", NAMES)
def test_outputs_are_those_that_onnx_ships(name: str) -> None:
    path = FOLDER / f"light_{name}.onnx"
    proto = onnx.load(path)
    weights = {tensor.name for tensor in proto.graph.initializer}
    inputs = [info for info in proto.graph.input if info.name not in weights]
    feeds = {info.name: Runner.generate_dummy_data(info, name=name) for info in inputs}
    tensor = onnx.TensorProto.FromString((FOLDER / f"light_{name}_output_0.pb").read_bytes())
    with ingot.load(ingot.compile(path)) as model:
        outputs = list(model.run(feeds).values())
    np.testing.assert_allclose(outputs[0], numpy_helper.to_array(tensor), rtol=1e-3, atol=1e-7)
    assert len(outputs) == 1
