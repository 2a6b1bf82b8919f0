"""Tensor data outside the model file: from named blobs or the model's own folder, and from nowhere else."""

from __future__ import annotations

import mmap
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

import onnx

from compiler_service.compiler.frontend.reading.limits import FrontendLimits, exceeded
from compiler_service.compiler.frontend.reading.slim import OWN_FILE
from compiler_service.compiler.frontend.reading.source import Blob
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.numerals import whole_number

_REMEDY = "Keep external data beside the model under a plain relative name, or send it as a named blob with the model."


@dataclass
class ExternalData:
    """Resolves the ``external_data`` entries of tensors; opens each file once and maps it read-only."""

    blobs: Mapping[str, Blob]
    folder: Path | None
    limits: FrontendLimits
    model: memoryview = field(default_factory=lambda: memoryview(b""))
    """The model itself, for tensors whose data has been left where it is (:mod:`compiler_service.compiler.frontend.reading.slim`)."""
    _open: dict[str, memoryview] = field(default_factory=dict)
    _total: int = 0

    def read(self, tensor: onnx.TensorProto, size: int) -> memoryview:
        """The ``size`` bytes of ``tensor``, not copied.

        Raises:
            IngotError: EXTERNAL_DATA when the location is not allowed or the range does not fit.
        """
        entries = {e.key: e.value for e in tensor.external_data}
        location = entries.get("location", "")
        data = self._data(location, tensor.name)
        offset = _number(entries.get("offset", "0"), "offset", tensor.name)
        length = _number(entries.get("length", str(size)), "length", tensor.name)
        if length != size:
            raise _refused(
                "the length of external data is not that of the tensor", tensor.name, f"{size} bytes", str(length)
            )
        if offset + size > len(data):
            raise _refused(
                "external data ends before the tensor does",
                tensor.name,
                f"{size} bytes at offset {offset} of {location!r}",
                f"{len(data)} bytes in all",
            )
        return data[offset : offset + size]

    def own(self, tensor: onnx.TensorProto) -> memoryview | None:
        """The bytes of ``tensor`` in the model file, if it has been parsed without them."""
        if not any(e.key == "location" and e.value == OWN_FILE for e in tensor.external_data):
            return None
        entries = {e.key: e.value for e in tensor.external_data}
        offset = _number(entries["offset"], "offset", tensor.name)
        return self.model[offset : offset + _number(entries["length"], "length", tensor.name)]

    def _data(self, location: str, tensor: str) -> memoryview:
        if location not in self._open:
            data = self._find(location, tensor)
            self._total += len(data)
            if self._total > self.limits.external_bytes:
                raise exceeded("the external data is too large", f"at most {self.limits.external_bytes} bytes", "more")
            self._open[location] = data
        return self._open[location]

    def _find(self, location: str, tensor: str) -> memoryview:
        blob = self.blobs.get(location)
        if isinstance(blob, Path):
            return _map(blob, location, tensor, os.O_RDONLY)
        if blob is not None:
            return memoryview(blob)
        return _map(self._inside_folder(location, tensor), location, tensor, os.O_RDONLY | os.O_NOFOLLOW)

    def _inside_folder(self, location: str, tensor: str) -> Path:
        name = PurePosixPath(location)
        if not location or "\0" in location or "\\" in location or name.is_absolute() or ".." in name.parts:
            raise _refused(
                "the location of external data is not allowed", tensor, "a plain relative name", repr(location)
            )
        if self.folder is None:
            raise _refused("external data was not sent with the model", tensor, f"a blob named {location!r}", "none")
        folder = self.folder.resolve()
        path = self.folder / name
        if path.resolve() != folder / name:
            raise _refused(
                "external data is reached through a symbolic link", tensor, f"a file in {folder}", repr(location)
            )
        return path


def _map(path: Path, location: str, tensor: str, flags: int) -> memoryview:
    try:
        descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        reason = error.strerror or "it cannot be opened"
        raise _refused("external data cannot be read", tensor, f"the file {location!r}", reason) from error
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise _refused("external data is not a file", tensor, "a regular file", repr(location))
        if status.st_size == 0:
            return memoryview(b"")
        return memoryview(mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ))
    finally:
        os.close(descriptor)


def _number(text: str, what: str, tensor: str) -> int:
    number = whole_number(text)
    if number is None:
        raise _refused(f"the {what} of external data is no number", tensor, "a count of bytes", repr(text[:40]))
    return number


def _refused(message: str, tensor: str, expected: str, received: str) -> IngotError:
    return IngotError(
        ErrorCode.EXTERNAL_DATA, message, tensor=tensor, expected=expected, received=received, remedy=_REMEDY
    )
