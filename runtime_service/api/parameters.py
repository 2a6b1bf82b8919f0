"""What the ``parameters`` of requests and tensors ask for, in the same words over both protocols."""

from __future__ import annotations

from collections.abc import Mapping

from runtime_service.batching.messages import OutputRequest, Parameter, RegionSlice
from shared_ir.errors import ErrorCode, IngotError

_CLASSES = "classification"
_REGION, _SIZE, _OFFSET = "shared_memory_region", "shared_memory_byte_size", "shared_memory_offset"
_MOST = 1 << 62


def check_request(parameters: Mapping[str, object]) -> None:
    """Refuse what would be silently ignored otherwise. What asks for nothing (0, false, empty) is let through: clients send it as default.

    Raises:
        IngotError: INVALID_ARGUMENT.
    """
    if not parameters:
        return
    _refuse(parameters, {_CLASSES: "Ask for it at an output.", _REGION: "Name it at inputs and outputs."}, "")


def place_of_input(parameters: Mapping[str, Parameter], tensor: str) -> RegionSlice | None:
    """Where the tensor lies in shared memory, if it does.

    Raises:
        IngotError: INVALID_ARGUMENT.
    """
    if not parameters:
        return None
    _refuse(parameters, {_CLASSES: "Ask for it at an output."}, tensor)
    return _place(parameters, tensor)


def output_request(name: str, parameters: Mapping[str, Parameter]) -> OutputRequest:
    """Raises IngotError INVALID_ARGUMENT."""
    if not parameters:
        return OutputRequest(name)
    place, classes = _place(parameters, name), _count(parameters, _CLASSES, name)
    if place is not None and classes:
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            "an output is either classified or written to shared memory",
            tensor=name,
            field=_CLASSES,
            remedy="Leave one of the two parameters out.",
        )
    return OutputRequest(name, classes, place)


def place_parameters(place: RegionSlice) -> dict[str, str | int]:
    """What an answer says of an output that lies in shared memory."""
    found: dict[str, str | int] = {_REGION: place.region, _SIZE: place.byte_size}
    return found | {_OFFSET: place.offset} if place.offset else found


def _place(parameters: Mapping[str, Parameter], tensor: str) -> RegionSlice | None:
    region = parameters.get(_REGION, "")
    if not isinstance(region, str):
        raise _malformed(_REGION, tensor, "the name of a region that is registered", region)
    if not region:
        _refuse(parameters, dict.fromkeys((_SIZE, _OFFSET), f"Name the region too, as {_REGION!r}."), tensor)
        return None
    if _SIZE not in parameters:
        raise _malformed(_SIZE, tensor, "the bytes of the tensor, beside the name of the region", "nothing")
    return RegionSlice(region, _count(parameters, _SIZE, tensor), _count(parameters, _OFFSET, tensor))


def _count(parameters: Mapping[str, Parameter], name: str, tensor: str) -> int:
    value = parameters.get(name, 0)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < _MOST:
        raise _malformed(name, tensor, "a whole number >= 0", value)
    return value


def _malformed(name: str, tensor: str, expected: str, received: object) -> IngotError:
    return IngotError(
        ErrorCode.INVALID_ARGUMENT,
        f"the parameter {name!r} is missing or malformed",
        tensor=tensor,
        field=name,
        expected=expected,
        received=repr(received)[:100],
    )


def _refuse(parameters: Mapping[str, object], names: Mapping[str, str], tensor: str) -> None:
    for name, remedy in names.items():
        if parameters.get(name):
            raise IngotError(
                ErrorCode.INVALID_ARGUMENT,
                f"the request parameter {name!r} has no meaning here",
                tensor=tensor,
                field=name,
                remedy=remedy,
            )
