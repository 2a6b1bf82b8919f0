"""Answers that both protocols give in the same words, as JSON values.

REST sends them as they are; gRPC parses them into the messages of the same field names. Formats: Open Inference
Protocol v2 and Triton's ``extension_model_configuration.md``, ``extension_statistics.md``,
``extension_model_repository.md``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from runtime_service.batching.datatypes import wire_name
from runtime_service.batching.execution import BatchOptions
from runtime_service.batching.statistics import BatchStatistics, Duration
from runtime_service.batching.validation import wire_shape
from runtime_service.dataplane import ModelConfig, ModelMetadata, ModelStatistics, ServerMetadata
from runtime_service.extensions.shared_memory import SharedRegion
from runtime_service.models.registry import VersionStatus
from runtime_service.policies import SequenceOptions
from shared_ir.dtype import DType
from shared_ir.plan.program import TensorSpec
from shared_ir.service_kit.status import cleaned

Json = dict[str, Any]


def server_metadata(metadata: ServerMetadata) -> Json:
    return {"name": metadata.name, "version": metadata.version, "extensions": list(metadata.extensions)}


def model_metadata(metadata: ModelMetadata) -> Json:
    return {
        "name": metadata.name,
        "versions": [str(version) for version in metadata.versions],
        "platform": metadata.platform,
        "inputs": [_tensor(spec) for spec in metadata.signature.inputs],
        "outputs": [_tensor(spec) for spec in metadata.signature.outputs],
    }


def model_config(config: ModelConfig) -> Json:
    """Triton's model configuration; its ``dims`` leave out the batch axis when ``max_batch_size`` > 0."""
    skip = 1 if config.options.max_batch_size else 0
    document: Json = {
        "name": config.name,
        "platform": config.platform,
        "backend": config.platform,
        "max_batch_size": config.options.max_batch_size,
        "input": [_config_tensor(spec, skip) for spec in config.signature.inputs],
        "output": [_config_tensor(spec, skip) for spec in config.signature.outputs],
        "instance_group": [{"name": f"{config.name}_0", "kind": "KIND_CPU", "count": config.instances}],
        "parameters": {"version_policy": {"string_value": config.policy}},
        "model_transaction_policy": {"decoupled": False},
    }
    if config.options.max_batch_size:
        document["dynamic_batching"] = _batching(config.options)
    if config.sequences is not None:
        document["sequence_batching"] = _sequences(config.sequences, config.signature.inputs)
    return document


def _sequences(options: SequenceOptions, inputs: Sequence[TensorSpec]) -> Json:
    state = [
        {"input_name": spec.name, "output_name": options.state[spec.name], **_config_tensor(spec, 0)}
        for spec in inputs
        if spec.name in options.state
    ]
    for item in state:
        del item["name"]
    return {"max_sequence_idle_microseconds": round(options.idle_seconds * 1e6), "state": state}


def _batching(options: BatchOptions) -> Json:
    return {
        "preferred_batch_size": list(options.preferred_batch_sizes),
        "max_queue_delay_microseconds": round(options.max_queue_delay * 1e6),
        "priority_levels": options.priority_levels,
        "default_priority_level": options.default_priority_level,
        "default_queue_policy": {"max_queue_size": options.max_queue_size},
    }


def model_statistics(statistics: ModelStatistics) -> Json:
    snapshot = statistics.snapshot
    nothing = _duration(Duration())
    return {
        "name": statistics.name,
        "version": str(statistics.version),
        "last_inference": snapshot.last_inference,
        "inference_count": snapshot.inference_count,
        "execution_count": snapshot.execution_count,
        "inference_stats": {
            "success": _duration(snapshot.success),
            "fail": _duration(snapshot.fail),
            "queue": _duration(snapshot.queue),
            **_compute(snapshot.requests),
            "cache_hit": nothing,
            "cache_miss": nothing,
        },
        "batch_stats": [{"batch_size": rows, **_compute(batch)} for rows, batch in snapshot.batches.items()],
    }


def version_status(status: VersionStatus) -> Json:
    attempts = f"attempt {status.attempts}: " if status.attempts else ""
    return {
        "name": status.name,
        "version": str(status.version) if status.version else "",
        "state": status.state.value,
        "reason": attempts + cleaned(status.reason) if status.reason else "",
    }


def region(found: SharedRegion) -> Json:
    return {"name": found.name, "key": found.key, "offset": found.offset, "byte_size": found.byte_size}


def _tensor(spec: TensorSpec) -> Json:
    return {"name": spec.name, "datatype": wire_name(spec.dtype), "shape": wire_shape(spec.shape)}


def _config_tensor(spec: TensorSpec, skip: int) -> Json:
    name = "STRING" if spec.dtype is DType.STRING else wire_name(spec.dtype)
    found: Json = {"name": spec.name, "data_type": f"TYPE_{name}", "dims": wire_shape(spec.shape)[skip:]}
    return found | {"optional": True} if spec.is_optional else found


def _duration(duration: Duration) -> Json:
    return {"count": duration.count, "ns": duration.nanoseconds}


def _compute(batch: BatchStatistics) -> Json:
    return {
        "compute_input": _duration(batch.compute_input),
        "compute_infer": _duration(batch.compute_infer),
        "compute_output": _duration(batch.compute_output),
    }
