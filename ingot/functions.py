"""Functions of arrays: what :func:`ingot.te.build` makes, and what is left of it in a folder.

::

    module = te.build({"add": (s, [A, B]), "mul": (t, [A, B])})
    module.save("functions")
    add = ingot.load_module("functions")["add"]
    c = add(a, b)
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn

import numpy as np

from ingot.artifact import Artifact
from ingot.home import home_directory
from ingot.model import load
from shared_ir.arrays import storage_dtype
from shared_ir.artifact.value import CompiledArtifact
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr.dim import dims_text
from shared_ir.plan.program import TensorSpec
from shared_ir.storage.faults import told

if TYPE_CHECKING:
    from runtime_service.loading.model import Model

Array = np.ndarray[Any, Any]
"""An array of numpy, of any element type."""
Form = Literal["loops", "llvm", "asm"]
"""What a function is looked at as."""
_overlap = np.may_share_memory
"""Whether arrays overlap; exact where both are contiguous."""
Inspection = Callable[[Form], str]
"""The text of a form of a function."""


class CompiledFunction:
    """Compiled code, called with one array for each argument; from any number of threads.

    Attributes:
        name: its own.
        artifact: its code and its signature; empty in one that was loaded from a folder.
    """

    def __init__(
        self, artifact: CompiledArtifact, threads: int | None = 1, inspection: Inspection | None = None
    ) -> None:
        self.artifact = Artifact.of(artifact)
        self.name: str = artifact.plan.name
        self._threads, self._inspection = threads, inspection
        self._inputs, self._outputs = artifact.plan.inputs, artifact.plan.outputs
        self._dtypes = tuple(storage_dtype(spec.dtype) for spec in self._inputs)
        self._count, self._is_single = len(self._inputs), len(self._outputs) == 1
        self._result_dtype = storage_dtype(self._outputs[0].dtype)

    @property
    def arguments(self) -> tuple[TensorSpec, ...]:
        """Name, element type and shape of each argument, in order."""
        return self._inputs

    @property
    def results(self) -> tuple[TensorSpec, ...]:
        """The same of the results."""
        return self._outputs

    def __call__(self, *arrays: Any, out: Any = None) -> Any:
        """The results for ``arrays``: C-contiguous numpy arrays, or what gives its memory by DLPack or the buffer protocol.

        Args:
            out: an array that the result is written to, or a tuple of one for each result; it is returned.

        Returns an array, or a tuple of arrays where there are several results.

        Raises:
            IngotError: INVALID_ARGUMENT: an array is missing, of another element type, rank or extent, not contiguous, or on a device;
                ``out`` cannot be written to or overlaps another array; extents for which the function would read outside of a
                tensor. ARTIFACT_INCOMPATIBLE: the function was built for another machine.
        """
        if len(arrays) != self._count:
            return self._called(arrays, out)
        for array, dtype in zip(arrays, self._dtypes):  # noqa: B905 - as many as there are; checking takes time
            if type(array) is not np.ndarray or array.dtype != dtype or not array.flags.carray:
                return self._called(arrays, out)
        if out is not None:
            return self._written(arrays, out)
        found = self._run(arrays)
        return found[0] if self._is_single else tuple(found)

    def save(self, directory: str | Path, home: str | Path | None = None) -> str:
        """Write this function as version ``name`` into the OCI image layout at ``directory``; see :meth:`ingot.Artifact.save`."""
        return self.artifact.save(directory, self.name, home)

    def inspect(self, form: Form = "loops") -> str:
        """The function as ``loops`` (:class:`ingot.ir.LoopProgram`), as LLVM IR (``llvm``) or as assembly (``asm``).

        Raises:
            IngotError: INVALID_ARGUMENT, there is no such form; NOT_FOUND, it was loaded from a folder, which holds code alone.
        """
        if form not in ("loops", "llvm", "asm"):
            expected = "loops, llvm, asm"
            raise IngotError(ErrorCode.INVALID_ARGUMENT, "there is no such form", expected=expected, received=str(form))
        if self._inspection is None:
            raise IngotError(
                ErrorCode.NOT_FOUND,
                f"function {self.name!r} was loaded, and code alone is saved",
                expected="a function that te.build returned",
                received="one of a folder",
                remedy="Build it again to look at it.",
            )
        return self._inspection(form)

    def __repr__(self) -> str:
        takes, gives = (", ".join(map(_declared, specs)) for specs in (self._inputs, self._outputs))
        return f"<function {self.name}({takes}) -> ({gives})>"

    @cached_property
    def _model(self) -> Model:
        return load(self.artifact, self._threads)

    @cached_property
    def _run(self) -> Callable[..., list[Array]]:
        return self._model.run_in_order

    def _written(self, arrays: Sequence[Array], out: Any) -> Any:
        """The call of ``arrays`` that are as they should be."""
        if self._is_single and type(out) is np.ndarray and out.dtype == self._result_dtype and out.flags.carray:
            for array in arrays:
                if _overlap(out, array):
                    break
            else:
                self._run(arrays, (out,))
                return out
        return self._called(arrays, out)

    def _called(self, given: Sequence[Any], out: Any) -> Any:
        """The call of arrays of any kind, one after the other, with what is wrong of them."""
        if len(given) != self._count:
            names = ", ".join(spec.name for spec in self._inputs)
            self._misfit(f"takes {self._count} arguments", names, f"{len(given)} arrays")
        arrays = [self._array(spec, array) for spec, array in zip(self._inputs, given, strict=True)]
        if out is None:
            found = self._run(arrays)
            return found[0] if self._is_single else tuple(found)
        places = out if isinstance(out, tuple) else (out,)
        if len(places) != len(self._outputs):
            names = ", ".join(spec.name for spec in self._outputs)
            self._misfit(f"has {len(self._outputs)} results", names, f"{len(places)} arrays in out")
        into = [self._array(spec, array, is_written=True) for spec, array in zip(self._outputs, places, strict=True)]
        self._require_apart(arrays, into)
        self._run(arrays, into)
        return out

    def _array(self, spec: TensorSpec, given: Any, *, is_written: bool = False) -> Array:
        array, wanted = self._memory(spec, given), storage_dtype(spec.dtype)
        if array.dtype != wanted:
            self._misfit(f"has another element type in {spec.name}", str(spec.dtype), str(array.dtype))
        flags = array.flags
        if not flags.c_contiguous or not flags.aligned:
            self._misfit(
                f"takes contiguous arrays, and {spec.name} is none",
                "rows that follow each other, as numpy.ascontiguousarray() makes them",
                f"strides of {array.strides} bytes",
            )
        if is_written and not flags.writeable:
            self._misfit(f"writes to {spec.name}", "memory that may be written to", "memory for reading only")
        return array

    def _memory(self, spec: TensorSpec, given: Any) -> Array:
        """``given`` as an array over the same memory."""
        if isinstance(given, np.ndarray):
            return given
        try:
            found: Array = np.from_dlpack(given) if hasattr(given, "__dlpack__") else np.asarray(memoryview(given))
        except (TypeError, BufferError, RuntimeError, ValueError) as error:
            kinds = "a numpy array, or an object of this machine's memory with DLPack or the buffer protocol"
            self._misfit(f"cannot read {spec.name}", kinds, f"{type(given).__name__} ({error})")
        return found

    def _require_apart(self, arrays: Sequence[Array], into: Sequence[Array]) -> None:
        named = [*zip(self._outputs, into, strict=True), *zip(self._inputs, arrays, strict=True)]
        for (spec, array), (other, memory) in itertools.combinations(named, 2):
            if spec in self._outputs and _overlap(array, memory):
                self._misfit(
                    f"writes to {spec.name} what {other.name} lies in",
                    "an array in out that overlaps no other one",
                    "memory that both share",
                )

    def _misfit(self, message: str, expected: str, received: str) -> NoReturn:
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT, f"function {self.name!r} {message}", expected=expected, received=received
        )


def _declared(spec: TensorSpec) -> str:
    return f"{spec.name}: {spec.dtype}[{dims_text(spec.shape)}]"


class CompiledModule(Mapping[str, CompiledFunction]):
    """Functions by name, that are saved together."""

    def __init__(self, functions: Mapping[str, CompiledFunction]) -> None:
        self._functions = dict(functions)

    def __getitem__(self, name: str) -> CompiledFunction:
        """The function of this name.

        Raises:
            IngotError: NOT_FOUND, there is none.
        """
        if name not in self._functions:
            known = ", ".join(self._functions)
            raise IngotError(ErrorCode.NOT_FOUND, "the module has no such function", expected=known, received=name)
        return self._functions[name]

    def __contains__(self, name: object) -> bool:
        return name in self._functions

    def __iter__(self) -> Iterator[str]:
        return iter(self._functions)

    def __len__(self) -> int:
        return len(self._functions)

    def save(self, directory: str | Path, home: str | Path | None = None) -> None:
        """Write every function as the version of its name into the OCI image layout at ``directory``; see :func:`load_module`."""
        for function in self._functions.values():
            function.save(directory, home)

    def inspect(self, form: Form = "loops") -> str:
        """All functions in this form, one after the other; see :meth:`CompiledFunction.inspect`."""
        return "\n\n".join(function.inspect(form) for function in self._functions.values())


def load_module(directory: str | Path, threads: int | None = None, *, home: str | Path | None = None) -> CompiledModule:
    """The functions that :meth:`CompiledModule.save` and :meth:`CompiledFunction.save` have written into ``directory``.

    Args:
        threads: of one call, by default as many as there are cores.
        home: installation whose ``trust/`` names the keys that may sign what is loaded.

    Raises:
        IngotError: NOT_FOUND, ARTIFACT_UNTRUSTED, ARTIFACT_INCOMPATIBLE, ARTIFACT_CORRUPT.
    """
    # NOTE: imported here because signatures need `cryptography`, which `import ingot` should not wait for.
    from shared_ir.artifact.layout import open_version, read_references
    from shared_ir.artifact.oci import REFERENCE
    from shared_ir.artifact.signature import TrustStore

    place = Path(directory)
    with told("the functions cannot be read", place):
        trust = TrustStore.load(home_directory(home) / "trust")
        tags = sorted(d.annotations.get(REFERENCE, "") for d in read_references(place))
        if not tags:
            expected = "what CompiledModule.save has written"
            raise IngotError(ErrorCode.NOT_FOUND, "there are no functions", field=str(place), expected=expected)
        found = {tag: open_version(place, tag, trust).to_artifact() for tag in tags}
    return CompiledModule({tag: CompiledFunction(artifact, threads) for tag, artifact in found.items()})
