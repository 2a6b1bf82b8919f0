"""Random models from a seed: ``python -m tests.random_models.generate SEED FILE`` writes one."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from tests.random_models.model_maker import Array, Maker
from tests.random_models.moving_steps import MOVING_STEPS
from tests.random_models.steps import STEPS

FROZEN = range(300)
"""Seeds of the frozen set."""
_SHAPES = ((2, 3), (2, 3, 4), (1, 2, 5, 6), (3,), (4, 1), (2, 4, 7))


def frozen_model(seed: int) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """The model of a seed and its feeds; numpy's PCG64 gives the same everywhere."""
    random = np.random.default_rng(seed)

    def choose(options: Sequence[Any]) -> Any:
        return options[int(random.integers(len(options)))]

    return drawn_model(choose, random)


def drawn_model(
    choose: Callable[[Sequence[Any]], Any], random: np.random.Generator
) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """5 to 20 operators on one to three inputs, some of whose axes only the run knows."""
    make = Maker(choose, random)
    for _ in range(choose([1, 2, 3])):
        shape = choose(_SHAPES)
        numbers = random.permutation(np.arange(-40, 40))[: int(np.prod(shape))].reshape(shape)
        is_float = choose([True, True, True, False])
        array = (numbers / 8).astype(np.float32) if is_float else numbers.astype(choose([np.int64, np.int32]))
        dims = [f"d{extent}" if choose([True, False]) else extent for extent in shape]
        make.input(array, dims)
    wanted = choose(range(5, 21))
    for _ in range(4 * wanted):
        if len(make.nodes) >= wanted:
            break
        choose((*STEPS, *MOVING_STEPS))(make)
    return make.model(), make.feeds


if __name__ == "__main__":
    model, _ = frozen_model(int(sys.argv[1]))
    Path(sys.argv[2]).write_bytes(model.SerializeToString())
