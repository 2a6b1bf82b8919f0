"""A compiler for tests of the service around it; :mod:`tests.services.toy_stages` says what a model of it is.

It is passed in by constructor (``command`` of the stage runner, ``compiler`` of the service); nothing here is reachable from
the product's own entry points.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from compiler_service.catalogue import NamedTarget, OptionDescription
from compiler_service.jobs.records import UploadedModel
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.machine.target import PRESETS, Target, resolve_target
from tests.services.toy_stages import VERSION, toy_key

STAGE_COMMAND = (sys.executable, str(Path(__file__).with_name("toy_stages.py")))


class ToyArriving:
    """Anything may be a model."""

    def declared(self, ir_version: int, opsets: Mapping[str, int]) -> None:
        pass

    def feed(self, data: bytes) -> None:
        pass


class ToyCompiler:
    """A :class:`compiler_service.catalogue.Catalogue`."""

    version = VERSION
    opsets = (7, 23)

    def resolve_target(self, text: str) -> Target:
        return resolve_target(text, lambda: PRESETS["x86-64-v3"][0])

    def normalise_options(self, options: Mapping[str, Any]) -> Mapping[str, Any]:
        for name in options:
            if name not in ("opt_level", "tune", "verification"):
                message = "there is no such option"
                raise IngotError(
                    ErrorCode.INVALID_ARGUMENT, message, field=name, expected="opt_level, tune, verification"
                )
        return {"opt_level": 3, "tune": 0} | dict(options)

    def artifact_key(self, source: UploadedModel, target: Target, options: Mapping[str, Any], records: bytes) -> str:
        return toy_key(source.digest, target, options, records)

    def merge_records(self, old: bytes, new: bytes) -> bytes:
        return b"".join(sorted({*old.splitlines(keepends=True), *new.splitlines(keepends=True)}))

    def options(self) -> Sequence[OptionDescription]:
        return [OptionDescription("opt_level", "int", "3", "how hard to try")]

    def operators(self) -> Sequence[str]:
        return ["Add", "Conv"]

    def targets(self) -> Sequence[NamedTarget]:
        return [NamedTarget(name, text, target) for name, (target, text) in PRESETS.items()]

    def limits(self) -> Mapping[str, int]:
        return {"nodes": 100}

    def arriving(self, size: int) -> ToyArriving:
        return ToyArriving()
