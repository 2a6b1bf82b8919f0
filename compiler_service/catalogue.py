"""What the compiler can do, as the API tells and checks it before a job is queued."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from typing import Any, Protocol

from compiler_service.compiler.backends.table import backend_of
from compiler_service.compiler.codegen.toolchain.host import host_target
from compiler_service.compiler.describing import records_digest
from compiler_service.compiler.frontend.reading.arriving import ArrivingModel
from compiler_service.compiler.frontend.reading.limits import FrontendLimits
from compiler_service.compiler.frontend.reading.source import FIRST_OPSET, NEWEST_OPSET
from compiler_service.compiler.options import CompileOptions
from compiler_service.compiler.tensor_expr.registry import OPERATORS
from compiler_service.compiler.tune.records.book import merged
from compiler_service.compiler.version import compiler_version
from compiler_service.jobs.neighbours import Compiler
from compiler_service.jobs.records import UploadedModel
from shared_ir.artifact.value import artifact_key
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.machine.target import PRESETS, Target, resolve_target


@dataclass(frozen=True)
class OptionDescription:
    """An option of a compilation; ``type`` and ``default`` as text."""

    name: str
    type: str
    default: str
    description: str


@dataclass(frozen=True)
class NamedTarget:
    """A target that has a name."""

    name: str
    description: str
    target: Target


class ArrivingUpload(Protocol):
    """A model that is being uploaded. Both methods raise IngotError for one that could not be compiled in any case."""

    def declared(self, ir_version: int, opsets: Mapping[str, int]) -> None:
        """What the client says of it before; 0 and none for nothing."""

    def feed(self, data: bytes) -> None:
        """Its next bytes."""


class Catalogue(Compiler, Protocol):
    """A compiler that also describes itself."""

    @property
    def version(self) -> str: ...

    @property
    def opsets(self) -> tuple[int, int]:
        """First and newest opset of the ONNX domain that is read."""

    def options(self) -> Sequence[OptionDescription]: ...

    def operators(self) -> Sequence[str]: ...

    def targets(self) -> Sequence[NamedTarget]: ...

    def limits(self) -> Mapping[str, int]:
        """What a model may cost."""

    def arriving(self, size: int) -> ArrivingUpload:
        """Looks at a model of so many bytes while it comes."""


class PipelineCompiler:
    """The compiler in this tree. Implements :class:`Catalogue`."""

    opsets = (FIRST_OPSET, NEWEST_OPSET)

    @property
    def version(self) -> str:
        return compiler_version()

    def resolve_target(self, text: str) -> Target:
        target = resolve_target(text, host_target)
        backend_of(target).require(target)
        return target

    def normalise_options(self, options: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            return CompileOptions.from_dict(options).to_dict()
        except (TypeError, ValueError) as error:
            message = f"an option is of the wrong kind: {error}"
            raise IngotError(
                ErrorCode.INVALID_ARGUMENT, message, field="options", received=str(options)[:200]
            ) from error

    def artifact_key(self, source: UploadedModel, target: Target, options: Mapping[str, Any], records: bytes) -> str:
        return artifact_key(source.digest, target, options, records_digest(records, target), compiler_version())

    def merge_records(self, old: bytes, new: bytes) -> bytes:
        return merged(old, new)

    def options(self) -> Sequence[OptionDescription]:
        lines = _attribute_descriptions(CompileOptions.__doc__ or "")
        return [
            OptionDescription(own.name, str(own.type), _default(own), lines.get(own.name, ""))
            for own in fields(CompileOptions)
        ]

    def operators(self) -> Sequence[str]:
        return sorted(OPERATORS)

    def targets(self) -> Sequence[NamedTarget]:
        host = NamedTarget("host", "the machine that the compiler service runs on", host_target())
        presets = [NamedTarget(name, text, target) for name, (target, text) in PRESETS.items()]
        return [host, *sorted(presets, key=lambda own: own.name)]

    def limits(self) -> Mapping[str, int]:
        limits = FrontendLimits()
        return {name: getattr(limits, name) for name in FrontendLimits.__dataclass_fields__}

    def arriving(self, size: int) -> ArrivingUpload:
        return ArrivingModel(size)


def _default(own: Any) -> str:
    value = own.default if own.default is not MISSING else own.default_factory()
    return "" if value in ("", (), {}) else str(value)


def _attribute_descriptions(docstring: str) -> Mapping[str, str]:
    """The ``name: text`` lines of a docstring's ``Attributes`` section."""
    found: dict[str, str] = {}
    name = ""
    for line in docstring.partition("Attributes:")[2].splitlines():
        head, colon, text = line.strip().partition(": ")
        if colon and head.isidentifier():
            name, found[head] = head, text
        elif name and line.strip():
            found[name] += " " + line.strip()
    return found
