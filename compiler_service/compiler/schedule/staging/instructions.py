"""Instructions that a stage can be summed by, each with what it computes, and the proof that a stage computes that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from compiler_service.compiler.schedule.language.state import misfit
from compiler_service.compiler.schedule.model.byte_products import (
    BYTES_OF_WORD,
    ByteProduct,
    match_byte_product,
    words_in,
)
from compiler_service.compiler.schedule.staging.lowered import LoweredKernel
from compiler_service.compiler.schedule.staging.program import StagedProgram
from compiler_service.compiler.schedule.staging.stage import ProgramStage, stage_value
from compiler_service.compiler.tensor_expr.tensor import Axis, Compute, Reduction, Tensor, topological
from shared_ir.dtype import DType
from shared_ir.expr import Binary, BinaryOp, binary, walk
from shared_ir.expr.operations import DOT4_OF
from shared_ir.machine.target import Target


@dataclass(frozen=True)
class Instruction:
    """A row: ``total + sum over k < 4 of int32(left[k]) * int32(right[k])`` in int32 for each lane of a vector.

    Attributes:
        left, right: element types of the factors.
        architecture: of the machines that may have it; :attr:`Target.dot4` says which do.
    """

    name: str
    left: DType
    right: DType
    architecture: str

    @property
    def operation(self) -> BinaryOp:
        """What stands for it in expressions: ``dot4(word of left, word of right)``."""
        return DOT4_OF[self.left]

    def __str__(self) -> str:
        terms = f"sum over k < {BYTES_OF_WORD} of int32({self.left} a[k]) * int32({self.right} b[k])"
        return f"{self.name}: total[lane] += {terms}"

    def is_of(self, target: Target) -> bool:
        """Whether machines of this kind have it."""
        return target.architecture == self.architecture and target.dot4 is self.left


INSTRUCTIONS: Mapping[str, Instruction] = MappingProxyType(
    {
        row.name: row
        for row in (
            Instruction("vpdpbusd", DType.UINT8, DType.INT8, "x86_64"),
            Instruction("sdot", DType.INT8, DType.INT8, "aarch64"),
        )
    }
)
"""The rows of ``Schedule.tensorize``, by the names of the instructions."""


def tensorize(program: StagedProgram, name: str, axis: str, instruction: str) -> tuple[StagedProgram, tuple[str, str]]:
    """With the sum ``name`` along ``axis`` by ``instruction``, and new stages for the words of its factors, whose names come with it.

    before: ``T[i, j] = sum over k < n of int32(A[i, k]) * int32(W[k, j])``
    after:  ``A.words[i, w] = ..; W.words[w, j] = ..; T[i, j] = sum over w < ceil(n / 4) of dot4(A.words[i, w], W.words[w, j])``

    Raises:
        IngotError: INVALID_ARGUMENT, there is no such row, or the stage is not proven to be what it computes.
    """
    row = INSTRUCTIONS.get(instruction)
    if row is None:
        raise misfit("there is no such instruction", ", ".join(INSTRUCTIONS), instruction)
    stage = program.stage(name)
    if not stage.is_untouched:
        raise misfit(f"tensorize of {name} must come before steps of its loops", "tensorize first", name)
    product = match_byte_product(replace(stage.value, op=stage.definition), stage.definition.body)
    if product is None or product.depth.name != axis or product.data.dtype is not row.left:
        raise misfit(f"{name} is not proven to be what {row.name} computes along {axis}", str(row), _shown(stage))
    names = []
    words: list[Tensor] = []
    for tensor, place in ((product.data.tensor, product.place), (product.weight.tensor, product.position)):
        value, made = _words(program, tensor, place)
        program = program.before(name, made)
        names.append(made.name)
        words.append(value)
    return program.with_stage(replace(stage, definition=_summed(stage.definition, product, row, words))), (
        names[0],
        names[1],
    )


def check_instructions(kernel: LoweredKernel, target: Target) -> None:
    """
    Raises:
        IngotError: INVALID_ARGUMENT, ``target`` lacks an instruction that the kernel was tensorized with.
    """
    for tensor in topological(kernel.kernel.output):
        used = (
            {e.op for e in walk(tensor.op.body) if isinstance(e, Binary)} if isinstance(tensor.op, Compute) else set()
        )
        for row in INSTRUCTIONS.values():
            if row.operation in used and not row.is_of(target):
                have = ", ".join(r.name for r in INSTRUCTIONS.values() if r.is_of(target)) or "none of the rows"
                raise misfit(f"{tensor.name} is summed by {row.name}, which {target.cpu} does not have", have, row.name)


def _words(program: StagedProgram, tensor: Tensor, place: int) -> tuple[Tensor, ProgramStage]:
    """A stage with the words of the bytes of ``tensor`` along the axis ``place``."""
    axes = tuple(Axis(f"{tensor.name}_{number}", extent) for number, extent in enumerate(tensor.shape))
    indices = tuple(a.var for a in axes)
    body = words_in(tensor[indices], indices[place], tensor.shape[place])
    length = tensor.shape[place]
    assert isinstance(length, int)  # of a byte product
    count = -(-length // BYTES_OF_WORD)
    shape = tuple(count if number == place else extent for number, extent in enumerate(tensor.shape))
    value = stage_value(program.fresh(f"{tensor.name}.words"), replace(tensor, shape=shape, dtype=DType.INT32))
    own = tuple(replace(a, extent=extent) for a, extent in zip(axes, shape, strict=True))
    return value, ProgramStage(value, Compute(own, body))


def _summed(definition: Compute, product: ByteProduct, row: Instruction, words: list[Tensor]) -> Compute:
    found = definition.reduction
    assert found is not None
    length = product.depth.extent
    assert isinstance(length, int)
    short = replace(product.depth, extent=-(-length // BYTES_OF_WORD))
    axes = tuple(short if a is product.depth else a for a in found.axes)
    factors = [word[load.indices] for word, load in zip(words, (product.data, product.weight), strict=True)]
    return Compute(definition.axes, binary(row.operation, *factors), Reduction(found.op, axes, found.exact))


def _shown(stage: ProgramStage) -> str:
    reduction = stage.definition.reduction
    kind = "no sum" if reduction is None else f"{reduction.op} over {', '.join(a.name for a in reduction.axes)}"
    return f"{kind} of {stage.definition.body.dtype}"
