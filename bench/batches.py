"""Models of images in batches: inverted residuals, whose first layers leave more behind than a cache holds.

``python -m bench.batches FOLDER`` writes them; ``python -m bench.peers --models FOLDER`` times them. ``batch_8.onnx`` takes eight
images at a time, ``batch_n.onnx`` as many as there are (``--dynamic --shape x=8,3,224,224``).
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper

from bench.chains import Chain
from bench.saving import save_models

BATCHES: tuple[int | str, ...] = (1, 8, 32, "n")
SIZE = 224
_FIRST = 32
_STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1))
"""(growth, channels, blocks, stride), as of MobileNetV2 (Sandler et al., CVPR 2018, table 2)."""
_DOMAINS = (helper.make_opsetid("", 21),)


def batch_model(samples: int | str, size: int = SIZE) -> onnx.ModelProto:
    """``[samples, 3, size, size]`` in float32 to the mean of each of the last channels."""
    chain = Chain(np.random.default_rng(0))
    x, channels = _convolution(chain, "x", 3, _FIRST, kernel=3, stride=2), _FIRST
    for growth, width, blocks, stride in _STAGES:
        for block in range(blocks):
            x = _inverted(chain, x, channels, growth, width, stride if block == 0 else 1)
            channels = width
    y = chain.add("GlobalAveragePool", x)
    image, mean = ([samples, 3, size, size], [samples, channels, 1, 1])
    values = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, s) for n, s in (("x", image), (y, mean))]
    graph = helper.make_graph(chain.nodes, f"batch_{samples}", values[:1], values[1:], chain.initializers)
    return helper.make_model(graph, opset_imports=_DOMAINS, ir_version=10)


def _inverted(chain: Chain, x: str, channels: int, growth: int, width: int, stride: int) -> str:
    inner = channels * growth
    y = _convolution(chain, x, channels, inner) if growth > 1 else x
    y = _convolution(chain, y, inner, inner, kernel=3, stride=stride, group=inner)
    y = _convolution(chain, y, inner, width, clipped=False)
    return chain.add("Add", x, y) if stride == 1 and channels == width else y


def _convolution(
    chain: Chain,
    x: str,
    channels: int,
    outputs: int,
    *,
    kernel: int = 1,
    stride: int = 1,
    group: int = 1,
    clipped: bool = True,
) -> str:
    weight = chain.random.standard_normal((outputs, channels // group, kernel, kernel), np.float32)
    weight /= np.float32(np.sqrt(weight[0].size))
    y = chain.add("Conv", x, chain.hold(weight), strides=[stride] * 2, pads=[kernel // 2] * 4, group=group)
    return chain.add("Clip", y, *(chain.hold(np.array(n, np.float32)) for n in (0, 6))) if clipped else y


if __name__ == "__main__":
    save_models(((f"batch_{samples}", batch_model(samples)) for samples in BATCHES), __doc__)
