"""Constants of the graph IR as text: small arrays literally, large ones by digest."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping

import numpy as np

from shared_ir.arrays import storage_dtype
from shared_ir.dtype import DType
from shared_ir.expr.dim import Dim
from shared_ir.graph.ir import Graph, Value, walk_graphs
from shared_ir.types import TensorType

LITERAL_ELEMENTS = 16
"""Arrays of at most this many elements are printed in full."""

_NAN_TEXT = "nan"


def array_digest(array: np.ndarray) -> str:
    """``sha256:<hex>`` of the elements in C order, little-endian (strings: of their JSON list)."""
    if array.dtype.kind in "OUS":
        data = json.dumps([_text(s) for s in array.ravel()]).encode()
    else:
        little = array.astype(array.dtype.newbyteorder("<"), copy=False) if array.dtype.byteorder == ">" else array
        data = np.ascontiguousarray(little).reshape(-1).view(np.uint8).tobytes()
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def large_constants(graph: Graph) -> dict[str, np.ndarray]:
    """Digest -> array for every constant of ``graph`` and its nested graphs that is not printed literally."""
    return large_arrays(a for g in walk_graphs(graph) for a in g.constants.values())


def large_arrays(arrays: Iterable[np.ndarray]) -> dict[str, np.ndarray]:
    """Digest -> array for those of ``arrays`` that are not printed literally."""
    return {array_digest(a): a for a in arrays if not is_literal(a)}


def typed(name: str, array: np.ndarray) -> Value:
    """A value of the type of ``array``."""
    return Value(name, TensorType(DType.of(array), array.shape))


def is_literal(array: np.ndarray) -> bool:
    """Whether the array is small and its text gives back every bit."""
    if array.size > LITERAL_ELEMENTS or DType.of(array).value not in _LITERAL_TYPES:
        return False
    if array.dtype.kind != "f":
        return True
    plain_nan = np.array(math.nan, array.dtype).tobytes()
    return all(x.tobytes() == plain_nan for x in array.ravel() if x != x)


_LITERAL_TYPES = frozenset(
    t.value
    for t in DType
    if (t.is_integer and t.bits >= 8) or t.value in ("bool", "float16", "float32", "float64", "string")
)


def print_array(array: np.ndarray) -> str:
    """``[1.0, 2.5]`` or ``sha256:...``; the shape is told by the type beside it."""
    if not is_literal(array):
        return array_digest(array)
    return f"[{', '.join(_element(x) for x in array.ravel())}]"


def _element(x: object) -> str:
    match x:
        case np.bool_():
            return "true" if x else "false"
        case np.floating():
            return _NAN_TEXT if x != x else str(x)
        case np.integer():
            return str(int(x))
    return json.dumps(_text(x))


def _text(x: object) -> str:
    return x.decode("utf-8", "surrogateescape") if isinstance(x, bytes) else str(x)


def literal_array(elements: list[object], type: TensorType) -> np.ndarray:
    """The array that :func:`print_array` printed.

    Raises:
        ValueError: the elements do not fit the type.
    """
    shape = static_shape(type)
    if len(elements) != math.prod(shape):
        raise ValueError(f"{type} has {math.prod(shape)} elements, {len(elements)} are given")
    if any(not isinstance(e, _wanted(type.dtype)) for e in elements):
        raise ValueError(f"the elements do not fit {type.dtype}")
    try:
        return np.array(elements, dtype=type.dtype.numpy).reshape(shape)
    except (OverflowError, TypeError) as error:
        raise ValueError(f"the elements do not fit {type.dtype}: {error}") from error


def _wanted(dtype: DType) -> tuple[type[object], ...]:
    if dtype is DType.STRING:
        return (str,)
    return (bool, int, float) if dtype.is_float else (bool, int)


def stored_array(digest: str, type: TensorType, constants: Mapping[str, np.ndarray]) -> np.ndarray:
    """The large array with ``digest``.

    Raises:
        ValueError: it is not among ``constants``, or has another element type or shape than ``type``.
    """
    array = constants.get(digest)
    if array is None:
        raise ValueError(f"no array is given for {digest}")
    shape = static_shape(type)
    array = _of_equal_bytes(array, digest, type.dtype)
    if array.size != math.prod(shape) or DType.of(array) is not type.dtype:
        raise ValueError(f"the array for {digest} is {DType.of(array)}{list(array.shape)}, not {type}")
    return array.reshape(shape)


def _of_equal_bytes(array: np.ndarray, digest: str, dtype: DType) -> np.ndarray:
    """``array``, as elements of ``dtype`` where it is of another type: arrays of equal bytes, such as zeros, have one digest, under
    which one of them is given."""
    given = DType.of(array)
    if given is dtype or DType.STRING in (given, dtype) or array_digest(array) != digest:
        return array
    stored = storage_dtype(dtype)
    return np.ascontiguousarray(array).reshape(-1).view(stored) if array.nbytes % stored.itemsize == 0 else array


def static_shape(type: TensorType) -> tuple[int, ...]:
    shape: tuple[Dim, ...] = type.shape
    if not all(isinstance(d, int) and d >= 0 for d in shape):
        raise ValueError(f"a constant has a static shape, not {type}")
    return tuple(d for d in shape if isinstance(d, int))
