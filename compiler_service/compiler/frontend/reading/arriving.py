"""A model that is still being sent: what import would refuse of it in any case is refused as soon as that is sure.

IR version and operator sets are sure at the end of the file, since the last of several values counts, or by the sender's word.
"""

from __future__ import annotations

from collections.abc import Mapping

from compiler_service.compiler.frontend.reading.limits import FrontendLimits
from compiler_service.compiler.frontend.reading.source import (
    MAGIC_BYTES,
    check_ir_version,
    check_opsets,
    check_outline,
    no_protobuf,
    refuse_foreign_formats,
)
from shared_ir.wire.fields import WireError
from shared_ir.wire.model_head import ModelHead


class ArrivingModel:
    """A model of ``size`` bytes, whose bytes are shown to :meth:`feed` in order; they are not kept.

    NOTE: what is not refused here may still be no model. Only import looks at all of it.
    """

    def __init__(self, size: int) -> None:
        self._head = ModelHead(size)
        self._size = size
        self._at = 0
        self._first = b""

    def declared(self, ir_version: int, opsets: Mapping[str, int]) -> None:
        """What the sender says of the model before its first byte; 0 and none for nothing.

        Raises:
            IngotError: as :meth:`feed`.
        """
        if ir_version:
            check_ir_version(ir_version)
        if opsets:
            check_opsets(opsets)

    def feed(self, data: bytes) -> None:
        """The next bytes.

        Raises:
            IngotError: INVALID_MODEL, of another format or IR version; UNSUPPORTED_OPSET.
        """
        if self._at < MAGIC_BYTES:
            data = self._first + data
            if len(data) < min(MAGIC_BYTES, self._size):
                self._first = data
                return
            refuse_foreign_formats(data[:MAGIC_BYTES])
        try:
            self._head.feed(data, self._at)
        except WireError as error:
            raise no_protobuf(error) from error
        self._at += len(data)
        if self._at >= self._size and self._head.is_known:
            check_outline(self._head.found, FrontendLimits())
