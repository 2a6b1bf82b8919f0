"""The versions of an ONNX model, read from its serialised form as it comes: without the model, and without keeping its bytes.

A ModelProto has its fields in any order. Serialisers write them by number, so ``ir_version`` comes first, and ``opset_import`` behind
the graph, which is nearly all of the file: whoever can, reads past it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from shared_ir.wire.fields import BYTES, VARINT, TruncatedError, field_at, past_the_end, spans, varint

MODEL_WIRE_TYPES = {
    1: VARINT,
    2: BYTES,
    3: BYTES,
    4: BYTES,
    5: VARINT,
    6: BYTES,
    7: BYTES,
    8: BYTES,
    14: BYTES,
    20: BYTES,
    25: BYTES,
    26: BYTES,
}
"""Fields of ModelProto (onnx.proto): ir_version, producer_name, producer_version, domain, model_version, doc_string, graph,
opset_import, metadata_props, training_info, functions, configuration."""


_IR_VERSION, _GRAPH, _OPSET = 1, 7, 8
MOST_FIELDS = 20_000
"""Of a model that are looked at as it comes, functions and metadata among them: each takes some microseconds."""
_MOST_OPSET_BYTES = 1 << 16


@dataclass
class Outline:
    """What the first look tells."""

    ir_version: int | None = None
    opsets: dict[str, int] = field(default_factory=dict)
    graphs: int = 0
    graph_entries: int = 0
    known_fields: int = 0
    foreign_fields: int = 0


def opset_of(body: memoryview) -> tuple[str, int]:
    """Domain and version of an OperatorSetIdProto; version 0 when absent."""
    domain, version = "", 0
    for number, wire_type, _, content, after in spans(body, 0, len(body)):
        if (number, wire_type) == (1, BYTES):
            domain = bytes(body[content:after]).decode("utf-8", "replace")
        elif (number, wire_type) == (2, VARINT):
            version, _ = varint(body, content, after)
    return domain, version


class ModelHead:
    """Fills in ``found``, all but the entries of the graph, from a model of ``size`` bytes.

    Attributes:
        is_known: everything was looked at, or will be; false for more than :data:`MOST_FIELDS`, or an operator set that is passed over.
    """

    def __init__(self, size: int) -> None:
        self.found = Outline()
        self.is_known = True
        self._size = size
        self._start = 0
        self._held = b""
        self._left = MOST_FIELDS

    @property
    def wanted(self) -> int:
        """Where the next byte lies that tells something; the size, when there is none."""
        return min(self._size, self._start + len(self._held)) if self.is_known else self._size

    def feed(self, data: bytes | memoryview, at: int) -> None:
        """Bytes from ``at`` on, which is ``wanted`` or before.

        Raises:
            WireError: they are not of a protobuf of this size.
        """
        view = memoryview(data)[max(0, self.wanted - at) :]
        if not len(view) or not self.is_known:
            return
        if self._held:
            view = memoryview(self._held + bytes(view))
        used = self._read(view)
        self._start += used
        self._held = bytes(view[used:])

    def _read(self, view: memoryview) -> int:
        """Fields from the beginning of ``view`` on; where the first lies that is not read, behind the end where one is passed over."""
        at, all_came = 0, self._start + len(view) >= self._size
        while at < len(view):
            if not self._left:
                self.is_known = False
                return len(view)
            try:
                number, wire_type, content, after = field_at(view, at, len(view))
            except TruncatedError:
                if all_came:
                    raise
                break
            if self._start + after > self._size:
                raise past_the_end(number, wire_type, after - content)
            if number == _OPSET and len(view) < after and after - content <= _MOST_OPSET_BYTES:
                break
            self._note(number, wire_type, view[content:after], after - content)
            if not self.is_known:
                return len(view)
            self._left -= 1
            at = after
        return at

    def _note(self, number: int, wire_type: int, content: memoryview, length: int) -> None:
        """``content`` is cut short where it is passed over.

        NOTE: of several values the last counts, so that nothing is known of them before the end.
        """
        if MODEL_WIRE_TYPES.get(number) != wire_type:
            self.found.foreign_fields += 1
            return
        self.found.known_fields += 1
        if number == _IR_VERSION:
            self.found.ir_version, _ = varint(content, 0, len(content))
        elif number == _GRAPH:
            self.found.graphs += 1
        elif number == _OPSET and length > _MOST_OPSET_BYTES:
            self.is_known = False
        elif number == _OPSET:
            domain, version = opset_of(content)
            self.found.opsets[domain] = version
