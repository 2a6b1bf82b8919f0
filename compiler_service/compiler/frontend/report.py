"""A check without compiling: every obstacle of a model at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx

from compiler_service.compiler.frontend.importing.inference import Inference
from compiler_service.compiler.frontend.importing.node import SourceNode, domain_name
from compiler_service.compiler.frontend.importing.problems import CollectAll
from compiler_service.compiler.frontend.load import import_proto
from compiler_service.compiler.frontend.options import ImportOptions
from compiler_service.compiler.frontend.reading.source import ModelSource, parse_model
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr.dim import dims_text
from shared_ir.graph.ir import Module, Value
from shared_ir.types import ValueKind


@dataclass(frozen=True)
class Obstacle:
    """One node, input or output that keeps a model from compiling.

    Attributes:
        node: name of the ONNX node (of its first output where it has none); empty if it is not about a node.
        operator: operator of the node, without its domain.
        domain: ``ai.onnx`` for standard operators.
        opset: version of the domain that the model imports.
        code: what kind of obstacle it is.
        field: the attribute or input that is in the way, if it is one.
        tensor: the value that is in the way, if it is one.
        reason: a sentence for the user.
        remedy: what to do about it.
    """

    node: str
    operator: str
    domain: str
    opset: int
    code: ErrorCode
    field: str
    tensor: str
    reason: str
    remedy: str

    @classmethod
    def of(cls, error: IngotError, node: SourceNode | None = None) -> Obstacle:
        return cls(
            node=node.title if node else error.node,
            operator=node.op if node else "",
            domain=(node.domain or "ai.onnx") if node else "",
            opset=node.opset if node else 0,
            code=error.code,
            field=error.field,
            tensor=error.tensor,
            reason=_reason(error),
            remedy=error.remedy,
        )

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready form without empty entries."""
        entries = {k: getattr(self, k) for k in self.__dataclass_fields__}
        return {k: str(v) if isinstance(v, ErrorCode) else v for k, v in entries.items() if v not in ("", 0)}

    def __str__(self) -> str:
        where = f"{self.node} ({self.operator}, {self.domain} {self.opset}): " if self.operator else ""
        where = where or (f"{self.node}: " if self.node else "")
        return f"{where}{self.reason} {self.remedy}".rstrip()


@dataclass(frozen=True)
class ObstacleReport:
    """What a check found.

    Attributes:
        obstacles: in the order of the graph; empty when the model can be imported.
        opsets: domain -> version that the model imports.
        operators: operator (with its domain if foreign) -> number of nodes in the model, nested graphs included.
        inputs: name -> type, as text; empty when the inputs themselves are in the way.
        outputs: name -> type, as text; empty when an obstacle hides one.
    """

    obstacles: tuple[Obstacle, ...]
    opsets: Mapping[str, int]
    operators: Mapping[str, int]
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]

    @property
    def is_supported(self) -> bool:
        return not self.obstacles

    @property
    def foreign_domains(self) -> Mapping[str, tuple[str, ...]]:
        """Domain outside the standard -> its operators that the model uses and that are not supported."""
        found: dict[str, set[str]] = {}
        for obstacle in self.obstacles:
            if obstacle.code is ErrorCode.UNSUPPORTED_DOMAIN:
                found.setdefault(obstacle.domain, set()).add(obstacle.operator)
        return {domain: tuple(sorted(operators)) for domain, operators in sorted(found.items())}

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready form."""
        return {
            "supported": self.is_supported,
            "obstacles": [o.to_dict() for o in self.obstacles],
            "foreign_domains": {k: list(v) for k, v in self.foreign_domains.items()},
            "opsets": dict(self.opsets),
            "operators": dict(self.operators),
            "inputs": dict(self.inputs),
            "outputs": dict(self.outputs),
        }


def check_model(
    source: ModelSource | bytes | str | Path, options: ImportOptions, inference: Inference
) -> ObstacleReport:
    """Import ``source`` as far as it goes and list everything that is in the way.

    After a node that cannot be imported its outputs are unknown; nodes that read them are checked only as far as that
    goes, so that one obstacle is not reported many times.

    Raises:
        IngotError: the file cannot be read as a model at all.
    """
    source = ModelSource.of(source)
    data = source.read(options.limits)
    proto = parse_model(data, options.limits)
    problems = CollectAll()
    rest: tuple[Obstacle, ...] = ()
    inputs: dict[str, str] = {}
    outputs: dict[str, str] = {}
    try:
        module = import_proto(proto, data, source, options, inference, problems)
    except IngotError as error:
        rest = (Obstacle.of(error),)
    else:
        if module is not None:
            inputs = {n: _type(module, n, v) for n, v in zip(module.input_names, module.graph.inputs, strict=True)}
            outputs = {n: _type(module, n, v) for n, v in zip(module.output_names, module.graph.outputs, strict=True)}
    return ObstacleReport(
        obstacles=tuple(Obstacle.of(error, node) for error, node in problems.found) + rest,
        opsets={domain_name(o.domain) or "ai.onnx": o.version for o in proto.opset_import},
        operators=dict(sorted(_count_operators(proto).items())),
        inputs=inputs,
        outputs=outputs,
    )


def _type(module: Module, name: str, value: Value) -> str:
    """The type of an input or output as users see it."""
    own = module.objects.get(name)
    if own is None:
        return str(value.type)
    return f"{own.dtype}[{dims_text(value.shape)}]" if own.kind is ValueKind.TENSOR else f"{own.kind}({own.dtype})"


def _count_operators(proto: onnx.ModelProto) -> Counter[str]:
    count: Counter[str] = Counter()
    graphs = [proto.graph]
    while graphs:
        for node in graphs.pop().node:
            domain = domain_name(node.domain)
            count[f"{domain}.{node.op_type}" if domain else node.op_type] += 1
            for attribute in node.attribute:
                graphs.extend([attribute.g] if attribute.HasField("g") else [])
                graphs.extend(attribute.graphs)
    return count


def _reason(error: IngotError) -> str:
    """Message, expected and received as one sentence; the place is told by the other fields."""
    text = error.message[:1].upper() + error.message[1:].rstrip(".")
    if error.expected:
        text += f": expected {error.expected}"
        if error.received:
            text += f", received {error.received}"
    elif error.received:
        text += f": received {error.received}"
    return f"{text}."
