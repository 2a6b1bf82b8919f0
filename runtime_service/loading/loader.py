"""From a verified artifact to a running :class:`Model`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Literal, Protocol

import numpy as np

from runtime_service.arrays import Array, address_of, aligned_copy
from runtime_service.executors.aot import AotExecutor
from runtime_service.executors.calls import check_call
from runtime_service.executors.executor import Executor
from runtime_service.executors.graph import GraphExecutor
from runtime_service.executors.library import Handle, Library
from runtime_service.executors.resources import Resources
from runtime_service.executors.signature import CallSignature, array_dtype
from runtime_service.loading.cpu import check_host
from runtime_service.loading.model import Model
from shared_ir.artifact.layout import open_version
from shared_ir.artifact.signature import TrustStore
from shared_ir.artifact.value import Manifest
from shared_ir.dtype import ONNX_DTYPES
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr.dim import static
from shared_ir.machine.cores import usable_cores
from shared_ir.plan.program import ALIGNMENT_BYTES, Call, Plan, Storage, walk_steps
from shared_ir.storage.files import map_file

ExecutorKind = Literal["aot", "graph"]


class Loadable(Protocol):
    """A verified artifact: :class:`shared_ir.artifact.layout.OpenedArtifact`, or a ``CompiledArtifact`` of this process's own making."""

    @property
    def manifest(self) -> Manifest: ...
    @property
    def plan(self) -> Plan: ...
    @property
    def library(self) -> bytes: ...
    @property
    def weights(self) -> bytes | memoryview | Path: ...
    @property
    def plan_digest(self) -> str: ...


def load_version(
    directory: Path, tag: str | None, trust: TrustStore, threads: int | None = None, executor: ExecutorKind = "aot"
) -> Model:
    """Verify version ``tag`` of the OCI image layout at ``directory`` and load its target for this machine.

    Raises:
        IngotError: NOT_FOUND, ARTIFACT_UNTRUSTED, ARTIFACT_INCOMPATIBLE, ARTIFACT_CORRUPT.
    """
    return load_model(open_version(directory, tag, trust), threads, executor)


def load_model(
    artifact: Loadable,
    threads: int | None = None,
    executor: ExecutorKind = "aot",
    instances: int | None = None,
    *,
    memory_bytes: int = 0,
    kept_bytes: int = 0,
) -> Model:
    """One model. ``threads`` per inference, ``None``: as many as the cgroup quota and the affinity mask allow.

    A plan with calls (of strings, sequences and optionals) runs in the graph executor, whatever ``executor`` says.

    ``instances`` inferences may run at once, by default as many as there are cores for. ``memory_bytes`` and ``kept_bytes`` bound what
    each takes and keeps (:class:`~runtime_service.executors.resources.Resources`).

    Raises:
        IngotError: ARTIFACT_INCOMPATIBLE, ARTIFACT_CORRUPT, RESOURCE_EXHAUSTED.
    """
    if instances is None:
        instances = max(1, usable_cores() // threads) if threads else 1
    (model,) = _load(artifact, 1, Resources(threads or 0, memory_bytes, kept_bytes), executor, instances)
    return model


def load_models(
    artifact: Loadable, count: int, resources: Resources, executor: ExecutorKind = "aot"
) -> tuple[Model, ...]:
    """``count`` independent models, one inference at a time each, that share one mapping of code and weights."""
    return _load(artifact, count, resources, executor, 1)


def _load(
    artifact: Loadable, count: int, resources: Resources, executor: ExecutorKind, instances: int
) -> tuple[Model, ...]:
    check_host(artifact.manifest)
    plan, weights = artifact.plan, map_weights(artifact.weights)
    library = Library(artifact.library, plan.name)
    try:
        _check_plan(artifact, library)
        signature = CallSignature.of(plan, library.input_dtypes, library.output_dtypes)
        defaults = _defaults(plan, weights)
        make = partial(_make_executor, plan, signature, library, weights, resources)
        models: list[Model] = []
        try:
            for _ in range(count):
                library.retain()
                profiler = partial(_make_graph, plan, signature, library, weights, resources)
                maker, release = partial(make, executor), library.release
                sizes = resources, weights.nbytes
                models.append(Model(plan.name, signature, maker, profiler, release, instances, defaults, *sizes))
        except BaseException:
            library.release()
            for model in models:
                model.close()
            raise
        return tuple(models)
    finally:
        library.release()


def _defaults(plan: Plan, weights: Array) -> dict[str, Array]:
    """What inputs are that the caller does not give: views of the weights.

    Raises:
        IngotError: ARTIFACT_CORRUPT, one is no weight.
    """
    found = {}
    for spec in plan.inputs:
        if not spec.is_optional:
            continue
        try:
            buffer = plan.buffers[spec.default]
            shape, offset = [static(d) for d in buffer.shape], static(buffer.offset)
            if buffer.storage is not Storage.WEIGHT:
                raise ValueError(f"its default lies in {buffer.storage}")
            found[spec.name] = np.ndarray(shape, array_dtype(spec.dtype), weights.data, offset)
        except (IndexError, ValueError, TypeError) as error:
            raise IngotError(
                ErrorCode.ARTIFACT_CORRUPT,
                f"the default of an input cannot be read: {error}",
                tensor=spec.name,
                remedy="Compile the model again.",
            ) from error
    return found


def _make_executor(
    plan: Plan,
    signature: CallSignature,
    library: Library,
    weights: Array,
    resources: Resources,
    kind: ExecutorKind,
) -> Executor:
    if kind == "graph" or any(isinstance(step, Call) for step in walk_steps(plan.steps)):
        return _make_graph(plan, signature, library, weights, resources)
    return AotExecutor(signature, _make_handle(library, weights, resources), resources)


def _make_graph(
    plan: Plan, signature: CallSignature, library: Library, weights: Array, resources: Resources
) -> GraphExecutor:
    return GraphExecutor(plan, signature, _make_handle(library, weights, resources), weights, resources)


def _make_handle(library: Library, weights: Array, resources: Resources) -> Handle:
    return Handle(library, address_of(weights) if weights.nbytes else 0, weights.nbytes, resources)


def map_weights(weights: bytes | memoryview | Path) -> Array:
    """Bytes at an aligned address: a shared read-only mapping of a file, or the memory itself where it is aligned."""
    if isinstance(weights, Path):
        weights = map_file(weights)
    array = np.frombuffer(weights, np.uint8)
    if address_of(array) % ALIGNMENT_BYTES == 0 or not array.nbytes:
        return array
    return aligned_copy(array, ALIGNMENT_BYTES)


def _check_plan(artifact: Loadable, library: Library) -> None:
    """The plan, the manifest and the code must be parts of one artifact; every call must be one that this runtime has.

    NOTE: a library that was built before it said which plan it is of is taken at its signer's word for what its kernels touch.
    """
    plan, functions = artifact.plan, library.functions
    said = library.plan_digest
    pairs = (
        ("ABI version", artifact.manifest.abi_version, functions.ingot_abi_version()),
        ("kernels", tuple(k.name for k in plan.kernels), library.kernel_names),
        ("inputs", tuple(ONNX_DTYPES[t.memory_dtype] for t in plan.inputs), library.input_dtypes),
        ("outputs", tuple(ONNX_DTYPES[t.memory_dtype] for t in plan.outputs), library.output_dtypes),
        ("weights", plan.weights_size, functions.ingot_weights_size()),
        ("the plan's digest", artifact.plan_digest if said else "", said),
    )
    for what, expected, received in pairs:
        if expected != received:
            raise IngotError(
                ErrorCode.ARTIFACT_CORRUPT,
                f"the library of model {plan.name!r} does not belong to its plan: {what} differ",
                expected=str(expected)[:200],
                received=str(received)[:200],
                remedy="Compile the model again.",
            )
    for step in walk_steps(plan.steps):
        if isinstance(step, Call):
            check_call(step)
