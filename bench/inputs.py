"""Models to measure and the inputs that they are given.

Symbolic dims are filled in by these rules, first match first; ``--shape`` overrides them:

1. axis 0 is 1;
2. rank 4 with 1, 3 or 4 channels in axis 1 is an image: 640 x 640, or 320 wide when its height is fixed. Text line
   recognisers (``rec`` in the file's name) take 48 x 320 and text line classifiers (``cls``) 48 x 192;
3. integers of rank 2 are tokens: 128 of them;
4. floats of rank 2 are audio: 576 samples (a frame of 512 at 16 kHz, and 64 of context);
5. a dim whose index another input of the model fixes to one number for the same symbol takes that number; any other is 1.

Values are seeded: standard normal floats; integers of 0 to 99, but ones for names with ``mask``, zeros for names with
``type`` or ``segment``, 16000 for ``sr`` (sample rate). ``--value`` overrides them.
"""

from __future__ import annotations

import argparse
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from numpy.typing import NDArray

Array = NDArray[np.generic]
Shape = tuple[int, ...]

_IMAGE_CHANNELS = (1, 3, 4)
_IMAGE_SIZE, _FIXED_HEIGHT_WIDTH = 640, 320
_TEXT_LINES = {"rec": (48, 320), "cls": (48, 192)}
_TOKENS, _SAMPLES = 128, 576
_LARGEST_INTEGER = 100


@dataclass(frozen=True)
class InputSpec:
    """An input as the model declares it; ``None`` stands for a dim that is not a number."""

    name: str
    dtype: np.dtype[np.generic]
    shape: tuple[int | None, ...]

    def takes(self, shape: Shape) -> bool:
        """Whether an array of ``shape`` fits the declared dims."""
        fits = (d is None or d == n for d, n in zip(self.shape, shape, strict=False))
        return len(shape) == len(self.shape) and all(fits)


def find_models(paths: Sequence[Path]) -> list[Path]:
    """The ONNX files among ``paths`` and in the folders among them, each once, sorted within a folder.

    Raises:
        FileNotFoundError: a path does not exist, or a folder holds no ``*.onnx``.
    """
    found: dict[Path, None] = {}
    for path in paths:
        files = sorted(path.glob("*.onnx")) if path.is_dir() else [path]
        if not files or not files[0].is_file():
            raise FileNotFoundError(f"no ONNX model at {path}")
        found.update(dict.fromkeys(f.resolve() for f in files))
    return list(found)


class ModelFiles(argparse.Action):
    """The files of the models that the paths of an option name; a path without one is a usage error."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option: str | None = None
    ) -> None:
        try:
            setattr(namespace, self.dest, find_models(values))
        except FileNotFoundError as error:
            raise argparse.ArgumentError(self, str(error)) from error


def add_models(parser: argparse._ActionsContainer, **settings: Any) -> None:
    """The option ``--models``, whose value is a list of files."""
    parser.add_argument(
        "--models", type=Path, nargs="+", action=ModelFiles, help="ONNX files, and folders of them", **settings
    )


def read_inputs(path: Path) -> tuple[InputSpec, ...]:
    """The inputs that a caller must give: those without an initializer."""
    graph = onnx.load(path, load_external_data=False).graph
    constants = {i.name for i in graph.initializer}
    return tuple(_spec(v) for v in graph.input if v.name not in constants)


def _spec(value: onnx.ValueInfoProto) -> InputSpec:
    tensor = value.type.tensor_type
    dims = tuple(d.dim_value if d.HasField("dim_value") and d.dim_value > 0 else None for d in tensor.shape.dim)
    return InputSpec(value.name, onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type), dims)


# -- shapes


def choose_shapes(model: str, specs: Sequence[InputSpec], given: Mapping[str, Shape]) -> dict[str, Shape]:
    """A shape for every input. ``given`` is keyed by ``input`` or ``model:input``; shapes that do not fit are passed over."""
    chosen = {}
    for spec in specs:
        for key in (f"{model}:{spec.name}", spec.name):
            if key in given and spec.takes(given[key]):
                chosen[spec.name] = given[key]
                break
        else:
            chosen[spec.name] = default_shape(model, spec)
    return chosen


def default_shape(model: str, spec: InputSpec) -> Shape:
    """Rules 1 to 5 of the module."""
    guess = [1] * len(spec.shape)
    match spec.shape:
        case (_, channels, height, _) if channels in _IMAGE_CHANNELS:
            wide = _FIXED_HEIGHT_WIDTH if height is not None else _IMAGE_SIZE
            guess[2:] = next((s for w, s in _TEXT_LINES.items() if w in _words(model)), (_IMAGE_SIZE, wide))
        case (_, _) if np.issubdtype(spec.dtype, np.integer):
            guess[1] = _TOKENS
        case (_, _):
            guess[1] = _SAMPLES
    return tuple(g if d is None else d for d, g in zip(spec.shape, guess, strict=True))


def _words(name: str) -> list[str]:
    return re.split(r"[^a-z0-9]+", name.lower())


def parse_shape(text: str) -> tuple[str, Shape]:
    """``name=1,3,640,640`` or ``model:name=1,3,640,640``; nothing after ``=`` is a scalar.

    Raises:
        ValueError: not of this form.
    """
    name, equals, dims = text.rpartition("=")
    if not equals or not name:
        raise ValueError(f"{text!r} is not of the form name=1,3,640,640")
    shape = tuple(int(d) for d in dims.split(",") if d.strip())
    if any(d < 1 for d in shape):
        raise ValueError(f"{text!r} has a dim below 1")
    return name, shape


# -- values


def make_inputs(
    specs: Sequence[InputSpec], shapes: Mapping[str, Shape], values: Mapping[str, float] | None = None
) -> dict[str, Array]:
    """Arrays by input name, the same in every process: the seed of each is its name."""
    return {s.name: _values(s, shapes[s.name], (values or {}).get(s.name)) for s in specs}


def _values(spec: InputSpec, shape: Shape, given: float | None) -> Array:
    rng = np.random.default_rng(zlib.crc32(spec.name.encode()))
    name = spec.name.lower()
    if given is not None or name == "sr":
        return np.full(shape, 16000 if given is None else given, spec.dtype)
    if spec.dtype == np.bool_:
        return rng.integers(0, 2, shape).astype(spec.dtype)
    if np.issubdtype(spec.dtype, np.floating) or spec.dtype == ml_dtypes.bfloat16:
        return rng.standard_normal(shape).astype(spec.dtype)
    if "mask" in name:
        return np.ones(shape, spec.dtype)
    if "type" in name or "segment" in name:
        return np.zeros(shape, spec.dtype)
    return rng.integers(0, _LARGEST_INTEGER, shape).astype(spec.dtype)
