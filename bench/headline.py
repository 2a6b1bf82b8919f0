"""What a comparison comes to in a few lines: on which CPU, over how many architectures, beside which precision of the peers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bench.architectures import count_architectures, mean_over_architectures, of_the_zoo
from bench.measurement import OPENVINO_DEFAULT, OURS, ModelResult
from bench.report import Report, as_times

_BRAIN_FLOATS = ("avx512_bf16", "amx_bf16", "amx_tile")
"""Flags of processors on which OpenVINO computes in bfloat16 unless it is told otherwise."""


def headline(reports: Sequence[Report]) -> list[str]:
    """Lines of Markdown that stand before everything else on the page."""
    machine = reports[0].machine
    models = [m.model for m in reports[0].models]
    count, files = count_architectures(models), len(models)
    counted = f"{count} architectures" + (f" in {files} files, each architecture counted once" if files > count else "")
    lines = [
        f"On {machine.cpu}, float32 everywhere, {counted};",
        "geometric means of the peer's latency over Ingot's:",
        "",
    ]
    lines += [f"- {_summary(report)}" for report in reports]
    default = [line for report in reports if (line := _beside_the_default(report))]
    return [*lines, *(default or [_without_the_default(reports[0])]), *_uncommitted(reports)]


def _uncommitted(reports: Sequence[Report]) -> list[str]:
    """Nobody can check out what was measured where the tree differed from its commit."""
    versions = dict.fromkeys(report.machine.versions.get("ingot", "") for report in reports)
    changed = [version.removesuffix("+") for version in versions if version.endswith("+")]
    return [
        f"- Measured was {commit} with changes that were not committed (`{commit}+`), which nobody can check out: take the figures for "
        "those of a tree near that commit."
        for commit in changed
    ]


def _summary(report: Report) -> str:
    zoo = [m for m in report.models if of_the_zoo(m.model)]
    alone = f"; the {len(zoo)} of the zoo alone {as_times(_best(zoo))}" if 0 < len(zoo) < len(report.models) else ""
    return (
        f"{threads_text(report)}: {as_times(report.mean_ratio('onnxruntime'))} ONNX Runtime, "
        f"{as_times(report.mean_ratio('openvino'))} OpenVINO, {as_times(_best(report.models))} the faster of the two{alone}"
    )


def threads_text(report: Report) -> str:
    return f"{report.threads} thread{'s' * (report.threads != 1)}"


def _best(models: Iterable[ModelResult]) -> float | None:
    return mean_over_architectures({m.model: r for m in models if (r := m.best_ratio) is not None})


def _beside_the_default(report: Report) -> str | None:
    """How OpenVINO compares when nobody tells it a precision; its answers are off by more than those of float32."""
    found = {m.model: r for m in report.models if (r := _default_ratio(m)) is not None}
    results = [m.engines[OPENVINO_DEFAULT] for m in report.models if m.model in found]
    worst = max((r.accuracy.max_rel for r in results if r.accuracy is not None), default=0.0)
    if not found:
        return None
    return (
        f"- {threads_text(report)}, OpenVINO as it comes, which may choose its precision: {as_times(mean_over_architectures(found))} "
        f"over {count_architectures(found)} architectures, its answers off by up to {worst:.0e} of the largest element"
    )


def _default_ratio(model: ModelResult) -> float | None:
    theirs, ours = model.engines.get(OPENVINO_DEFAULT), model.seconds(OURS)
    return theirs.timing.median / ours if theirs is not None and theirs.timing is not None and ours else None


def _without_the_default(report: Report) -> str:
    chooses = any(flag in report.machine.flags for flag in _BRAIN_FLOATS)
    usual = "bfloat16 by default" if chooses else "what it chooses by default"
    return (
        f"- OpenVINO was told to compute in float32. On this CPU its users get {usual}, "
        + ("which trades exactness for speed; " if chooses else "")
        + "that was not measured, so no figure of this page says how Ingot compares with it."
    )
