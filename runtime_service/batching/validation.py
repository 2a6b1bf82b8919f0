"""Checks of a request against the signature of a model; every refusal names tensor, expected and received."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from runtime_service.arrays import Array
from runtime_service.batching.datatypes import wire_name
from runtime_service.batching.messages import InferRequest, OutputRequest, TensorData
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr import Var
from shared_ir.expr.dim import Dim, dims_text
from shared_ir.plan.program import TensorSpec
from shared_ir.printable import some_of

_LONGEST_KEY = 1024


def split_key(request: InferRequest) -> str:
    """By which ``request`` takes part in a split by weight: the parameter ``split_key``, that of its head, or the sequence it belongs
    to, which stays with one version; empty where it has none.

    Raises:
        IngotError: INVALID_ARGUMENT, it is no text and no number, or too long.
    """
    value = request.parameters.get("split_key", request.split_key)
    is_number = isinstance(value, int) and not isinstance(value, bool) and value.bit_length() <= 64
    if not is_number and not (isinstance(value, str) and len(value) <= _LONGEST_KEY):
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            "the key by which a request is sent to a version is malformed",
            field="split_key",
            expected=f"a text of at most {_LONGEST_KEY} characters or a whole number of 64 bits",
            received=value[:40] if isinstance(value, str) else type(value).__name__,
        )
    sequence = request.parameters.get("sequence_id")
    return str(value) or (f"{request.peer} {str(sequence)[:_LONGEST_KEY]}" if sequence else "")


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


def check_inputs(
    inputs: Sequence[TensorData], specs: Sequence[TensorSpec], kept: Collection[str] = ()
) -> dict[str, Array]:
    """The arrays of ``inputs`` by name, in the order of ``specs``; an optional input, and one of ``kept``, may be missing.

    Raises:
        IngotError: INVALID_ARGUMENT, an input is missing, unknown, given twice, or of the wrong dtype or shape.
    """
    given: dict[str, TensorData] = {}
    for tensor in inputs:
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


_AS_IT_IS = OutputRequest("")
"""Of outputs that nobody named."""


def check_outputs(
    wanted: Sequence[OutputRequest], specs: Sequence[TensorSpec]
) -> tuple[tuple[OutputRequest, TensorSpec], ...]:
    """The wanted outputs in the order asked for; all of them, as they are, when none is named.

    Raises:
        IngotError: INVALID_ARGUMENT, the model has no such output, or it is named twice.
    """
    if not wanted:
        return tuple((_AS_IT_IS, spec) for spec in specs)
    by_name = {spec.name: spec for spec in specs}
    named: set[str] = set()
    for asked in wanted:
        if asked.name not in by_name:
            raise _unknown("output", asked.name, list(by_name))
        if asked.name in named:
            raise IngotError(ErrorCode.INVALID_ARGUMENT, "an output is requested twice", tensor=asked.name)
        named.add(asked.name)
    return tuple((asked, by_name[asked.name]) for asked in wanted)


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
        expected="one of " + some_of(list(map(repr, names))),
        received=repr(name),
    )
