"""Models as modules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from compiler_service.compiler.frontend.load import import_model
from compiler_service.compiler.options import CompileOptions
from compiler_service.compiler.pipeline import inference
from ingot.ir.module import Module
from ingot.sources import model_source


def from_onnx(
    model: Any,
    shapes: Mapping[str, Sequence[int | str | None]] | None = None,
    *,
    external_data: Mapping[str, bytes | Path] | None = None,
) -> Module:
    """The module of an ONNX model: its graph is the function ``main``, operators in their newest form, ONNX functions inlined.

    The model is read in this process: for models of one's own.

    Args:
        model: a path, the bytes of a model, or anything with ``SerializeToString`` (``onnx.ModelProto``).
        shapes: input name -> shape: a number pins a dim, a name makes it that symbol, ``None`` leaves what the model says.
        external_data: content of external tensor data by the location that the model names.

    Raises:
        IngotError: whatever keeps the model from being imported, with the node and the remedy.
    """
    options = CompileOptions.from_dict({"shapes": {} if shapes is None else shapes})
    return Module._of(import_model(model_source(model, external_data), options.import_options, inference()))
