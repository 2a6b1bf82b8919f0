"""From a version in the store to a warm :class:`ServedModel`."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from runtime_service.batching.execution import BatchOptions
from runtime_service.batching.rows import batch_symbol
from runtime_service.batching.sequences import Sequences
from runtime_service.executors.resources import Resources
from runtime_service.metrics import Metrics
from runtime_service.model_settings import ModelSettings
from runtime_service.models.served import Interface, LoadedModel, ServedModel
from runtime_service.models.source import VersionSource
from runtime_service.models.thread_budget import ThreadBudget
from runtime_service.models.warmup import rows_mix, warm_up
from runtime_service.settings import RuntimeSettings
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.machine.cores import usable_cores
from shared_ir.plan.program import TensorSpec
from shared_ir.types import ValueKind

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class ModelLoader:
    """Loads, warms up and wraps versions, with the settings of the server as defaults."""

    source: VersionSource
    settings: RuntimeSettings
    metrics: Metrics

    @cached_property
    def _budget(self) -> ThreadBudget:
        return ThreadBudget(self.settings.kept_threads)

    def load(self, model: ModelSettings, version: int) -> ServedModel:
        """A version that is ready to serve.

        Raises:
            IngotError: the store or the artifact is at fault; nothing stays loaded.
        """
        cores = self.settings.cores or usable_cores()
        wanted = {"latency": 1, "throughput": cores}[model.preset or self.settings.preset]
        count = model.instances or (0 if model.preset else self.settings.instances) or wanted
        threads = threads_per_instance(cores, count)
        memory = _first(model.run_memory_bytes, self.settings.run_memory_bytes)
        resources = Resources(threads, memory, _first(model.kept_memory_bytes, self.settings.kept_memory_bytes))
        instances = self.source.load(model.name, version, count, resources)
        try:
            signature, options = self._prepare(model, version, instances)
            options = replace(options, resources=resources)
            kept = model.sequence
            sequences = None if kept is None else Sequences(kept, signature.inputs, signature.outputs)
        except BaseException:
            for instance in instances:
                instance.close()
            raise
        observer = self.metrics.observer(model.name, version, instances[0].weights_bytes)
        return ServedModel(model.name, version, signature, instances, options, observer, sequences, self._budget)

    def _prepare(
        self, model: ModelSettings, version: int, instances: Sequence[LoadedModel]
    ) -> tuple[Interface, BatchOptions]:
        inputs, outputs = tuple(instances[0].inputs), tuple(instances[0].outputs)
        _check_interface(model.name, (*inputs, *outputs))
        options = self._options(model)
        batch = batch_symbol(inputs, outputs)
        for instance in instances:
            if not warm_up(instance, inputs, model.warmup, batch):
                _LOG.warning(
                    "%s version %d refuses every synthetic input: not warmed up; give its sizes in `warmup`",
                    model.name,
                    version,
                )
        if batch is not None and options.max_batch_size and not _mergeable(model, instances[0], batch):
            _LOG.info(
                "%s version %d: its rows are not proven to be independent, requests are not merged", model.name, version
            )
            batch = None
        if batch is None or options.max_batch_size == 0:
            return Interface(inputs, outputs), replace(
                options, max_batch_size=0, max_queue_delay=0.0, preferred_batch_sizes=()
            )
        return Interface(inputs, outputs, batch), options

    def _options(self, model: ModelSettings) -> BatchOptions:
        return BatchOptions(
            _first(model.max_batch_size, self.settings.max_batch_size),
            _first(model.max_queue_delay_microseconds, self.settings.max_queue_delay_microseconds) / 1e6,
            _first(model.max_queue_size, self.settings.max_queue_size),
            preferred_batch_sizes=model.preferred_batch_sizes,
            priority_levels=model.priority_levels,
            default_priority_level=model.default_priority_level,
        )


def threads_per_instance(cores: int, instances: int) -> int:
    """Threads of each instance, so that instances x threads <= cores (but at least one each)."""
    return max(1, cores // instances)


def _check_interface(name: str, specs: Sequence[TensorSpec]) -> None:
    odd = next((s for s in specs if s.kind is not ValueKind.TENSOR), None)
    if odd is not None:
        raise IngotError(
            ErrorCode.UNSUPPORTED_DTYPE,
            f"model {name!r} cannot be served: the Open Inference Protocol has tensors alone",
            tensor=odd.name,
            expected="a tensor",
            received=str(odd.kind),
            remedy="Export the model with tensors as inputs and outputs (skl2onnx: options={'zipmap': False}), or load it in a "
            "process of your own (ingot.load).",
        )


def _mergeable(model: ModelSettings, instance: LoadedModel, batch: str) -> bool:
    """Whether rows are proven to be independent, or the operator says so, and two of them do not show otherwise."""
    said = instance.batch == batch or model.independent_rows
    return said and not rows_mix(instance, tuple(instance.inputs), model.warmup, batch)


def _first(value: int | None, default: int) -> int:
    return default if value is None else value
