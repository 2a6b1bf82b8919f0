"""How single models are served: what the file with settings per model says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runtime_service.policies import SequenceOptions, VersionPolicy
from shared_ir.artifact.published import is_model_name
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.foreign_json import parse_foreign
from shared_ir.numerals import whole_number
from shared_ir.service_kit.settings import MOST_BYTES, MOST_SECONDS, MOST_THINGS, MOST_THREADS, out_of_range

PRESETS = ("latency", "throughput")
"""What a model is served for: one execution at a time on all cores, or as many as there are cores, each on one."""
EVERY_MODEL = "*"
"""As a configured name: every model of the store that the policy finds a version of."""


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """How one model is served. Empty fields take the server's defaults."""

    name: str
    policy: VersionPolicy
    preset: str = ""
    max_batch_size: int | None = None
    max_queue_delay_microseconds: int | None = None
    max_queue_size: int | None = None
    instances: int | None = None
    run_memory_bytes: int | None = None
    kept_memory_bytes: int | None = None
    preferred_batch_sizes: tuple[int, ...] = ()
    """Rows for which an execution does not wait for the delay, ascending."""
    priority_levels: int = 0
    """Requests have priorities from 1, which goes before all others, to this; 0: they have none."""
    default_priority_level: int = 0
    """Of requests that name none; needed where there are levels."""
    sequence: SequenceOptions | None = None
    """The state that the model keeps between requests of a sequence, if it does."""
    independent_rows: bool = False
    """The operator's word that no row of the model sees another, where the compiler has not proven it: requests of different
    clients are merged."""
    warmup: Mapping[str, int] = field(default_factory=dict)
    """Sizes of symbolic dims for the first run, such as ``{"height": 48, "width": 192}``."""


MOST_LEVELS = 100
MOST_QUEUE_DELAY = 10**6 * 3600
"""Microseconds: no client waits for an hour, and more was meant in another unit."""
_LIMITS = {
    "max_batch_size": (0, MOST_THINGS),
    "max_queue_delay_microseconds": (0, MOST_QUEUE_DELAY),
    "max_queue_size": (1, MOST_THINGS),
    "instances": (0, MOST_THREADS),
    "run_memory_bytes": (0, MOST_BYTES),
    "kept_memory_bytes": (0, MOST_BYTES),
    "priority_levels": (0, MOST_LEVELS),
    "default_priority_level": (0, MOST_LEVELS),
}
"""What the numbers of :class:`ModelSettings` are at least and at most. Of instances, 0 are as many as the server's."""


def read_models_file(path: Path) -> dict[str, ModelSettings]:
    try:
        data = _object(parse_foreign(path.read_text(), _once), str(path))
        return {name: _model(name, _object(fields, f"{path}: {name}"), path) for name, fields in data.items()}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            f"cannot use the models file: {error}",
            field=str(path),
            expected='{"name": {"policy": "stable", "max_batch_size": 16}}',
        ) from error


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON; raises ValueError: a name stands in it twice, and one of the two would not count."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)[:100]!r} stands twice in one object")
    return found


def _object(value: object, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise out_of_range(where, "an object of JSON", str(value)[:40])
    return value


def _model(name: str, given: dict[str, Any], path: Path) -> ModelSettings:
    require_model(name, str(path))
    where = f"{path}: {name}"
    policy = VersionPolicy.parse(str(given.pop("policy", "stable")), f"{where}: policy")
    sizes = _object(given.pop("warmup", {}), f"{where}: warmup")
    warmup = {
        str(symbol): _number(extent, (0, MOST_THINGS), f"{where}: warmup: {symbol}") for symbol, extent in sizes.items()
    }
    independent = given.pop("independent_rows", False)
    if not isinstance(independent, bool):
        raise out_of_range(f"{where}: independent_rows", "true or false", str(independent))
    preset = given.pop("preset", "")
    if preset not in ("", *PRESETS):
        raise out_of_range(f"{where}: preset", " or ".join(PRESETS), repr(preset)[:40])
    sequence = given.pop("sequence", None)
    preferred = _sizes(given.pop("preferred_batch_sizes", []), f"{where}: preferred_batch_sizes")
    odd = next((key for key in given if key not in _LIMITS), None)
    if odd is not None:
        known = ", ".join(
            ("policy", "preset", "warmup", "independent_rows", "preferred_batch_sizes", "sequence", *_LIMITS)
        )
        raise out_of_range(f"{where}: {odd}", f"one of {known}", odd)
    numbers = {key: _number(value, _LIMITS[key], f"{where}: {key}") for key, value in given.items()}
    levels, usual = numbers.get("priority_levels", 0), numbers.get("default_priority_level", 0)
    if bool(levels) != bool(usual) or usual > levels:
        raise out_of_range(
            f"{where}: default_priority_level",
            f"1 to {levels}" if levels else "none without priority_levels",
            str(usual),
        )
    return ModelSettings(
        name,
        policy,
        preset,
        warmup=warmup,
        independent_rows=independent,
        preferred_batch_sizes=preferred,
        sequence=None if sequence is None else _sequence(sequence, f"{where}: sequence"),
        **numbers,
    )


_SEQUENCE_LIMITS = {"most": (1, MOST_THINGS), "idle_seconds": (1, MOST_SECONDS), "most_bytes": (1, MOST_BYTES)}


def _sequence(given: object, where: str) -> SequenceOptions:
    fields = dict(given) if isinstance(given, dict) else {}
    state, sizes = fields.pop("state", None), fields.pop("sizes", {})
    if not isinstance(state, dict) or not state or not all(isinstance(name, str) for name in state.values()):
        raise out_of_range(f"{where}: state", '{"INPUT": "OUTPUT"}', str(state)[:40])
    if not isinstance(sizes, dict):
        raise out_of_range(f"{where}: sizes", '{"SYMBOL": 1}', str(sizes)[:40])
    odd = next((key for key in fields if key not in _SEQUENCE_LIMITS), None)
    if odd is not None:
        raise out_of_range(f"{where}: {odd}", f"one of state, sizes, {', '.join(_SEQUENCE_LIMITS)}", odd)
    numbers = {key: _number(value, _SEQUENCE_LIMITS[key], f"{where}: {key}") for key, value in fields.items()}
    known = {name: _number(extent, (0, MOST_THINGS), f"{where}: sizes: {name}") for name, extent in sizes.items()}
    return SequenceOptions(state, known, **numbers)


def _sizes(value: object, where: str) -> tuple[int, ...]:
    """Different numbers of rows, ascending."""
    if not isinstance(value, list):
        raise out_of_range(where, "a list of numbers of rows", str(value)[:40])
    return tuple(sorted({_number(size, (1, MOST_THINGS), where) for size in value}))


def require_model(name: str, where: str) -> None:
    """Raises IngotError INVALID_ARGUMENT, naming ``where`` it stands: no model can have this name, and it would be waited for in vain."""
    if name != EVERY_MODEL and not is_model_name(name):
        raise out_of_range(where, "names of models, or * for every one", repr(name)[:100])


def _number(value: object, limits: tuple[int, int], where: str) -> int:
    """``value``, which may be written as text."""
    number = whole_number(value) if isinstance(value, str) else value
    least, most = limits
    if not isinstance(number, int) or isinstance(number, bool) or not least <= number <= most:
        raise out_of_range(where, f"a whole number from {least} to {most}", str(value)[:40])
    return number
