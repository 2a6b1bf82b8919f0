"""The text formats of Prometheus, from numbers that are kept elsewhere.

prometheus_client makes an object of each sample and escapes each label anew at every scrape: 60,000 samples take it 0.8 s of the
interpreter, and 0.05 s when the labels of a version are written once and lines are joined. Nobody else of the process runs meanwhile.

Sources of the formats: https://prometheus.io/docs/instrumenting/exposition_formats/ and OpenMetrics 1.0.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass

from shared_ir.service_kit.telemetry.histogram import Histogram

OPEN_METRICS = "application/openmetrics-text"
COUNTER, GAUGE, HISTOGRAM = "counter", "gauge", "histogram"
_TOTAL = "_total"
Sample = tuple[str, float]
"""Labels as :func:`labelled` writes them, and a value."""


@dataclass(frozen=True, slots=True)
class Family:
    """Samples of one name, which is as scraped, without the suffixes of histograms; ``help`` is one line without quotes."""

    name: str
    kind: str
    labels: tuple[str, ...]
    help: str


class Exposition:
    """One scrape as it is written; ``is_open``: as OpenMetrics, without its end."""

    def __init__(self, is_open: bool = False) -> None:
        self._is_open = is_open
        self._lines: list[str] = []

    def numbers(self, family: Family, samples: Iterable[Sample]) -> None:
        """A counter or a gauge."""
        self._head(family)
        name = family.name
        self._lines += [f"{name}{{{labels}}} {value}\n" if labels else f"{name} {value}\n" for labels, value in samples]

    def histograms(self, family: Family, samples: Iterable[tuple[str, Histogram]]) -> None:
        self._head(family)
        for labels, histogram in samples:
            before, behind = (f"{labels},", f"{{{labels}}}") if labels else ("", "")
            total = 0
            for bound, count in zip(_bounds(histogram.bounds), histogram.counts, strict=True):
                total += count
                self._lines.append(f"{family.name}_bucket{{{before}{bound}}} {total}\n")
            self._lines.append(f"{family.name}_sum{behind} {histogram.sum}\n{family.name}_count{behind} {total}\n")

    def encoded(self) -> bytes:
        return "".join(self._lines).encode()

    def _head(self, family: Family) -> None:
        """NOTE: OpenMetrics names a counter without ``_total``, and knows none whose samples end otherwise."""
        name, kind = family.name, family.kind
        if self._is_open and kind == COUNTER:
            kind = COUNTER if name.endswith(_TOTAL) else "unknown"
            name = name.removesuffix(_TOTAL)
        self._lines.append(f"# HELP {name} {family.help}\n# TYPE {name} {kind}\n")


def labelled(**labels: str) -> str:
    """As they stand between the braces of a sample."""
    return ",".join(f'{name}="{_escaped(text)}"' for name, text in labels.items())


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


@functools.cache
def _bounds(bounds: tuple[float, ...]) -> tuple[str, ...]:
    return (*(f'le="{float(bound)}"' for bound in bounds), 'le="+Inf"')
