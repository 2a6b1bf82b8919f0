"""What a comparison says: the ratios, the closing line, the table on screen and in Markdown, the JSON file."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table

from bench.architectures import mean_over_architectures
from bench.machine import Machine
from bench.measurement import ENGINES, OPENVINO_DEFAULT, OURS, PEERS, EngineResult, ModelResult
from bench.timing import Timing

SHORT = {"ingot": "ingot", "onnxruntime": "ort", "openvino": "openvino"}
_NONE = "n/a"


@dataclass(frozen=True)
class Report:
    """A comparison: which machine, how, and every model."""

    machine: Machine
    threads: int
    rounds: int
    dynamic: bool
    models: tuple[ModelResult, ...]

    def closing_line(self) -> str:
        """Geometric means of peer's latency over ours, and the model where the fastest peer comes closest to us."""
        parts = [f"{as_times(self.mean_ratio(peer))} {SHORT[peer]}" for peer in PEERS]
        best = [(m.best_ratio, m.model) for m in self.models if m.best_ratio is not None]
        mean = mean_over_architectures({name: ratio for ratio, name in best})
        parts.append(f"{as_times(mean)} best-of-peers")
        worst = min(best, default=None)
        return f"geomean: {', '.join(parts)}; worst: " + (f"{worst[1]} {as_times(worst[0])}" if worst else _NONE)

    def mean_ratio(self, peer: str) -> float | None:
        """Over the architectures of the models that both the peer and Ingot run."""
        return mean_over_architectures({m.model: r for m in self.models if (r := m.ratio(peer)) is not None})

    def failures(self) -> tuple[str, ...]:
        """Engines that are left out of a model, and answers that differ, one line each."""
        lines = []
        for model in self.models:
            if model.inexact:
                lines.append(
                    f"{model.model}: no run in double precision, {model.reference} takes its place: {_one_line(model.inexact)}"
                )
            for result in model.engines.values():
                if result.error:
                    lines.append(f"{model.model}: {result.engine} fails and is left out: {_one_line(result.error)}")
                elif result.accuracy is not None and not result.agrees and result.engine != OPENVINO_DEFAULT:
                    lines.append(
                        f"{model.model}: {result.engine} differs from {model.reference} by {result.accuracy.max_rel:.2g}"
                        f" of the largest element of {result.accuracy.output!r} and is left out"
                    )
        return tuple(lines)

    @property
    def ours_failed(self) -> bool:
        """Whether Ingot fails or differs on any model."""
        ours = [m.engines[OURS] for m in self.models if OURS in m.engines]
        return any(r.error or not r.agrees for r in ours)

    def to_json(self) -> str:
        data = asdict(self)
        for model, entry in zip(self.models, data["models"], strict=True):
            for engine in entry["engines"].values():
                for name in [name for name in ("alone", "beside") if engine[name] is None]:
                    del engine[name]
            entry["ratios"] = {SHORT[p]: model.ratio(p) for p in PEERS} | {"best_of_peers": model.best_ratio}
        return json.dumps(_finite(data | {"closing_line": self.closing_line()}), indent=1) + "\n"


HEADER = (
    "model",
    "ingot ms",
    "ort ms",
    "openvino ms",
    "x ort",
    "x openvino",
    "x best",
    "difference",
    "ort difference",
    "winograd",
    "strassen",
    "compile s",
    "peak MB",
    "MB",
)
"""Times are medians with half the distance between the quartiles; differences from the reference are relative to the largest
element, Ingot's first; ``winograd`` and ``strassen`` count the kernels that use these methods."""


def rows(report: Report) -> list[tuple[str, ...]]:
    """The cells under :data:`HEADER`, one tuple per model."""
    return [_row(m) for m in report.models]


def _row(model: ModelResult) -> tuple[str, ...]:
    ours = model.engines.get(OURS)
    facts = ours.facts if ours is not None else {}
    return (
        model.model,
        *(_latency(model.engines.get(e)) for e in ENGINES),
        *(as_times(model.ratio(p)) for p in PEERS),
        as_times(model.best_ratio),
        _difference(ours),
        _difference(model.engines.get("onnxruntime")),
        str(facts.get("winograd_kernels", "")),
        str(facts.get("strassen_kernels", "")),
        f"{facts['compile_seconds']:.1f}" if "compile_seconds" in facts else "",
        f"{facts['peak_bytes'] / 1e6:.0f}" if "peak_bytes" in facts else "",
        f"{facts['artifact_bytes'] / 1e6:.1f}" if "artifact_bytes" in facts else "",
    )


def _difference(result: EngineResult | None) -> str:
    return f"{result.accuracy.max_rel:.1e}" if result is not None and result.accuracy is not None else ""


def _latency(result: EngineResult | None) -> str:
    if result is None:
        return ""
    if result.timing is None:
        return "fails"
    return _milliseconds(result.timing) if result.agrees else "differs"


def _milliseconds(timing: Timing) -> str:
    digits = 3 if timing.median < 1e-3 else 2 if timing.median < 0.1 else 1
    return f"{timing.median * 1e3:.{digits}f} ±{timing.spread * 50:.0f}%"


def screen_table(report: Report) -> Table:
    """For a terminal."""
    table = Table(title=f"{report.threads} thread{'s' * (report.threads != 1)}, median of {report.rounds} rounds")
    for number, name in enumerate(HEADER):
        table.add_column(name, justify="right" if number else "left", no_wrap=True)
    for cells in rows(report):
        table.add_row(*cells)
    return table


def neighbour_table(report: Report) -> Table:
    """What a process that takes a core in bursts costs each engine: milliseconds alone and beside it, and their ratio."""
    table = Table(title="beside a neighbour, mean of a turn, median of rounds")
    for number, name in enumerate(("model", *(SHORT[engine] for engine in ENGINES))):
        table.add_column(name, justify="right" if number else "left", no_wrap=True)
    for model in report.models:
        table.add_row(model.model, *(_slowed(model.engines.get(engine)) for engine in ENGINES))
    return table


def _slowed(result: EngineResult | None) -> str:
    if result is None or result.alone is None or result.beside is None:
        return _NONE
    return f"{result.alone * 1e3:.2f} -> {result.beside * 1e3:.2f} ({as_times(result.slowdown)})"


def markdown_table(header: Sequence[str], cells: Sequence[Sequence[str]]) -> str:
    """A GitHub table; the first column to the left, all others to the right."""
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *cells]
    return "\n".join("| " + " | ".join(c.replace("|", "\\|") for c in line) + " |" for line in lines) + "\n"


def as_times(ratio: float | None) -> str:
    """A ratio for people."""
    return _NONE if ratio is None else f"{ratio:.2f}x"


def _one_line(text: str) -> str:
    return " ".join(text.split())[:400] or "no reason given"


def _finite(value: Any) -> Any:
    """NOTE: JSON has no infinity; an infinite difference is written as null."""
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
