"""A stage: a tensor that is computed, where it is computed, and in which loops."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from compiler_service.compiler.schedule.language.steps import PlainStep
from compiler_service.compiler.tensor_expr.tensor import Compute, Tensor, placeholder


@dataclass(frozen=True, slots=True)
class AtRoot:
    """In a nest of its own, before those that read it; it fills memory of its own."""


@dataclass(frozen=True, slots=True)
class InPlace:
    """Where it is read, anew each time."""


@dataclass(frozen=True, slots=True)
class Inside:
    """In ``loop`` of the stage ``consumer`` (:data:`ROOT`: outside of its loops, once for each task), the part that is read there.

    ``scope`` is ``stack`` or ``scratch``, see :class:`ComputeAt`; empty: whichever fits its size.
    """

    consumer: str
    loop: str
    scope: str = ""


Place: TypeAlias = AtRoot | InPlace | Inside


@dataclass(frozen=True)
class ProgramStage:
    """One stage of a program.

    Attributes:
        value: what others read it by: a placeholder of its name.
        definition: how it is computed from the values of other stages and from arguments.
        steps: of its loops, in order.
        tasks: the loops whose turns are the tasks of its nest.
        in_result: it is kept in the memory of the result of its nest, which reads it at its own index only (:class:`Alias`).
        align: factor and offset of the distance between rows of its memory, where it is computed inside of another.
    """

    value: Tensor
    definition: Compute
    place: Place = AtRoot()
    steps: tuple[PlainStep, ...] = ()
    tasks: tuple[str, ...] = ()
    align: tuple[int, int] | None = None
    in_result: bool = False

    @property
    def name(self) -> str:
        return self.value.name

    @property
    def is_untouched(self) -> bool:
        """Whether nothing was said of its loops yet."""
        return not self.steps and not self.tasks


def stage_value(name: str, tensor: Tensor) -> Tensor:
    """What the stage ``name`` of ``tensor`` is read by."""
    return placeholder(name, tensor.shape, tensor.dtype)
