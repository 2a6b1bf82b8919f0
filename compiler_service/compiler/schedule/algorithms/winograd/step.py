"""The step ``winograd``: what it matches, its stages, what it does to weights, and how it rounds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import ClassVar

from compiler_service.compiler.schedule.algorithms.matching import factors
from compiler_service.compiler.schedule.algorithms.winograd.convolution import Convolution, match_convolution
from compiler_service.compiler.schedule.algorithms.winograd.filtering import error_bound, filtering, measured_error
from compiler_service.compiler.schedule.algorithms.winograd.stages import winograd_stages
from compiler_service.compiler.schedule.algorithms.winograd.weights import LinearTransform
from compiler_service.compiler.schedule.language.algorithm import AlgorithmStep, Rounding
from compiler_service.compiler.schedule.language.replacing import replaced_by
from compiler_service.compiler.schedule.language.state import KernelStage, ScheduleState, misfit
from compiler_service.compiler.tensor_expr.tensor import Tensor
from shared_ir.expr.dim import static


@dataclass(frozen=True, slots=True)
class Winograd(AlgorithmStep):
    """Compute the convolution ``stage`` by minimal filtering in tiles of ``tile`` x ``tile`` outputs.

    before: ``stage[oh, ow, oc] = sum data[plane.., oh * stride + kh, ow * stride + kw, c] * weight[..]``
    after:  the stages of :class:`WinogradStages`; the constant ``weight``, whose axes
            oc, t.., c, kh, kw are at the positions ``axes``, is transformed at compile time to ``[p, q, oc, t.. c]``, which a
            later ``Pack`` of it lays out. Where ``chunk`` is not 0, the kernel transforms it on the way, and sums so many
            channels at a time. A window along one axis has -1 in place of its other axis; its tiles are ``tile`` outputs long.
    """

    name: ClassVar[str] = "winograd"

    axes: tuple[int, ...]
    tile: int
    chunk: int = 0
    stride: int = 1

    def replaced(self, state: ScheduleState, stage: KernelStage, weight: Tensor) -> ScheduleState:
        conv = convolution_of(stage)
        asked = (self.axes, self.stride)
        if conv is None or conv.weight.tensor is not weight or (conv.weight_axes, conv.stride) != asked:
            raise misfit(f"{stage.name} is not a convolution of stride {self.stride} by {self.weight}")
        if self.chunk and (conv.is_grouped or conv.taps or conv.depth % self.chunk or not all(conv.filtered)):
            expected = f"a divisor of {conv.depth} channels of one group and one plane, filtered along both axes"
            raise misfit(f"{stage.name} has no whole chunks of channels", expected, str(self.chunk))
        made = winograd_stages(conv, self.tile, self.chunk)
        tensors = (made.data, made.rows, made.transformed, made.accumulated, made.product, made.columns, made.output)
        weights = () if made.weight_rows is None else (made.weight_rows, made.weight)
        done = replaced_by(state, stage, (*weights, *tensors))
        product = replace(done.stages[made.product.name], unread=made.unread)
        transformed = {} if weights else {weight: made.weight}
        return replace(done.with_stage(product), transformed={**state.transformed, **transformed})

    def transform(self, weight: Tensor) -> LinearTransform | None:
        if self.chunk:
            return None
        *kept, _, _ = self.axes
        f = filtering(self.tile, static(weight.shape[self._window[0]]), self.stride)
        matrix = tuple(tuple(float(x) for x in row) for row in f.weight)
        return LinearTransform(self._window, tuple(kept), matrix, f.parts)

    def rounding(self, weight: Tensor) -> Rounding:
        channels = prod(static(weight.shape[a]) for a in self.axes[1:-2])
        kernel = static(weight.shape[self._window[0]])
        of_method = (self.tile, kernel, channels, self.stride, len(self._window))
        stride = f" of stride {self.stride}" if self.stride > 1 else ""
        tile, window = ("x".join([str(n)] * len(self._window)) for n in (self.tile, kernel))
        return Rounding(
            f"winograd F({tile}, {window}){stride}",
            error_bound(*of_method, transforms_weights=self.chunk > 0),
            measured_error(*of_method, transforms_weights=self.chunk > 0),
        )

    @property
    def _window(self) -> tuple[int, ...]:
        """The axes of the weight along which it is filtered."""
        return tuple(axis for axis in self.axes[-2:] if axis >= 0)


def convolution_of(stage: KernelStage) -> Convolution | None:
    """``stage`` as a convolution that Winograd's filtering applies to, or None."""
    return next((c for pair in factors(stage) if (c := match_convolution(stage.tensor, *pair)) is not None), None)
