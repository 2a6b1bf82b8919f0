"""What tuning gains: each model tuned for some time, then run with default and with tuned schedules in turns.

``python -m bench.tuned --models DIR_OR_FILES --seconds 300 --json FILE``: on an idle machine of at least two cores. A second run
of the tuner with the records of the first must measure nothing.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.machine import describe_machine
from ingot.pairs import Comparison
from ingot.tuning import tune
from shared_ir.errors import IngotError


@dataclass(frozen=True)
class ModelGain:
    """One model.

    Attributes:
        tasks: that were measured; ``faster`` of them have a schedule that is.
        trials: of the first run; ``again`` of a second one with its records.
        comparison: None where no task has gained anything: the artifacts are equal.
        dropped: gains that were given up.
    """

    name: str
    tasks: int
    faster: int
    trials: int
    again: int
    comparison: Comparison | None
    dropped: int

    @property
    def speedup(self) -> float:
        return 1.0 if self.comparison is None else self.comparison.speedup


def measure(model: Path, seconds: float, records: Path) -> ModelGain:
    """Tune ``model``, twice."""
    first = tune(model, seconds=seconds, records=records)
    second = tune(model, seconds=seconds, records=records)
    faster = sum(t.seconds < t.default_seconds for t in first.tasks)
    return ModelGain(model.stem, len(first.tasks), faster, first.trials, second.trials, first.model, first.dropped)


def line(gain: ModelGain) -> str:
    """A row of the table."""
    compared = gain.comparison
    times = (
        "| - | - | 1.000x | - "
        if compared is None
        else (
            f"| {compared.default * 1e3:.4g} | {compared.tuned * 1e3:.4g} | {gain.speedup:.3f}x | {compared.noise:.1%} "
        )
    )
    return f"| {gain.name} | {gain.faster} of {gain.tasks} | {gain.trials} | {gain.again} {times}|"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.tuned", description=__doc__)
    parser.add_argument("--models", nargs="+", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=300.0, help="for each model (default 300)")
    parser.add_argument("--json", type=Path, help="write what was measured")
    options = parser.parse_args(arguments)
    models = [m for given in options.models for m in (sorted(given.glob("*.onnx")) if given.is_dir() else [given])]
    print("\n".join(describe_machine().lines()))
    print(f"{options.seconds:g} s of tuning for each model; one thread, in turns\n")
    print("| model | tasks faster | trials | trials of a second run | default ms | tuned ms | speedup | noise |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    gains: list[ModelGain] = []
    with tempfile.TemporaryDirectory(prefix="ingot-tuned-") as folder:
        for model in models:
            try:
                gains.append(measure(model, options.seconds, Path(folder) / f"{model.stem}.jsonl"))
            except IngotError as error:
                print(f"{model.stem}: {error}", file=sys.stderr)
                continue
            print(line(gains[-1]), flush=True)
    if not gains:
        return 1
    mean = math.exp(sum(math.log(g.speedup) for g in gains) / len(gains))
    worst = min(gains, key=lambda g: g.speedup)
    print(f"\ngeomean: {mean:.3f}x the default schedules; worst: {worst.name} {worst.speedup:.3f}x")
    if options.json:
        options.json.write_text(json.dumps([asdict(g) for g in gains], indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
