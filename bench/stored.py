"""Comparisons as :mod:`bench.results` keeps them beside its page, read again."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from bench.accuracy import Accuracy
from bench.machine import Machine
from bench.measurement import EngineResult, ModelResult
from bench.report import Report
from bench.timing import Timing


def read_reports(folder: Path) -> tuple[Report, ...]:
    """Those of a folder ``results``, by number of threads."""
    found = [read_report(path) for path in folder.glob("peers-*.json")]
    return tuple(sorted(found, key=lambda report: report.threads))


def read_report(path: Path) -> Report:
    """What :meth:`bench.report.Report.to_json` wrote."""
    data = json.loads(path.read_text())
    return Report(
        _machine(data["machine"]),
        data["threads"],
        data["rounds"],
        data["dynamic"],
        tuple(_model(entry) for entry in data["models"]),
    )


def _machine(data: dict[str, Any]) -> Machine:
    return Machine(**data | {"flags": tuple(data["flags"]), "caches": tuple(data["caches"])})


def _model(data: dict[str, Any]) -> ModelResult:
    return ModelResult(
        data["model"],
        {name: tuple(shape) for name, shape in data["shapes"].items()},
        {name: _engine(result) for name, result in data["engines"].items()},
        data["reference"],
        data["inexact"],
    )


def _engine(data: dict[str, Any]) -> EngineResult:
    timing, accuracy = data["timing"], data["accuracy"]
    return EngineResult(
        data["engine"],
        data["error"],
        Timing(**timing) if timing is not None else None,
        _accuracy(accuracy) if accuracy is not None else None,
        data["facts"],
    )


def _accuracy(data: dict[str, Any]) -> Accuracy:
    """NOTE: an infinite difference is kept as null."""
    known: dict[str, Any] = {name: math.inf if value is None else value for name, value in data.items()}
    return Accuracy(**known)
