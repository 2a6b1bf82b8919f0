"""``plan.json`` of an artifact: a :class:`shared_ir.plan.program.Plan` as JSON, and back.

The names are those of the records' fields. A step that is no launch says which it is in ``step``. Dims are rows of the table
``expressions`` (:mod:`shared_ir.plan.dim_table`); plans of version 1 have their text instead.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from shared_ir.digest import digest_of
from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr import Expr
from shared_ir.expr.dim import Dim, parse_dim
from shared_ir.plan.dim_table import DimReader, DimWriter
from shared_ir.plan.program import (
    Branch,
    BufferSpec,
    Call,
    Check,
    Constraint,
    Copy,
    Define,
    KernelSpec,
    Launch,
    Plan,
    Read,
    Repeat,
    Reserve,
    Step,
    Storage,
    Swap,
    SymbolSource,
    TensorSpec,
)
from shared_ir.plan.validate import validate_plan
from shared_ir.types import ValueKind
from shared_ir.versions import PLAN_VERSION, SUPPORTED_PLAN_VERSIONS

_CONTROL = (Copy, Reserve, Swap, Define, Read, Check, Branch, Repeat, Call)
_RECORDS = (Plan, TensorSpec, BufferSpec, KernelSpec, Launch, SymbolSource, Constraint, *_CONTROL)
_WHERE_USED = frozenset({"run_symbols", "output_slots", "slots", "strings", "batch", "part", "constants"})
"""Fields that the JSON of a plan without control flow, run-defined sizes, strings, independent rows and parts of other code
generators does not have."""


def write_plan(plan: Plan) -> str:
    """Canonical JSON: sorted keys, no spaces; equal plans give equal bytes."""
    dims = DimWriter()
    data = _encode(plan, dims) | {"version": PLAN_VERSION, "expressions": dims.rows}
    return json.dumps(data, sort_keys=True, separators=(",", ":"))


def plan_digest(plan: Plan) -> str:
    """Digest of what :func:`write_plan` makes of it: the name that a library has for the plan it was generated from."""
    return digest_of(write_plan(plan).encode())


def read_plan(text: str | bytes) -> Plan:
    """The inverse of :func:`write_plan`.

    Raises:
        IngotError: ARTIFACT_INCOMPATIBLE, a version that this tree does not read; ARTIFACT_CORRUPT, malformed, or none that
            could be run.
    """
    try:
        data = json.loads(text)
        version = data["version"]
        if version not in SUPPORTED_PLAN_VERSIONS:
            raise IngotError(
                ErrorCode.ARTIFACT_INCOMPATIBLE,
                "the plan has a form that this runtime does not read",
                expected=f"plan version {' or '.join(map(str, SUPPORTED_PLAN_VERSIONS))}",
                received=f"plan version {str(version)[:40]}",
                remedy="Compile the model again, or update the runtime.",
            )
        plan = _Reader(_text_dim if version == 1 else DimReader(data["expressions"]).read).plan(data)
        validate_plan(plan)
        return plan
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise IngotError(
            ErrorCode.ARTIFACT_CORRUPT,
            f"malformed plan: {type(error).__name__}: {str(error)[:200]}",
            remedy="Compile the model again.",
        ) from error


def _encode(value: Any, dims: DimWriter) -> Any:
    if isinstance(value, Expr):
        return dims.write(value)
    if isinstance(value, (tuple, list)):
        return [_encode(v, dims) for v in value]
    if not isinstance(value, _RECORDS):
        return value
    encoded: dict[str, Any] = {"step": type(value).__name__.lower()} if isinstance(value, _CONTROL) else {}
    for name in value.__dataclass_fields__:
        item = getattr(value, name)
        if (name in _WHERE_USED and not item) or item is ValueKind.TENSOR or (name == "default" and item < 0):
            continue
        encoded[name] = _encode(item, dims)
    return encoded


def _text_dim(written: int | str) -> Dim:
    """A dim in a plan of version 1."""
    return written if isinstance(written, int) else parse_dim(written)


@dataclass(frozen=True)
class _Reader:
    """Records from their JSON; ``dim`` reads a dim."""

    dim: Callable[[Any], Dim]

    def plan(self, data: dict[str, Any]) -> Plan:
        return Plan(
            name=data["name"],
            inputs=tuple([self.tensor(t) for t in data["inputs"]]),
            outputs=tuple([self.tensor(t) for t in data["outputs"]]),
            symbols=tuple([SymbolSource(**s) for s in data["symbols"]]),
            constraints=tuple([self.constraint(c) for c in data["constraints"]]),
            buffers=tuple([self.buffer(b) for b in data["buffers"]]),
            kernels=tuple(
                [
                    KernelSpec(
                        k["name"],
                        tuple(k["symbols"]),
                        k["scratch"],
                        tuple(k["schedule"]),
                        k.get("part", ""),
                        k.get("constants", 0),
                    )
                    for k in data["kernels"]
                ]
            ),
            steps=self.steps(data["steps"]),
            arena_size=self.dim(data["arena_size"]),
            weights_size=data["weights_size"],
            metadata=data["metadata"],
            run_symbols=tuple(data.get("run_symbols", ())),
            output_slots=tuple(data.get("output_slots", ())),
            slots=data.get("slots", 0),
            strings=tuple(data.get("strings", ())),
            batch=data.get("batch", ""),
        )

    def dims(self, data: list[Any]) -> tuple[Dim, ...]:
        return tuple(map(self.dim, data))

    def tensor(self, data: dict[str, Any]) -> TensorSpec:
        kind = ValueKind(data.get("kind", ValueKind.TENSOR))
        return TensorSpec(data["name"], DType(data["dtype"]), self.dims(data["shape"]), kind, data.get("default", -1))

    def constraint(self, data: dict[str, Any]) -> Constraint:
        return Constraint(self.dim(data["actual"]), self.dim(data["expected"]), data["message"], data["lower"])

    def buffer(self, data: dict[str, Any]) -> BufferSpec:
        return BufferSpec(
            storage=Storage(data["storage"]),
            dtype=DType(data["dtype"]),
            shape=self.dims(data["shape"]),
            size=self.dim(data["size"]),
            offset=self.dim(data["offset"]),
            index=data["index"],
            name=data["name"],
        )

    def steps(self, data: list[dict[str, Any]]) -> tuple[Step, ...]:
        return tuple([self.step(d) for d in data])

    def step(self, data: dict[str, Any]) -> Step:
        match data.get("step", "launch"):
            case "launch":
                return self.launch(data)
            case "copy" | "reserve" | "swap" as kind:
                return _moved(kind, data)
            case "define":
                return Define(tuple(data["symbols"]), self.dims(data["values"]))
            case "read":
                return Read(data["symbol"], data["buffer"], data["index"])
            case "check":
                return Check(self.constraint(data["constraint"]))
            case "branch":
                return Branch(self.dim(data["condition"]), self.steps(data["then"]), self.steps(data["otherwise"]))
            case "repeat":
                return Repeat(data["counter"], self.dim(data["limit"]), data["condition"], self.steps(data["body"]))
            case "call":
                return _call(data)
        raise ValueError(f"unknown step {data['step']!r}")

    def launch(self, data: dict[str, Any]) -> Launch:
        return Launch(
            kernel=data["kernel"],
            buffers=tuple(data["buffers"]),
            symbols=self.dims(data["symbols"]),
            tasks=self.dim(data["tasks"]),
            flops=self.dim(data["flops"]),
            bytes=self.dim(data["bytes"]),
            nodes=tuple(data["nodes"]),
            label=data["label"],
        )


def _moved(kind: str, data: dict[str, Any]) -> Copy | Reserve | Swap:
    if kind == "copy":
        return Copy(data["source"], data["target"])
    return Reserve(data["buffer"], data["keep"]) if kind == "reserve" else Swap(data["first"], data["second"])


def _call(data: dict[str, Any]) -> Call:
    return Call(
        function=data["function"],
        inputs=tuple(data["inputs"]),
        outputs=tuple(data["outputs"]),
        takes=tuple(data["takes"]),
        gives=tuple(data["gives"]),
        attributes=data["attributes"],
        nodes=tuple(data["nodes"]),
    )
