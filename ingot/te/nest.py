"""The loops of a stage, and what can be said of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import NoReturn, Self

from compiler_service.compiler.schedule.language.apply import apply_schedule
from compiler_service.compiler.schedule.language.state import KernelStage, StageLoop
from compiler_service.compiler.schedule.language.steps import (
    FetchNext,
    FuseLoops,
    Guard,
    PlainStep,
    Reorder,
    Split,
    Unroll,
    Vectorize,
)
from compiler_service.compiler.schedule.staging.program import StagedProgram
from compiler_service.compiler.schedule.staging.stage import AtRoot, ProgramStage
from compiler_service.compiler.tensor_expr.tensor import Tensor
from ingot.te.loops import Loop, LoopLike, refuse, whole_number
from shared_ir.errors import ErrorCode, IngotError


class LoopNest(ABC):
    """Primitives of loops; each returns the stage, or the loops that it made."""

    name: str
    """Of the tensor."""

    @property
    @abstractmethod
    def _program(self) -> StagedProgram:
        """What was said so far."""

    @abstractmethod
    def _restore(self, program: StagedProgram) -> None:
        """Go on with ``program``, if every step of it fits. Raises IngotError INVALID_ARGUMENT."""

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
            factor = self._turns_of_part(entry, whole_number(nparts, "the number of parts"))
        factor = whole_number(factor, "the factor of split")
        step = Split(self.name, entry.axis, entry.step * factor)
        self._with_steps(step)
        return Loop(self.name, f"{entry.axis}.{step.factor}"), Loop(self.name, entry.name)

    def tile(self, rows: LoopLike, columns: LoopLike, height: int, width: int) -> tuple[Loop, Loop, Loop, Loop]:
        """Split two loops and put both outer ones outside of both inner ones; returns all four, outermost first.

        before: ``for i: for j``
        after:  ``for i.H: for j.W: for i in H: for j in W``
        """
        before = self._program
        try:
            outer, inner = self.split(rows, height)
            further, nearer = self.split(columns, width)
            self.reorder(outer, further, inner, nearer)
        except IngotError:
            self._restore(before)
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
            before = self._program
            _, loop = self.split(loop, lanes)
            try:
                return self._with_steps(Vectorize(self.name, self._loop(loop).name))
            except IngotError:
                self._restore(before)
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

    def prefetch(self, tensor: Tensor | LoopNest | str, loop: LoopLike, turns: int = 1) -> Self:
        """Ask memory, at each turn of ``loop``, for what the stage itself reads of ``tensor`` so many ``turns`` later.

        before: ``for i in n: T[i] = f(A[i])``
        after:  ``for i in n: { prefetch A[i + turns]; T[i] = f(A[i]) }``

        Raises:
            IngotError: INVALID_ARGUMENT, the stage does not read it, it is computed inside of the same nest, the loop is a vector or fused.
        """
        entry = self._loop(loop)
        turns = whole_number(turns, "the turns of prefetch")
        if turns < 1:
            refuse("prefetch of what is read already", "at least one turn ahead", str(turns))
        name = tensor if isinstance(tensor, str) else tensor.name
        if isinstance(tensor, Tensor) and tensor in self._program.values:
            name = self._program.values[tensor].name
        return self._with_steps(FetchNext(self.name, entry.name, name, entry.axis, entry.step * turns))

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

    # -- how it is done

    @property
    def _stage(self) -> ProgramStage:
        return self._program.stage(self.name)

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
        self._restore(self._program.with_stage(stage))
        return self
