"""torch modules through both exporters, with sizes that the run chooses."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import torch

EXPORTERS = ("dynamo", "trace")
Tensors = tuple[Any, ...]


@dataclass(frozen=True)
class Exported:
    """A module to export.

    ``inputs``: its tensors for a size, for each of two ``sizes``. ``dynamic``: per input the axes that differ between them, with a
    name each. ``exporter``: the only one that can, where one cannot.
    """

    name: str
    make: Callable[[], torch.nn.Module]
    inputs: Callable[[int], Tensors]
    dynamic: Sequence[Mapping[int, str]]
    sizes: tuple[int, int] = (2, 3)
    opset: int = 18
    exporter: str = ""

    @property
    def names(self) -> list[str]:
        return [f"input_{i}" for i in range(len(self.dynamic))]

    def runs(self) -> list[dict[str, np.ndarray]]:
        """Feeds of both sizes."""
        torch.manual_seed(1)
        return [dict(zip(self.names, (t.numpy() for t in self.inputs(s)), strict=True)) for s in self.sizes]


def export(subject: Exported, exporter: str) -> onnx.ModelProto:
    """The model that an exporter writes."""
    torch.manual_seed(0)
    module = subject.make().eval()
    example = subject.inputs(subject.sizes[0])
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        if exporter == "dynamo":
            dims = {name: torch.export.Dim.DYNAMIC for axes in subject.dynamic for name in axes.values()}
            shapes = tuple({axis: dims[name] for axis, name in axes.items()} for axes in subject.dynamic)
            program = torch.onnx.export(
                module, example, dynamo=True, input_names=subject.names, dynamic_shapes=_nested(module, shapes), verbose=False,
                opset_version=subject.opset,
            )  # fmt: skip
            return program.model_proto
        file = io.BytesIO()
        torch.onnx.export(
            module, example, file, dynamo=False, input_names=subject.names, opset_version=subject.opset,
            dynamic_axes={n: dict(axes) for n, axes in zip(subject.names, subject.dynamic, strict=True)},
        )  # fmt: skip
        return onnx.load_from_string(file.getvalue())


def _nested(module: torch.nn.Module, shapes: Tensors) -> Any:
    """Dynamic shapes as torch.export wants them: a forward of ``*args`` takes all of them as one argument."""
    import inspect

    kinds = [p.kind for p in inspect.signature(module.forward).parameters.values()]
    return (shapes,) if kinds and kinds[0] is inspect.Parameter.VAR_POSITIONAL else shapes
