"""Checks of a request against the signature of a model; every refusal names tensor, expected and received."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from runtime_service.arrays import Array
from runtime_service.batching.datatypes import wire_name
from runtime_service.batching.messages import InferRequest, TensorData
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr import Var
from shared_ir.expr.dim import Dim, dims_text
from shared_ir.plan.program import TensorSpec

UNSUPPORTED_PARAMETERS = {
    "classification": "Take the largest values of the output in the client.",
    "shared_memory_region": "Send the tensor in the request.",
}
"""Parameters that change the meaning of a request and that this server does not implement, with the remedy.

Values that ask for nothing (0, false, empty) are let through: clients send them as defaults.
"""


def check_parameters(parameters: dict[str, object], tensor: str = "") -> None:
    """Refuse what would be silently ignored otherwise.

    Raises:
        IngotError: INVALID_ARGUMENT.
    """
    for name, remedy in UNSUPPORTED_PARAMETERS.items():
        if parameters.get(name):
            raise IngotError(
                ErrorCode.INVALID_ARGUMENT,
                f"the request parameter {name!r} is not supported by this server",
                tensor=tensor,
                field=name,
                remedy=remedy,
            )


def priority_of(request: InferRequest) -> int:
    """The priority that ``request`` asks for; 0 where it names none.

    Raises:
        IngotError: INVALID_ARGUMENT, it is no number.
    """
    value = request.parameters.get("priority", 0)
    if isinstance(value, bool) or not isinstance(value, int):
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            "the priority of a request is no whole number",
            field="priority",
            expected="a whole number",
            received=repr(value)[:40],
        )
    return value


def check_inputs(request: InferRequest, specs: Sequence[TensorSpec], kept: Collection[str] = ()) -> dict[str, Array]:
    """The arrays of ``request`` by name, in the order of ``specs``; an optional input, and one of ``kept``, may be missing.

    Raises:
        IngotError: INVALID_ARGUMENT, an input is missing, unknown, given twice, or of the wrong dtype or shape.
    """
    given: dict[str, TensorData] = {}
    for tensor in request.inputs:
        if tensor.name in given:
            raise IngotError(ErrorCode.INVALID_ARGUMENT, "an input is given twice", tensor=tensor.name)
        given[tensor.name] = tensor
    names = [spec.name for spec in specs]
    for name in given:
        if name not in names:
            raise _unknown("input", name, names)
    symbols: dict[str, tuple[int, str]] = {}
    wanted = (s for s in specs if s.name in given or not (s.is_optional or s.name in kept))
    return {spec.name: _check_input(spec, given.get(spec.name), symbols) for spec in wanted}


def _check_input(spec: TensorSpec, tensor: TensorData | None, symbols: dict[str, tuple[int, str]]) -> Array:
    if tensor is None:
        raise _misfit("an input is missing", spec, tensor)
    if tensor.dtype is not spec.dtype:
        raise _misfit("wrong datatype", spec, tensor)
    shape = tensor.array.shape
    if len(shape) != len(spec.shape):
        raise _misfit("wrong rank", spec, tensor)
    for axis, (dim, extent) in enumerate(zip(spec.shape, shape, strict=True)):
        if isinstance(dim, int):
            if dim != extent:
                raise _misfit(f"wrong extent of axis {axis}", spec, tensor)
        elif isinstance(dim, Var):
            _check_symbol(dim.name, extent, spec.name, symbols)
    return tensor.array


def _misfit(message: str, spec: TensorSpec, tensor: TensorData | None) -> IngotError:
    received = "nothing" if tensor is None else f"{wire_name(tensor.dtype)}{list(tensor.array.shape)}"
    return IngotError(
        ErrorCode.INVALID_ARGUMENT, message, tensor=spec.name, expected=signature(spec), received=received
    )


def _check_symbol(symbol: str, extent: int, tensor: str, symbols: dict[str, tuple[int, str]]) -> None:
    bound, where = symbols.setdefault(symbol, (extent, tensor))
    if bound != extent:
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            f"the dimension {symbol!r} has two sizes in one request",
            tensor=tensor,
            expected=f"{symbol} = {bound} as in {where!r}",
            received=f"{symbol} = {extent}",
        )


def check_outputs(wanted: Sequence[str], specs: Sequence[TensorSpec]) -> tuple[TensorSpec, ...]:
    """The specs of the wanted outputs in the order asked for; all of them when none is named.

    Raises:
        IngotError: INVALID_ARGUMENT, the model has no such output, or it is named twice.
    """
    if not wanted:
        return tuple(specs)
    by_name = {spec.name: spec for spec in specs}
    for index, name in enumerate(wanted):
        if name not in by_name:
            raise _unknown("output", name, list(by_name))
        if name in wanted[:index]:
            raise IngotError(ErrorCode.INVALID_ARGUMENT, "an output is requested twice", tensor=name)
    return tuple(by_name[name] for name in wanted)


def signature(spec: TensorSpec) -> str:
    """``FP32[batch, 3, h, w]``."""
    return f"{wire_name(spec.dtype)}[{dims_text(spec.shape)}]"


def wire_shape(shape: Sequence[Dim]) -> list[int]:
    """``shape`` with -1 for everything that is only known at run time."""
    return [dim if isinstance(dim, int) else -1 for dim in shape]


def _unknown(kind: str, name: str, names: list[str]) -> IngotError:
    return IngotError(
        ErrorCode.INVALID_ARGUMENT,
        f"the model has no {kind} of this name",
        tensor=name,
        expected="one of " + ", ".join(map(repr, names)),
        received=repr(name),
    )
