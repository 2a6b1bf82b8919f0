"""Typed errors: what was wrong, where, and what to do about it.

Blame is decidable from the code alone: a *user* error is mended by changing the request or the model,
a *service* error by the operator of the platform. Protocol status codes live at the rim (``service_kit/status.py``).
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import Any, Self

from shared_ir.printable import printable


class Blame(enum.StrEnum):
    """Who can mend the error."""

    USER = "user"
    SERVICE = "service"


class ErrorCode(enum.StrEnum):
    """Every way in which a request can fail. The value is what travels over the wire."""

    INVALID_MODEL = "INVALID_MODEL"  # not a protobuf, truncated, empty, cyclic, undefined value
    UNSUPPORTED_OPSET = "UNSUPPORTED_OPSET"
    UNSUPPORTED_OPERATOR = "UNSUPPORTED_OPERATOR"
    UNSUPPORTED_DOMAIN = "UNSUPPORTED_DOMAIN"
    UNSUPPORTED_ATTRIBUTE = "UNSUPPORTED_ATTRIBUTE"
    UNSUPPORTED_DTYPE = "UNSUPPORTED_DTYPE"
    TYPE_MISMATCH = "TYPE_MISMATCH"  # the graph itself does not type-check
    EXTERNAL_DATA = "EXTERNAL_DATA"
    LIMIT_EXCEEDED = "LIMIT_EXCEEDED"  # size, node, dimension or cost limits
    INVALID_ARGUMENT = "INVALID_ARGUMENT"  # malformed request, unknown option, wrong shape or dtype
    INVALID_TARGET = "INVALID_TARGET"
    UNAUTHENTICATED = "UNAUTHENTICATED"  # no token, or one that is not known
    PERMISSION_DENIED = "PERMISSION_DENIED"  # a known token that may not do this
    NOT_FOUND = "NOT_FOUND"
    ALREADY_EXISTS = "ALREADY_EXISTS"
    CONFLICT = "CONFLICT"  # it is no longer what the caller saw, or something in use stands in the way
    CHECKSUM_MISMATCH = "CHECKSUM_MISMATCH"
    CANCELLED = "CANCELLED"
    DEADLINE_EXCEEDED = "DEADLINE_EXCEEDED"
    ARTIFACT_CORRUPT = "ARTIFACT_CORRUPT"
    ARTIFACT_UNTRUSTED = "ARTIFACT_UNTRUSTED"
    ARTIFACT_INCOMPATIBLE = "ARTIFACT_INCOMPATIBLE"  # ABI, triple, cpu features, glibc
    NUMERIC_MISMATCH = "NUMERIC_MISMATCH"  # verification against the oracle failed
    NOT_VERIFIED = "NOT_VERIFIED"  # verification was required, and could not be done
    RESOURCE_EXHAUSTED = "RESOURCE_EXHAUSTED"  # queue full: retry later
    UNAVAILABLE = "UNAVAILABLE"  # loading, draining, or a backing service is down: retry later
    RESOURCE_LIMIT = "RESOURCE_LIMIT"  # the job used up the memory, time or disk that it may use
    OUT_OF_MEMORY = "OUT_OF_MEMORY"  # the machine has no memory left
    DISK_FULL = "DISK_FULL"
    STAGE_KILLED = "STAGE_KILLED"  # somebody else ended the process of a stage
    WORKER_LOST = "WORKER_LOST"  # its worker gave no sign of life, again and again
    DEVICE_TIMEOUT = "DEVICE_TIMEOUT"  # a device that measures is lost: another one may do its work
    COMPILER_FAULT = "COMPILER_FAULT"  # a bug of ours
    INTERNAL = "INTERNAL"


_SERVICE_CODES = frozenset(
    {
        ErrorCode.NUMERIC_MISMATCH,
        ErrorCode.RESOURCE_EXHAUSTED,
        ErrorCode.UNAVAILABLE,
        ErrorCode.OUT_OF_MEMORY,
        ErrorCode.DISK_FULL,
        ErrorCode.STAGE_KILLED,
        ErrorCode.WORKER_LOST,
        ErrorCode.DEVICE_TIMEOUT,
        ErrorCode.COMPILER_FAULT,
        ErrorCode.INTERNAL,
    }
)


@dataclass(eq=False)
class IngotError(Exception):
    """An error that may be shown to the person who caused it.

    Attributes:
        code: what kind of thing went wrong.
        message: one sentence naming the thing that was wrong.
        node: ONNX node (``name (OpType)``), if the error is about one.
        tensor: tensor or graph input/output, if the error is about one.
        field: attribute, option, request field or file, if the error is about one.
        expected: what would have been accepted.
        received: what came instead.
        remedy: what to do, as one sentence.
    """

    code: ErrorCode
    message: str
    node: str = ""
    tensor: str = ""
    field: str = ""
    expected: str = ""
    received: str = ""
    remedy: str = ""

    def __post_init__(self) -> None:
        """Bytes of a model that are no UTF-8, which Python keeps as lone surrogates, are written as escapes: no message, JSON document or
        log holds them."""
        for name in self.__dataclass_fields__:
            text = getattr(self, name)
            if isinstance(text, str) and not text.isascii():
                setattr(self, name, text.encode(errors="backslashreplace").decode())

    @property
    def blame(self) -> Blame:
        """Who can mend it, which the code alone says."""
        return Blame.SERVICE if self.code in _SERVICE_CODES else Blame.USER

    def __str__(self) -> str:
        """For people: what a model or a client put into it does not reach their terminal unseen."""
        where = [f"{k} {v!r}" for k, v in (("node", self.node), ("tensor", self.tensor), ("field", self.field)) if v]
        parts = [self.message.rstrip(".")]
        if where:
            parts.append("at " + ", ".join(where))
        if self.expected or self.received:
            told = (("expected", self.expected), ("received", self.received))
            parts.append(", ".join(f"{kind} {text}" for kind, text in told if text))
        text = "; ".join(parts) + "."
        return printable(f"{text} {self.remedy}" if self.remedy else text)

    def located(self, *, node: str = "", tensor: str = "", field: str = "") -> Self:
        """The same error with its place filled in where it was still unknown."""
        return replace(self, node=self.node or node, tensor=self.tensor or tensor, field=self.field or field)

    def to_dict(self) -> dict[str, str]:
        """A JSON-ready form; :meth:`from_dict` is its inverse."""
        fields = {k: str(getattr(self, k)) for k in self.__dataclass_fields__}
        return {k: v for k, v in fields.items() if v} | {"blame": self.blame.value}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """A code that only a newer version knows becomes INTERNAL, its name the field."""
        known = {k: str(v) for k, v in data.items() if k in cls.__dataclass_fields__ and k != "code"}
        code = str(data["code"])
        if code not in ErrorCode.__members__:
            return cls(ErrorCode.INTERNAL, **{"message": "", **known, "field": code[:100]})
        return cls(ErrorCode(code), **{"message": "", **known})
