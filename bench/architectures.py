"""Which files are one architecture: a mean over models says how many ideas were tried, not in how many files they came."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from bench.timing import geometric_mean

_SAME = ("silero_vad",)
"""What the names of all files of one architecture begin with; any other file is an architecture by itself."""
_PUBLISHED = ("ch_", "rapid_", "silero_vad")
"""What the names of files begin with that come from products, with their weights; all others make up the zoo."""


def architecture(model: str) -> str:
    """The name that ``model`` counts under."""
    return next((name for name in _SAME if model.startswith(name)), model)


def of_the_zoo(model: str) -> bool:
    """Whether it is a known architecture with random weights, rather than a published file."""
    return not model.startswith(_PUBLISHED)


def mean_over_architectures(ratios: Mapping[str, float]) -> float | None:
    """The geometric mean of ratios by model, in which every architecture counts once: by the mean of its files."""
    groups: dict[str, list[float]] = {}
    for model, ratio in ratios.items():
        groups.setdefault(architecture(model), []).append(ratio)
    means = [geometric_mean(group) for group in groups.values()]
    return geometric_mean([mean for mean in means if mean is not None])


def count_architectures(models: Iterable[str]) -> int:
    return len({architecture(model) for model in models})
