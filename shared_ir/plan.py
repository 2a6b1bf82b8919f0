"""The plan: the program that both executors run, as data (``plan.json`` of an artifact).

The graph executor interprets these steps one by one; the AOT entry of ``model.so`` is generated from the same steps.
Every size, offset and task count is a :data:`shared_ir.dim.Dim` over the symbols of the model, kept as text in JSON.
"""

from __future__ import annotations

import enum
import json
from dataclasses import dataclass, field
from typing import Any, Self

from shared_ir.dim import Dim, dim_text, parse_dim
from shared_ir.dtype import DType

PLAN_VERSION = 1
ALIGNMENT = 64
"""Alignment in bytes of every buffer in the arena and of every weight."""


class Storage(enum.StrEnum):
    """Where a buffer lives."""

    INPUT = "input"  # `index` is the position in Plan.inputs
    OUTPUT = "output"  # `index` is the position in Plan.outputs
    WEIGHT = "weight"  # `offset` bytes into weights.bin
    ARENA = "arena"  # `offset` bytes into the arena of the run


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """An input or output of the model."""

    name: str
    dtype: DType
    shape: tuple[Dim, ...]


@dataclass(frozen=True, slots=True)
class BufferSpec:
    """Memory that launches read and write. ``size`` and ``offset`` are in bytes."""

    storage: Storage
    dtype: DType
    shape: tuple[Dim, ...]
    size: Dim
    offset: Dim = 0
    index: int = 0
    name: str = ""


@dataclass(frozen=True, slots=True)
class KernelSpec:
    """One native function; several launches may share it.

    ``symbols`` names its integer parameters, for reading only: launches give their values by position.
    ``scratch`` is the private memory in bytes that each thread needs. ``schedule`` is the tuple of steps in its JSON form.
    """

    name: str
    symbols: tuple[str, ...] = ()
    scratch: int = 0
    schedule: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Launch:
    """Run ``kernels[kernel]`` over ``tasks`` independent tasks, then wait for all of them.

    ``buffers`` are indices into Plan.buffers, ``symbols`` the integer arguments. ``flops`` and ``bytes`` (moved at least
    once) serve profiles, ``nodes`` are the names of the ONNX nodes that this launch computes.
    """

    kernel: int
    buffers: tuple[int, ...]
    symbols: tuple[Dim, ...]
    tasks: Dim
    flops: Dim = 0
    bytes: Dim = 0
    nodes: tuple[str, ...] = ()
    label: str = ""


@dataclass(frozen=True, slots=True)
class SymbolSource:
    """Symbol ``name`` is the extent of axis ``axis`` of input ``input``."""

    name: str
    input: int
    axis: int


@dataclass(frozen=True, slots=True)
class Constraint:
    """At run time ``actual == expected`` must hold, or the request is refused with ``message``.

    ``lower`` makes it ``actual >= expected`` instead.
    """

    actual: Dim
    expected: Dim
    message: str
    lower: bool = False


@dataclass(frozen=True)
class Plan:
    """A compiled model, but for its code and weights."""

    name: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    symbols: tuple[SymbolSource, ...]
    constraints: tuple[Constraint, ...]
    buffers: tuple[BufferSpec, ...]
    kernels: tuple[KernelSpec, ...]
    steps: tuple[Launch, ...]
    arena_size: Dim = 0
    weights_size: int = 0
    version: int = PLAN_VERSION
    metadata: dict[str, str] = field(default_factory=dict)

    def to_json(self) -> str:
        """Canonical JSON: sorted keys, no spaces; equal plans give equal bytes."""
        return json.dumps(_encode(self), sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """The inverse of :meth:`to_json`.

        Raises:
            ValueError: not a plan of version :data:`PLAN_VERSION`, or malformed.
        """
        try:
            data = json.loads(text)
            if data["version"] != PLAN_VERSION:
                raise ValueError(f"plan version {data['version']}, this runtime reads version {PLAN_VERSION}")
            return cls(
                name=data["name"],
                inputs=tuple(_tensor(t) for t in data["inputs"]),
                outputs=tuple(_tensor(t) for t in data["outputs"]),
                symbols=tuple(SymbolSource(**s) for s in data["symbols"]),
                constraints=tuple(
                    Constraint(_dim(c["actual"]), _dim(c["expected"]), c["message"], c["lower"])
                    for c in data["constraints"]
                ),
                buffers=tuple(_buffer(b) for b in data["buffers"]),
                kernels=tuple(
                    KernelSpec(k["name"], tuple(k["symbols"]), k["scratch"], tuple(k["schedule"]))
                    for k in data["kernels"]
                ),
                steps=tuple(_launch(s) for s in data["steps"]),
                arena_size=_dim(data["arena_size"]),
                weights_size=data["weights_size"],
                metadata=data["metadata"],
            )
        except (KeyError, TypeError, json.JSONDecodeError) as error:
            raise ValueError(f"malformed plan: {error}") from error


_DIM_FIELDS = frozenset({"size", "offset", "tasks", "flops", "bytes", "arena_size", "actual", "expected"})
_DIMS_FIELDS = {(TensorSpec, "shape"), (BufferSpec, "shape"), (Launch, "symbols")}


def _encode(value: Any) -> Any:
    if isinstance(value, (Plan, TensorSpec, BufferSpec, KernelSpec, Launch, SymbolSource, Constraint)):
        encoded: dict[str, Any] = {}
        for name in value.__dataclass_fields__:
            item = getattr(value, name)
            if name in _DIM_FIELDS:
                encoded[name] = item if isinstance(item, int) else dim_text(item)
            elif (type(value), name) in _DIMS_FIELDS:
                encoded[name] = [d if isinstance(d, int) else dim_text(d) for d in item]
            else:
                encoded[name] = _encode(item)
        return encoded
    if isinstance(value, (tuple, list)):
        return [_encode(v) for v in value]
    return value


def _dim(value: int | str) -> Dim:
    return value if isinstance(value, int) else parse_dim(value)


def _tensor(data: dict[str, Any]) -> TensorSpec:
    return TensorSpec(data["name"], DType(data["dtype"]), tuple(_dim(d) for d in data["shape"]))


def _buffer(data: dict[str, Any]) -> BufferSpec:
    return BufferSpec(
        storage=Storage(data["storage"]),
        dtype=DType(data["dtype"]),
        shape=tuple(_dim(d) for d in data["shape"]),
        size=_dim(data["size"]),
        offset=_dim(data["offset"]),
        index=data["index"],
        name=data["name"],
    )


def _launch(data: dict[str, Any]) -> Launch:
    return Launch(
        kernel=data["kernel"],
        buffers=tuple(data["buffers"]),
        symbols=tuple(_dim(d) for d in data["symbols"]),
        tasks=_dim(data["tasks"]),
        flops=_dim(data["flops"]),
        bytes=_dim(data["bytes"]),
        nodes=tuple(data["nodes"]),
        label=data["label"],
    )
