"""Models that a benchmark makes, as files of the folder that its command names."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path

import onnx


def save_models(models: Iterable[tuple[str, onnx.ModelProto]], description: str | None) -> None:
    """Each model as ``<name>.onnx`` in the folder that the only argument of the process names."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the models are written; it is made where there is none")
    folder: Path = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    for name, model in models:
        onnx.save(model, folder / f"{name}.onnx")
