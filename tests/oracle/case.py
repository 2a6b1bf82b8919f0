"""One question to three parties: a model, the feeds of some runs, and how it is compiled and called."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import onnx
import onnx.printer

from runtime_service.loading.loader import ExecutorKind

Array = np.ndarray
Feeds = Mapping[str, Array]

LAYOUTS = ("plain", "reversed", "strided", "columns")
"""How an input lies in memory: in order, backwards along every axis, every other element of a larger array, or by columns."""


@dataclass(frozen=True)
class Case:
    """``layouts``: of inputs that do not lie plainly. ``pointwise``: every element has a relative error of its own. ``checked``: a
    run that both oracles refuse must be refused."""

    family: str
    model: onnx.ModelProto
    runs: tuple[Feeds, ...]
    levels: tuple[int, ...] = (0, 3)
    calls: tuple[tuple[ExecutorKind, int], ...] = (("aot", 1), ("graph", 2))
    layouts: Mapping[str, str] | None = None
    aliases: tuple[tuple[str, str], ...] = ()
    pointwise: bool = False
    checked: bool = False

    def laid_out(self, run: int) -> dict[str, Array]:
        """The feeds of a run as they are handed to compiled code; aliases are one array under two names."""
        feeds = {n: lay_out(a, (self.layouts or {}).get(n, "plain")) for n, a in self.runs[run].items()}
        return {**feeds, **{copy: feeds[first] for first, copy in self.aliases}}

    def text(self) -> str:
        """The model and its feeds as people read them."""
        lines = [onnx.printer.to_text(self.model).strip()]
        for number, feeds in enumerate(self.runs):
            lines += [f"run {number}: {n} = {_brief(a)}" for n, a in feeds.items()]
        lines += [f"layouts: {dict(self.layouts)}"] if self.layouts else []
        lines += [f"one array: {first} and {copy}" for first, copy in self.aliases]
        return "\n".join(lines)

    def save(self, path: Path, **notes: str) -> None:
        """Write it as a seed; ``notes`` are for the reader."""
        stored = {
            **notes,
            "family": self.family,
            "levels": list(self.levels),
            "calls": [list(c) for c in self.calls],
            "layouts": dict(self.layouts or {}),
            "aliases": [list(a) for a in self.aliases],
            "pointwise": self.pointwise,
            "checked": self.checked,
            "text": self.text().split("\n"),
            "runs": [{n: _stored(a) for n, a in feeds.items()} for feeds in self.runs],
            "model": base64.b64encode(self.model.SerializeToString()).decode(),
        }
        path.write_text(json.dumps(stored, indent=1) + "\n")

    @classmethod
    def load(cls, path: Path) -> Self:
        stored = json.loads(path.read_text())
        return cls(
            stored["family"],
            onnx.ModelProto.FromString(base64.b64decode(stored["model"])),
            tuple({n: _restored(a) for n, a in feeds.items()} for feeds in stored["runs"]),
            tuple(stored["levels"]),
            tuple((kind, threads) for kind, threads in stored["calls"]),
            stored["layouts"],
            tuple((first, copy) for first, copy in stored["aliases"]),
            stored["pointwise"],
            stored["checked"],
        )

    def at_every_level(self) -> Self:
        return replace(self, levels=(0, 1, 2, 3))


def lay_out(array: Array, layout: str) -> Array:
    """Equal elements, laid out otherwise."""
    if not array.ndim:
        return array
    match layout:
        case "reversed":
            backwards = (slice(None, None, -1),) * array.ndim
            return np.ascontiguousarray(array[backwards])[backwards]
        case "strided":
            wide = np.zeros((*array.shape[:-1], 2 * array.shape[-1]), array.dtype)
            wide[..., ::2] = array
            return wide[..., ::2]
        case "columns":
            return np.asfortranarray(array)
    return array


def _stored(array: Array) -> dict[str, Any]:
    return {
        "dtype": array.dtype.name,
        "shape": list(array.shape),
        "bytes": base64.b64encode(array.tobytes()).decode(),
    }


def _restored(stored: Mapping[str, Any]) -> Array:
    flat = np.frombuffer(base64.b64decode(stored["bytes"]), np.dtype(stored["dtype"]))
    return flat.reshape(stored["shape"]).copy()


def _brief(array: Array) -> str:
    return (
        f"{array.dtype}{list(array.shape)} {np.array2string(array.reshape(-1)[:8], separator=', ', max_line_width=200)}"
    )
