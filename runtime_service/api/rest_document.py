"""The JSON part of an inference request: everything but the bytes behind it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from runtime_service.api.parameters import check_request, output_request, place_of_input
from runtime_service.batching.datatypes import parse_datatype
from runtime_service.batching.messages import OutputRequest, Parameter, RegionSlice
from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.service_kit.http.message import parse_json

_JSON_KINDS: dict[type[Any], str] = {dict: "an object", list: "an array", str: "a string"}
_NOTHING = object()
_MOST_KNOWN, _MOST_KNOWN_BYTES = 256, 1024


@dataclass(frozen=True, slots=True)
class BinaryOutputs:
    """Which outputs the client wants as bytes: all or none, but for the exceptions by name."""

    default: bool = False
    by_name: Mapping[str, bool] | None = None

    def wants(self, name: str) -> bool:
        return (self.by_name or {}).get(name, self.default)


@dataclass(frozen=True, slots=True)
class Input:
    """What is said of an input. It lies in shared memory at ``place``, or is ``size`` bytes of those behind the JSON, or is ``values``."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    place: RegionSlice | None = None
    size: Any = None
    values: Any = _NOTHING

    @property
    def has_values(self) -> bool:
        return self.values is not _NOTHING


@dataclass(frozen=True, slots=True)
class Document:
    """A request as its JSON says it."""

    id: str
    inputs: tuple[Input, ...]
    outputs: tuple[OutputRequest, ...]
    binary: BinaryOutputs
    parameters: Mapping[str, Parameter]


class Documents:
    """Remembers documents without values: clients that send tensors as bytes say the same over and over."""

    def __init__(self) -> None:
        self._known: dict[bytes, Document] = {}

    def known(self, text: memoryview) -> Document | None:
        """What ``text`` said the last time."""
        return self._known.get(bytes(text)) if len(text) <= _MOST_KNOWN_BYTES else None

    def read(self, text: memoryview) -> Document:
        """What ``text`` says. Raises as :func:`read_document`."""
        found = read_document(text)
        if len(text) <= _MOST_KNOWN_BYTES and not any(each.has_values for each in found.inputs):
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[bytes(text)] = found
        return found


def read_document(text: memoryview) -> Document:
    """Raises IngotError INVALID_ARGUMENT naming the tensor or field."""
    document = _expect(parse_json(text), dict, "body")
    parameters = _parameters(document)
    check_request(parameters)
    inputs = tuple(_input(_expect(item, dict, "inputs")) for item in _expect(document.get("inputs"), list, "inputs"))
    outputs, binary = _outputs(document, bool(parameters.get("binary_data_output", False)))
    return Document(_expect(document.get("id", ""), str, "id"), inputs, outputs, binary, parameters)


def _input(item: dict[str, Any]) -> Input:
    name = _expect(item.get("name"), str, "inputs.name")
    parameters = _parameters(item, name)
    place = place_of_input(parameters, name)
    dtype = parse_datatype(_expect(item.get("datatype"), str, "inputs.datatype", name), name)
    shape = _shape(item.get("shape"), name)
    size, has_data = parameters.get("binary_data_size"), "data" in item
    if place is not None and (has_data or size is not None):
        raise _contradiction("an input has data although it lies in shared memory", name)
    if size is not None and has_data:
        raise _contradiction("an input has JSON and binary data", name)
    if place is None and size is None and not has_data:
        raise _contradiction("an input has no data", name)
    return Input(name, dtype, shape, place, size, item.get("data", _NOTHING))


def _contradiction(message: str, name: str) -> IngotError:
    return IngotError(ErrorCode.INVALID_ARGUMENT, message, tensor=name, field="data")


def _outputs(document: dict[str, Any], default: bool) -> tuple[tuple[OutputRequest, ...], BinaryOutputs]:
    found: list[OutputRequest] = []
    binary: dict[str, bool] = {}
    for item in _expect(document.get("outputs", []), list, "outputs"):
        name = _expect(_expect(item, dict, "outputs").get("name"), str, "outputs.name")
        parameters = _parameters(item, name)
        found.append(output_request(name, parameters))
        if "binary_data" in parameters:
            binary[name] = bool(parameters["binary_data"])
    return tuple(found), BinaryOutputs(default, binary)


def _parameters(item: dict[str, Any], tensor: str = "") -> dict[str, Parameter]:
    parameters = _expect(item.get("parameters", {}), dict, "parameters", tensor)
    for name, value in parameters.items():
        if not isinstance(value, bool | int | float | str | None):
            raise IngotError(
                ErrorCode.INVALID_ARGUMENT,
                "a parameter is of the wrong kind",
                tensor=tensor,
                field=name[:100],
                expected="a truth value, a number or a string",
                received=_JSON_KINDS[type(value)],
            )
    return {name: value for name, value in parameters.items() if value is not None}


def _shape(value: object, tensor: str) -> tuple[int, ...]:
    extents = _expect(value, list, "shape", tensor)
    if not all(type(extent) is int and 0 <= extent < 2**63 for extent in extents):
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            "a shape is malformed",
            tensor=tensor,
            field="shape",
            expected="a list of integers >= 0",
            received=repr(extents)[:100],
        )
    return tuple(extents)


def _expect(value: Any, kind: type[Any], field: str, tensor: str = "") -> Any:
    """``value``, which must be of this JSON kind."""
    if not isinstance(value, kind):
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            "a field of the request is missing or of the wrong kind",
            tensor=tensor,
            field=field,
            expected=_JSON_KINDS[kind],
            received="nothing" if value is None else type(value).__name__,
        )
    return value
