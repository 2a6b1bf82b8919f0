"""What the user says about a model beside the model itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from compiler_service.compiler.frontend.reading.limits import FrontendLimits
from shared_ir.errors import ErrorCode, IngotError

ShapeOverride = Sequence[int | str | None]
"""One entry per axis: a number pins the dim, a name makes it that symbol, ``None`` leaves what the model says."""


@dataclass(frozen=True)
class ImportOptions:
    """Options of the import.

    Attributes:
        shapes: input name -> its shape, for inputs whose dims are to be pinned or named.
        overridable: initializers that are inputs too, and that a caller may give; None: see :mod:`defaults`.
        limits: what the model may cost.
    """

    shapes: Mapping[str, ShapeOverride] = field(default_factory=dict)
    overridable: tuple[str, ...] | None = None
    limits: FrontendLimits = field(default_factory=FrontendLimits)

    def check_names(self, inputs: Sequence[str]) -> None:
        """Raises INVALID_ARGUMENT when a shape is given for something that is no input."""
        for name in self.shapes:
            if name not in inputs:
                raise IngotError(
                    ErrorCode.INVALID_ARGUMENT,
                    "a shape is given for something that is no input of the model",
                    tensor=name,
                    field="shapes",
                    expected=", ".join(inputs) or "no shapes: the model has no inputs",
                    received=name,
                    remedy="Use the names of the inputs as `ingot inspect` shows them.",
                )
