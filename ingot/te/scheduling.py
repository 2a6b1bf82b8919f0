"""Schedules: where and in which loops each tensor is computed. What is computed stays the same, up to the order of sums.

A stage is a tensor that is computed. At first each is at the root: in a nest of its own, with one loop for each axis, reduced axes
innermost. Loops are called after their axis and, for tiles, the number of elements that a turn covers: ``i`` and ``i.64``;
``i.outer`` and ``i.inner`` are the two loops of an axis that was split once.

A primitive that does not fit raises INVALID_ARGUMENT with a sentence, and leaves the schedule as it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Self

from compiler_service.compiler.codegen.toolchain.host import host_target
from compiler_service.compiler.schedule.records import to_text
from compiler_service.compiler.schedule.staging import rewriting
from compiler_service.compiler.schedule.staging.chosen import chosen_program
from compiler_service.compiler.schedule.staging.instructions import check_instructions, tensorize
from compiler_service.compiler.schedule.staging.lowered import LoweredKernel, Lowerings
from compiler_service.compiler.schedule.staging.program import StagedProgram
from compiler_service.compiler.schedule.staging.stage import AtRoot, InPlace, Inside, Place
from compiler_service.compiler.tensor_expr.tensor import Tensor
from ingot.arguments import require_kind
from ingot.artifact import chosen_target
from ingot.te.loops import LoopLike, misfit, refuse, whole_number
from ingot.te.nest import LoopNest
from shared_ir.machine.target import Target


class Schedule:
    """The schedule of all that ``outputs`` are computed from; ``schedule[T]`` is the stage of the tensor ``T``.

    Attributes:
        outputs: the tensors that were asked for.

    Raises:
        IngotError: INVALID_ARGUMENT, there are no outputs, or one of them is given and not computed.
    """

    def __init__(self, *outputs: Tensor) -> None:
        if not outputs:
            raise misfit("a schedule of nothing", "at least one tensor that is computed", "none")
        for each in outputs:
            if not isinstance(each, Tensor):
                raise misfit("a schedule of what is no tensor", "what te.compute gives", repr(each)[:80])
        self._program = StagedProgram.of(outputs)
        self._lowerings, self._host = Lowerings(), host_target()
        for tensor, value in self._program.values.items():
            stage = self._program.stages.get(value.name)
            if stage and _is_known(tensor) and stage.name not in self._program.outputs:
                self._program = self._program.with_stage(replace(stage, place=InPlace()))
        given = [t.name for t in outputs if self._program.values[t].name not in self._program.stages]
        if given:
            raise misfit("a schedule of tensors that are given", "tensors that are computed", ", ".join(given))
        self.outputs: tuple[Tensor, ...] = outputs

    def __getitem__(self, which: Tensor | Stage | str) -> Stage:
        """The stage of a tensor, or of this name.

        Raises:
            IngotError: INVALID_ARGUMENT, there is none: the tensor is given, or of another computation.
        """
        return Stage(self, self._program.stage(self._name(which)).name)

    @property
    def stages(self) -> tuple[Stage, ...]:
        """All of them, producers first."""
        return tuple(Stage(self, name) for name in self._program.stages)

    def cache_write(self, which: Tensor | Stage | str) -> Stage:
        """Compute a stage apart from the memory of its result, into which a copy puts it; returns the new stage, ``T.acc``.

        before: ``T[i] += f(i, k)``
        after:  ``T.acc[i] += f(i, k); T[i] = T.acc[i]``

        Raises:
            IngotError: INVALID_ARGUMENT, its loops are scheduled already.
        """
        return self._rewrite(rewriting.cache_write(self._program, self._name(which)))

    def cache_read(
        self,
        which: Tensor | Stage | str,
        readers: Sequence[Tensor | Stage | str] | Tensor | Stage | str,
        order: Sequence[int] | None = None,
    ) -> Stage:
        """Let ``readers`` read a tensor through a copy; returns the new stage, ``A.local``.

        before: ``T[i] = f(A[g(i)])``
        after:  ``A.local[j] = A[j]; T[i] = f(A.local[g(i)])``
        order (1, 0): ``A.local[j, i] = A[i, j]; T[i] = sum over k of A.local[k, g(i)]`` for ``A[g(i), k]``

        Args:
            order: of the axes of the tensor in the copy, outermost first; as they are by default.

        Raises:
            IngotError: INVALID_ARGUMENT, one of them does not read it, or ``order`` does not name each axis once.
        """
        require_kind(order, (Iterable, type(None)), "order", "each axis of the tensor once, such as (1, 0)")
        axes = None if order is None else tuple(whole_number(a, "an axis of cache_read") for a in order)
        return self._rewrite(rewriting.cache_read(self._program, self._value(which), self._names(readers), axes))

    def rfactor(self, which: Tensor | Stage | str, axis: str, factor: int, *, outer: bool = False) -> Stage:
        """Reduce in two steps; returns the new stage, ``T.rf``, which has an axis more, ``k_inner`` (``outer``: ``k_outer``).

        Sums of floats are added in another order, so that they may be computed side by side.

        before: ``T[i] = sum over k < n of f(i, k)``
        after:  ``T.rf[i, r] = sum over o < ceil(n / F) of f(i, o * F + r); T[i] = sum over r < F of T.rf[i, r]``
        outer:  ``T.rf[i, o] = sum over r < F of f(i, o * F + r); T[i] = sum over o < ceil(n / F) of T.rf[i, o]``

        Raises:
            IngotError: INVALID_ARGUMENT, the stage is not reduced over ``axis``, or its loops are scheduled already.
        """
        factor = whole_number(factor, "the factor of rfactor")
        if factor < 2:
            raise misfit("rfactor by less than 2", "a factor of at least 2", str(factor))
        return self._rewrite(rewriting.rfactor(self._program, self._name(which), axis, factor, outer=outer))

    def pack(
        self,
        which: Tensor | Stage | str,
        readers: Sequence[Tensor | Stage | str] | Tensor | Stage | str,
        axis: int,
        tile: int,
    ) -> Stage:
        """Let ``readers`` read a tensor through a copy in tiles of ``axis``, so that what one tile holds lies together; returns the
        new stage, ``A.packed``. The last tile is filled up with zeros.

        before: ``T[i, j] = f(A[k, j])``
        after:  ``A.packed[o, k, r] = A[k, o * F + r]; T[i, j] = f(A.packed[j // F, k, j % F])``   (axis 1, tile F)

        Raises:
            IngotError: INVALID_ARGUMENT, one of them does not read it, it has no such axis, a tile is smaller than 2.
        """
        axis, tile = whole_number(axis, "the axis of pack"), whole_number(tile, "the tile of pack")
        return self._rewrite(rewriting.pack(self._program, self._value(which), self._names(readers), axis, tile))

    def tensorize(self, which: Tensor | Stage | str, axis: str, instruction: str) -> tuple[Stage, Stage]:
        """Sum the products of a stage along ``axis`` by an instruction of the target; returns the stages of its operands.

        :data:`INSTRUCTIONS` has the rows, each with what it computes. That the stage computes the same is proven from its definition:
        it must be the sum that the row states, over the whole of ``axis``, whose extent is a number. The operands are put into the
        words of the instruction by stages of their own; the last word is filled up with zeros. A target without the instruction is
        refused by :func:`te.lower` and :func:`te.build`.

        before: ``T[i, j] = sum over k < n of int32(A[i, k]) * int32(W[k, j])``
        after:  ``A.words[i, w] = bytes 4 * w .. 4 * w + 3 of A[i]; W.words[w, j] = ...;
        T[i, j] = sum over w < ceil(n / 4) of dot4(A.words[i, w], W.words[w, j])``

        Raises:
            IngotError: INVALID_ARGUMENT, there is no such row, the stage is not proven to be what it computes, or its loops are scheduled.
        """
        program, (data, weight) = tensorize(self._program, self._name(which), axis, instruction)
        self._commit(program)
        return Stage(self, data), Stage(self, weight)

    def __str__(self) -> str:
        """The steps of every kernel."""
        return "\n".join(f"{k.stage.name}:\n{to_text(k.schedule)}".rstrip() for k in self._program.kernels())

    def _commit(self, program: StagedProgram) -> None:
        """Go on with ``program``, if every step of it fits.

        Raises:
            IngotError: INVALID_ARGUMENT, one does not.
        """
        self._lowerings.of(program, self._host)
        self._program = program

    def _lowered(self, target: Target) -> tuple[LoweredKernel, ...]:
        """The nests in the order in which they run; what did not change since it was last asked for is not lowered again.

        Raises:
            IngotError: INVALID_ARGUMENT, a stage is summed by an instruction that ``target`` does not have.
        """
        kernels = self._lowerings.of(self._program, target)
        for kernel in kernels:
            check_instructions(kernel, target)
        return kernels

    def _rewrite(self, made: tuple[StagedProgram, str]) -> Stage:
        program, name = made
        self._commit(program)
        return Stage(self, name)

    def _names(self, which: Sequence[Tensor | Stage | str] | Tensor | Stage | str) -> list[str]:
        several = which if isinstance(which, Sequence) and not isinstance(which, str) else (which,)
        return [self._name(each) for each in several]

    def _name(self, which: Tensor | Stage | str) -> str:
        return which if isinstance(which, str) else self._value(which).name

    def _value(self, which: Tensor | Stage | str) -> Tensor:
        if isinstance(which, Tensor):
            if which not in self._program.values:
                raise misfit(f"the tensor {which.name} is not computed here", "a tensor of this schedule", which.name)
            return self._program.values[which]
        if not isinstance(which, str | Stage):
            raise misfit("what is named is no stage", "a tensor, a stage, or the name of one", repr(which)[:80])
        name = which if isinstance(which, str) else which.name
        if name in self._program.stages:
            return self._program.stages[name].value
        given = {v.name: v for v in self._program.values.values()}
        if name not in given:
            raise misfit("no such tensor", ", ".join({**given, **self._program.stages}), name)
        return given[name]


def _is_known(tensor: Tensor) -> bool:
    """Whether it holds integers that are known: positions among them are proven to be inside by what they are."""
    return tensor.value is not None and tensor.dtype.is_integer


class Stage(LoopNest):
    """A tensor that is computed, and its loops. Each primitive returns the stage, so that they can be said one after the other.

    Attributes:
        schedule: that it is part of.
        name: of the tensor.
    """

    def __init__(self, schedule: Schedule, name: str) -> None:
        self.schedule = schedule
        self.name = name

    # -- places

    def compute_at(self, consumer: Tensor | Stage | str, loop: LoopLike, scope: str = "") -> Self:
        """Compute what a turn of ``loop`` of ``consumer`` reads of this stage just before it is read.

        Args:
            scope: ``stack`` (registers, a few vectors) or ``scratch`` (memory of the thread); by default what fits its size.

        before: ``for i: A[i] = f(i)`` and ``for i.F: for i: B[i] = g(A[i])``
        after:  ``for i.F: { for i in F: A[i] = f(i); for i in F: B[i] = g(A[i]) }``

        Raises:
            IngotError: INVALID_ARGUMENT, the consumer does not come after it, has no such loop, or others read the stage too.
        """
        other = self.schedule[consumer]
        if scope not in ("", "stack", "scratch"):
            refuse("there is no such memory", "stack or scratch", scope)
        return self._place(Inside(other.name, other._loop(loop).name, scope))

    def storage_align(self, factor: int, offset: int = 0) -> Self:
        """Let rows of the memory of a stage that is computed inside of another begin a multiple of ``factor`` elements, and ``offset``
        more, apart, so that rows do not fall into one set of a cache. It lasts until the stage is placed elsewhere.

        before: ``stack A: float32[h, w]``
        after:  ``stack A: float32[h, w']`` with the least ``w' >= w`` where ``w' % factor == offset``

        Raises:
            IngotError: INVALID_ARGUMENT, the stage is at the root or in place, has no rows, or the offset is no rest of the factor.
        """
        stage = self._stage
        if not isinstance(stage.place, Inside):
            refuse(f"{self.name} has no memory inside of a nest", "a stage that compute_at has placed", self.name)
        align = whole_number(factor, "the factor of storage_align"), whole_number(offset, "the offset of storage_align")
        return self._commit(replace(stage, align=align))

    def compute_inline(self) -> Self:
        """Compute the stage where it is read, anew each time.

        before: ``A[i] = f(i)`` and ``B[i] = g(A[i])``
        after:  ``B[i] = g(f(i))``

        Raises:
            IngotError: INVALID_ARGUMENT, it is a reduction or a result.
        """
        if self._stage.definition.reduction is not None:
            refuse(f"{self.name} is a reduction and cannot be computed where it is read", "a stage without", self.name)
        return self._place(InPlace())

    def compute_root(self) -> Self:
        """Compute the stage in a nest of its own, as at first."""
        return self._place(AtRoot())

    # -- how it is done

    def _place(self, place: Place) -> Self:
        stage = self._stage
        if stage.name in self.schedule._program.outputs and not isinstance(place, AtRoot):
            refuse(f"{self.name} is a result, which has memory of its own", "a stage that is no result", self.name)
        if stage.tasks and not isinstance(place, AtRoot):
            refuse(f"the loops of {self.name} are tasks", "a stage without parallel loops", ", ".join(stage.tasks))
        return self._commit(replace(stage, place=place, align=None, in_result=False))

    @property
    def _program(self) -> StagedProgram:
        return self.schedule._program

    def _restore(self, program: StagedProgram) -> None:
        self.schedule._commit(program)


def schedule(*outputs: Tensor) -> Schedule:
    """A schedule of ``outputs`` and of what they are computed from, every stage at the root.

    Raises:
        IngotError: INVALID_ARGUMENT, one of them is given and not computed.
    """
    return Schedule(*outputs)


def default_schedule(*outputs: Tensor, target: str | Target = "host") -> Schedule:
    """The schedule that the compiler's rules choose for a machine, to be printed, and to be gone on with.

    It is what a model gets, but for what only a model has: constants that are laid out at compile time, and algorithms that compute
    a tensor in another way than it is written (for products of small windows, of attention, of bytes). A nest that needs these has
    plain rows, or the nest that :func:`schedule` begins with.

    Raises:
        IngotError: INVALID_ARGUMENT, one of the outputs is given and not computed; INVALID_TARGET.
    """
    found = Schedule(*outputs)
    found._commit(chosen_program(found._program, chosen_target(target)))
    return found
