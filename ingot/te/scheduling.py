"""Schedules: where and in which loops each tensor is computed. What is computed stays the same, up to the order of sums.

A stage is a tensor that is computed. At first each is at the root: in a nest of its own, with one loop for each axis, reduced axes
innermost. Loops are called after their axis and, for tiles, the number of elements that a turn covers: ``i`` and ``i.64``;
``i.outer`` and ``i.inner`` are the two loops of an axis that was split once.

A primitive that does not fit raises INVALID_ARGUMENT with a sentence, and leaves the schedule as it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NoReturn, Self

from compiler_service.compiler.codegen.toolchain.host import host_target
from compiler_service.compiler.schedule.language.apply import apply_schedule
from compiler_service.compiler.schedule.language.state import KernelStage, StageLoop
from compiler_service.compiler.schedule.language.steps import (
    FuseLoops,
    Guard,
    PlainStep,
    Reorder,
    Split,
    Unroll,
    Vectorize,
)
from compiler_service.compiler.schedule.records import to_text
from compiler_service.compiler.schedule.staging import rewriting
from compiler_service.compiler.schedule.staging.lowered import LoweredKernel, Lowerings
from compiler_service.compiler.schedule.staging.program import StagedProgram
from compiler_service.compiler.schedule.staging.stage import AtRoot, InPlace, Inside, Place, ProgramStage
from compiler_service.compiler.tensor_expr.tensor import Tensor
from ingot.te.loops import Loop, LoopLike, misfit, refuse
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.machine.target import Target


class Schedule:
    """The schedule of all that ``outputs`` are computed from; ``schedule[T]`` is the stage of the tensor ``T``."""

    def __init__(self, *outputs: Tensor) -> None:
        if not outputs:
            raise misfit("a schedule of nothing", "at least one tensor that is computed", "none")
        self._program = StagedProgram.of(outputs)
        self._lowerings = Lowerings()
        given = [t.name for t in outputs if self._program.values[t].name not in self._program.stages]
        if given:
            raise misfit("a schedule of tensors that are given", "tensors that are computed", ", ".join(given))
        self.outputs = outputs

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

    @property
    def program(self) -> StagedProgram:
        """What was said so far."""
        return self._program

    def cache_write(self, which: Tensor | Stage | str) -> Stage:
        """Compute a stage apart from the memory of its result, into which a copy puts it; returns the new stage, ``T.acc``.

        before: ``T[i] += f(i, k)``
        after:  ``T.acc[i] += f(i, k); T[i] = T.acc[i]``

        Raises:
            IngotError: INVALID_ARGUMENT, its loops are scheduled already.
        """
        return self._rewrite(rewriting.cache_write(self._program, self._name(which)))

    def cache_read(
        self, which: Tensor | Stage | str, readers: Sequence[Tensor | Stage | str] | Tensor | Stage | str
    ) -> Stage:
        """Let ``readers`` read a tensor through a copy; returns the new stage, ``A.local``.

        before: ``T[i] = f(A[g(i)])``
        after:  ``A.local[j] = A[j]; T[i] = f(A.local[g(i)])``

        Raises:
            IngotError: INVALID_ARGUMENT, one of them does not read it.
        """
        several = readers if isinstance(readers, Sequence) and not isinstance(readers, str) else (readers,)
        source = self._value(which)
        return self._rewrite(rewriting.cache_read(self._program, source, [self._name(r) for r in several]))

    def rfactor(self, which: Tensor | Stage | str, axis: str, factor: int, *, outer: bool = False) -> Stage:
        """Reduce in two steps; returns the new stage, ``T.rf``, which has an axis more, ``k_inner`` (``outer``: ``k_outer``).

        Sums of floats are added in another order, so that they may be computed side by side.

        before: ``T[i] = sum over k < n of f(i, k)``
        after:  ``T.rf[i, r] = sum over o < ceil(n / F) of f(i, o * F + r); T[i] = sum over r < F of T.rf[i, r]``
        outer:  ``T.rf[i, o] = sum over r < F of f(i, o * F + r); T[i] = sum over o < ceil(n / F) of T.rf[i, o]``

        Raises:
            IngotError: INVALID_ARGUMENT, the stage is not reduced over ``axis``, or its loops are scheduled already.
        """
        if factor < 2:
            raise misfit("rfactor by less than 2", "a factor of at least 2", str(factor))
        return self._rewrite(rewriting.rfactor(self._program, self._name(which), axis, factor, outer=outer))

    def commit(self, program: StagedProgram) -> None:
        """Go on with ``program``, if every step of it fits.

        Raises:
            IngotError: INVALID_ARGUMENT, one does not.
        """
        self._lowerings.of(program, host_target())
        self._program = program

    def lowered(self, target: Target) -> tuple[LoweredKernel, ...]:
        """The nests in the order in which they run; what did not change since it was last asked for is not lowered again."""
        return self._lowerings.of(self._program, target)

    def __str__(self) -> str:
        """The steps of every kernel."""
        return "\n".join(f"{k.stage.name}:\n{to_text(k.schedule)}".rstrip() for k in self._program.kernels())

    def _rewrite(self, made: tuple[StagedProgram, str]) -> Stage:
        program, name = made
        self.commit(program)
        return Stage(self, name)

    def _name(self, which: Tensor | Stage | str) -> str:
        return which if isinstance(which, str) else self._value(which).name

    def _value(self, which: Tensor | Stage | str) -> Tensor:
        if isinstance(which, Tensor):
            if which not in self._program.values:
                raise misfit(f"the tensor {which.name} is not computed here", "a tensor of this schedule", which.name)
            return self._program.values[which]
        name = which if isinstance(which, str) else which.name
        if name in self._program.stages:
            return self._program.stages[name].value
        given = {v.name: v for v in self._program.values.values()}
        if name not in given:
            raise misfit("no such tensor", ", ".join({**given, **self._program.stages}), name)
        return given[name]


class Stage:
    """A tensor that is computed, and its loops. Each primitive returns the stage, so that they can be said one after the other."""

    def __init__(self, schedule: Schedule, name: str) -> None:
        self.schedule = schedule
        self.name = name

    # -- what there is

    @property
    def loops(self) -> tuple[Loop, ...]:
        """The loops, outermost first."""
        return tuple(Loop(self.name, entry.name) for entry in self._state.loops)

    def __getitem__(self, name: str) -> Loop:
        """The loop of this name.

        Raises:
            IngotError: INVALID_ARGUMENT, there is none.
        """
        return Loop(self.name, self._loop(name).name)

    # -- loops

    def split(self, loop: LoopLike, factor: int | None = None, *, nparts: int | None = None) -> tuple[Loop, Loop]:
        """Cut a loop in tiles of ``factor`` turns, or in at most ``nparts`` tiles; returns the outer and the inner loop.

        What is left over where the factor does not divide runs in tails of its own.

        before: ``for i in n``
        after:  ``for i.F in n by F: for i in F``

        Raises:
            IngotError: INVALID_ARGUMENT, a factor below 2, or one at which there is a tile already.
        """
        entry = self._loop(loop)
        if entry.parts:
            refuse(f"the loop {entry.name} is fused", "a loop of one axis: split before fuse", entry.name)
        if (factor is None) == (nparts is None):
            refuse(
                "split takes a factor or a number of parts", "one of factor and nparts", "both" if factor else "neither"
            )
        if factor is None:
            assert nparts is not None
            factor = self._turns_of_part(entry, nparts)
        step = Split(self.name, entry.axis, entry.step * factor)
        self._with_steps(step)
        return Loop(self.name, f"{entry.axis}.{step.factor}"), Loop(self.name, entry.name)

    def tile(self, rows: LoopLike, columns: LoopLike, height: int, width: int) -> tuple[Loop, Loop, Loop, Loop]:
        """Split two loops and put both outer ones outside of both inner ones; returns all four, outermost first.

        before: ``for i: for j``
        after:  ``for i.H: for j.W: for i in H: for j in W``
        """
        before = self.schedule.program
        try:
            outer, inner = self.split(rows, height)
            further, nearer = self.split(columns, width)
            self.reorder(outer, further, inner, nearer)
        except IngotError:
            self.schedule.commit(before)
            raise
        return outer, further, inner, nearer

    def fuse(self, outer: LoopLike, inner: LoopLike) -> Loop:
        """Make one loop of two that stand one just inside of the other; returns it, ``i.j.fused``.

        It may be parallel, unrolled and reordered; not split or vectorized.

        before: ``for i in n: for j in m``
        after:  ``for f in n * m: i = f // m; j = f % m``

        Raises:
            IngotError: INVALID_ARGUMENT, others stand between them, one of them is reduced and one is not, a tile leaves a rest.
        """
        names = self._loop(outer).name, self._loop(inner).name
        self._with_steps(FuseLoops(self.name, *names))
        return Loop(self.name, f"{names[0]}.{names[1]}.fused")

    def reorder(self, *loops: LoopLike) -> Self:
        """Put ``loops`` in this order, outermost first, at the places that they have together; others stay where they are.

        before: ``for i: for j: for k``
        after:  ``for k: for j: for i``   (reorder("k", "i"))

        Raises:
            IngotError: INVALID_ARGUMENT, a loop is named twice, or tiles of an axis would stand inside of smaller ones.
        """
        names = [self._loop(loop).name for loop in loops]
        left = iter(names)
        order = tuple(next(left) if entry.name in names else entry.name for entry in self._state.loops)
        if len(set(names)) != len(names):
            refuse(f"reorder of {self.name} names a loop twice", "each loop once", ", ".join(names))
        return self._with_steps(Reorder(self.name, order))

    def vectorize(self, loop: LoopLike, lanes: int | None = None) -> Self:
        """Run a loop of constant length as one vector operation; with ``lanes``, the turns of a loop in vectors of so many.

        On a reduced axis the lanes accumulate apart and are combined at the end.

        before: ``for i in 16: T[i] = f(i)``
        after:  ``T[0:16] = f(0:16)``
        """
        if lanes is not None:
            before = self.schedule.program
            _, loop = self.split(loop, lanes)
            try:
                return self._with_steps(Vectorize(self.name, self._loop(loop).name))
            except IngotError:
                self.schedule.commit(before)
                raise
        return self._with_steps(Vectorize(self.name, self._loop(loop).name))

    def unroll(self, *loops: LoopLike) -> Self:
        """Repeat the body of loops of constant length.

        before: ``for i in 2: f(i)``
        after:  ``f(0); f(1)``
        """
        return self._with_steps(*(Unroll(self.name, self._loop(loop).name) for loop in loops))

    def guard(self, loop: LoopLike) -> Self:
        """Run the last tile in full, and ask of each element whether it is wanted, in place of a tail."""
        return self._with_steps(Guard(self.name, self._loop(loop).name))

    def parallel(self, *loops: LoopLike) -> Self:
        """Make the turns of ``loops``, the outermost ones of a stage at the root, tasks that threads take.

        before: ``for i in n: f(i)``
        after:  ``for task t in n: f(t)``

        Raises:
            IngotError: INVALID_ARGUMENT, they are not the outermost loops, or are reduced, or the stage is computed inside another.
        """
        stage = self._stage
        if not isinstance(stage.place, AtRoot):
            refuse(f"{self.name} is computed inside of another stage", "a stage at the root", self.name)
        return self._commit(replace(stage, tasks=tuple(self._loop(loop).name for loop in loops)))

    def bind(self, loop: LoopLike, axis: str) -> NoReturn:
        """Refused: a CPU has no axes of a device's threads; :meth:`parallel` gives the turns of a loop to threads.

        Raises:
            IngotError: INVALID_ARGUMENT, always.
        """
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            f"the loop {self._loop(loop).name} cannot be bound to {axis}: a CPU has no axes of threads",
            expected="a target that is a device",
            received="llvm",
            remedy="Give the turns of the loop to threads with parallel(), or to vector lanes with vectorize().",
        )

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
        if stage.name in self.schedule.program.outputs and not isinstance(place, AtRoot):
            refuse(f"{self.name} is a result, which has memory of its own", "a stage that is no result", self.name)
        if stage.tasks and not isinstance(place, AtRoot):
            refuse(f"the loops of {self.name} are tasks", "a stage without parallel loops", ", ".join(stage.tasks))
        return self._commit(replace(stage, place=place))

    @property
    def _stage(self) -> ProgramStage:
        return self.schedule.program.stage(self.name)

    @property
    def _state(self) -> KernelStage:
        """The stage after its own steps."""
        stage = self._stage
        tensor = replace(stage.value, op=stage.definition)
        return apply_schedule(tensor, stage.steps).stage(self.name)

    def _loop(self, which: LoopLike) -> StageLoop:
        loops = self._state.loops
        if isinstance(which, Loop) and which.stage != self.name:
            refuse(f"the loop {which} is one of {which.stage}", f"a loop of {self.name}", str(which))
        name = str(which)
        found = next((entry for entry in loops if entry.name == name), None) or self._by_nickname(name)
        if found is None:
            refuse(f"{self.name} has no loop {name}", ", ".join(entry.name for entry in loops), name)
        return found

    def _by_nickname(self, name: str) -> StageLoop | None:
        """``i.outer`` and ``i.inner``, of an axis with two loops."""
        axis, _, which = name.rpartition(".")
        own = [entry for entry in self._state.loops if entry.axis == axis]
        return own[which == "inner"] if which in ("outer", "inner") and len(own) == 2 else None

    def _turns_of_part(self, entry: StageLoop, nparts: int) -> int:
        extent = next(a.extent for a in self._stage.definition.all_axes if a.name == entry.axis)
        if not isinstance(extent, int) or nparts < 1:
            refuse(
                f"{self.name}.{entry.axis} cannot be cut in parts", "an extent that is a number", f"{extent}, {nparts}"
            )
        own = [other.step for other in self._state.loops if other.axis == entry.axis and other.step > entry.step]
        return -(-min(own, default=extent) // (entry.step * nparts))

    def _with_steps(self, *steps: PlainStep) -> Self:
        stage = self._stage
        return self._commit(replace(stage, steps=(*stage.steps, *steps)))

    def _commit(self, stage: ProgramStage) -> Self:
        self.schedule.commit(self.schedule.program.with_stage(stage))
        return self


def schedule(*outputs: Tensor) -> Schedule:
    """A schedule of ``outputs`` and of what they are computed from, every stage at the root.

    Raises:
        IngotError: INVALID_ARGUMENT, one of them is given and not computed.
    """
    return Schedule(*outputs)
