"""Reading a model file: sniffed, sized and outlined before protobuf sees it."""

from __future__ import annotations

import hashlib
import mmap
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError

from compiler_service.compiler.frontend.reading.limits import FrontendLimits, exceeded
from compiler_service.compiler.frontend.reading.slim import without_tensors
from compiler_service.compiler.frontend.reading.text_check import check_text
from compiler_service.compiler.frontend.reading.wire import outline
from shared_ir.digest import source_digest
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.storage.faults import require_file, told
from shared_ir.wire.fields import TruncatedError, WireError
from shared_ir.wire.model_head import Outline

FIRST_IR_VERSION = 3
NEWEST_IR_VERSION: int = int(onnx.IR_VERSION)
FIRST_OPSET = 1
NEWEST_OPSET: int = int(onnx.defs.onnx_opset_version())

Blob = bytes | Path
"""External tensor data: in memory, or a file that the caller vouches for."""

MAGIC_BYTES = 40
"""By which files of other formats are known."""
_EXPORT = "Export the model again and check that the whole file was copied."
_FOREIGN_FORMATS: tuple[tuple[int, bytes, str], ...] = (
    (0, b"PK\x03\x04", "a ZIP archive (PyTorch checkpoint, or a zipped model)"),
    (0, b"\x1f\x8b", "a gzip archive"),
    (0, b"\x89HDF", "an HDF5 file (Keras)"),
    (4, b"TFL3", "a TensorFlow Lite model"),
    (4, b"ORTM", "a model in the internal format of ONNX Runtime"),
    (0, b"\x80\x02", "a Python pickle"),
    (0, b"\x80\x04", "a Python pickle"),
    (0, b"\x80\x05", "a Python pickle"),
    (0, b"version https://git-lfs", "a Git LFS pointer, not the file it points to (run `git lfs pull`)"),
    (0, b"\x7fELF", "an executable"),
    (0, b"GGUF", "a GGUF model"),
    (0, b"\x93NUMPY", "a NumPy array"),
    (0, b"\xff\xd8\xff", "a JPEG image"),
    (0, b"\x89PNG", "a PNG image"),
)


@dataclass(frozen=True)
class ModelSource:
    """A model: a path or its bytes, and its external data as named blobs.

    With a path, external data may also lie in the model's own folder; with bytes it comes from ``blobs`` alone.
    """

    model: bytes | Path
    blobs: Mapping[str, Blob] = field(default_factory=dict)

    @classmethod
    def of(cls, source: ModelSource | bytes | bytearray | memoryview | str | Path) -> ModelSource:
        """Wraps a path (``str`` or ``Path``) or the bytes of a model."""
        if isinstance(source, ModelSource):
            return source
        if isinstance(source, str | Path):
            return cls(Path(source))
        return cls(bytes(source))

    @property
    def folder(self) -> Path | None:
        """Where external data may lie."""
        return self.model.parent if isinstance(self.model, Path) else None

    def read(self, limits: FrontendLimits) -> memoryview:
        """The serialised model; a file is mapped, not read.

        Raises:
            IngotError: NOT_FOUND, or LIMIT_EXCEEDED before anything is read.
        """
        if isinstance(self.model, Path):
            _check_size(_file_size(self.model), limits)
            return _mapped(self.model)
        _check_size(len(self.model), limits)
        return memoryview(self.model)

    def sha256(self) -> str:
        """Hexadecimal digest of the model and its external data, by name; that of the file for a model without.

        Raises:
            IngotError: NOT_FOUND.
        """
        return source_digest(_digest(self.model), {name: _digest(blob) for name, blob in self.blobs.items()})


def _digest(part: bytes | Path) -> str:
    if not isinstance(part, Path):
        return hashlib.sha256(part).hexdigest()
    _file_size(part)
    with told("the model cannot be read", part), part.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _mapped(path: Path) -> memoryview:
    with told("the model cannot be read", path), path.open("rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            return memoryview(b"")
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def _file_size(path: Path) -> int:
    return require_file(path, "model file", "Give the path of an ONNX file.").st_size


def _check_size(size: int, limits: FrontendLimits) -> None:
    if size > limits.model_bytes:
        raise exceeded("the model file is too large", f"at most {limits.model_bytes} bytes", f"{size} bytes")


def parse_model(data: memoryview, limits: FrontendLimits) -> onnx.ModelProto:
    """The model proto, its versions and outline checked; large tensors refer to their place in ``data`` (:mod:`slim`).

    Raises:
        IngotError: INVALID_MODEL, UNSUPPORTED_OPSET or LIMIT_EXCEEDED.
    """
    if not data:
        raise _invalid("the model file is empty", "an ONNX model", "0 bytes")
    refuse_foreign_formats(data[:MAGIC_BYTES])
    try:
        found = outline(data, limits.graph_entries)
    except WireError as error:
        raise no_protobuf(error) from error
    check_outline(found, limits)
    try:
        proto = onnx.ModelProto.FromString(without_tensors(data))
    except (DecodeError, RecursionError) as error:
        raise _invalid(
            "the model file is damaged or nested too deeply",
            "an ONNX model of at most 100 levels of messages",
            "bytes that protobuf cannot parse",
        ) from error
    check_text(proto)
    return proto


def no_protobuf(error: WireError) -> IngotError:
    if isinstance(error, TruncatedError):
        return _invalid("the model file is truncated or is no protobuf", "a whole ONNX model", str(error))
    return _invalid("the model file is no protobuf", "an ONNX model", str(error))


def refuse_foreign_formats(data: bytes | memoryview) -> None:
    """``data`` are the first :data:`MAGIC_BYTES` of a model.

    Raises:
        IngotError: INVALID_MODEL, they are those of something else.
    """
    for offset, magic, what in _FOREIGN_FORMATS:
        if data[offset : offset + len(magic)] == magic:
            raise _invalid("the file is not an ONNX model", "an ONNX model", what, "Export the model to ONNX.")
    first = bytes(data[:MAGIC_BYTES])
    if first[:1].isspace() or first[:1] in (b"{", b"<"):
        start = first.decode("utf-8", "replace").strip()
        raise _invalid(
            "the file is not an ONNX model", "an ONNX model", f"text: {start!r}", "Export the model to ONNX."
        )


def check_outline(found: Outline, limits: FrontendLimits) -> None:
    """Raises INVALID_MODEL, UNSUPPORTED_OPSET, LIMIT_EXCEEDED for what is no model that could be imported."""
    if not found.known_fields or found.foreign_fields > found.known_fields:
        raise _invalid("the file is a protobuf, but not an ONNX model", "an ONNX model", "another message")
    if found.ir_version is None:
        raise _invalid("the model has no ir_version", "an ONNX model", "a protobuf without ir_version")
    check_ir_version(found.ir_version)
    if found.graphs == 0:
        raise _invalid("the model has no graph", "one graph", "none")
    if found.graphs > 1:
        raise _invalid("the model has several graphs", "one graph", str(found.graphs))
    if found.graph_entries > limits.graph_entries:
        raise exceeded("the graph has too many entries", f"at most {limits.graph_entries}", "more")
    check_opsets(found.opsets)


def check_ir_version(version: int) -> None:
    """Raises INVALID_MODEL."""
    if not FIRST_IR_VERSION <= version <= NEWEST_IR_VERSION:
        raise _invalid(
            "the IR version of the model is not supported",
            f"{FIRST_IR_VERSION} to {NEWEST_IR_VERSION}",
            str(version),
            "Export the model with another version of onnx.",
        )


def check_opsets(opsets: Mapping[str, int]) -> None:
    """Raises UNSUPPORTED_OPSET when the version of the standard operators is missing or out of range."""
    if not opsets:
        raise _invalid("the model imports no operator set", "an opset_import for each domain", "none")
    version = opsets.get("", opsets.get("ai.onnx"))
    if version is not None and not FIRST_OPSET <= version <= NEWEST_OPSET:
        raise IngotError(
            ErrorCode.UNSUPPORTED_OPSET,
            "the opset of the model is not supported",
            expected=f"{FIRST_OPSET} to {NEWEST_OPSET}",
            received=str(version),
            remedy=f"Export the model with an opset of at most {NEWEST_OPSET}.",
        )


def _invalid(message: str, expected: str, received: str, remedy: str = _EXPORT) -> IngotError:
    return IngotError(ErrorCode.INVALID_MODEL, message, expected=expected, received=received, remedy=remedy)
