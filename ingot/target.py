"""Machines to compile for, as people write them."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Self

from ingot.sources import compiler
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.machine.target import PRESETS, resolve_target
from shared_ir.machine.target import Target as Machine

_own: dict[str, Machine] = {}
"""Presets of this process, :meth:`Target.register_preset`."""


@dataclass(frozen=True)
class Target(Machine):
    """A machine to compile for; every attribute can be read, and given.

    ``str(target)`` is its canonical text, which says what was filled in, and parses back to an equal target.
    """

    @classmethod
    def of(cls, machine: Machine) -> Self:
        """The same target, as one that can be written as text and read."""
        return cls(**{own.name: getattr(machine, own.name) for own in fields(Machine)})

    @classmethod
    def parse(cls, text: str) -> Self:
        """The target that ``text`` names::

            host                             this machine
            host -cores=2                    with changes
            aws/graviton3                    a preset, also one of :meth:`register_preset`
            llvm                             any machine with the triple of this one
            llvm -mcpu=broadwell             the triple of this machine is filled in
            llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72 -mattr=+neon -l2=1048576 -cores=4

        Raises:
            IngotError: INVALID_TARGET, naming the word at fault and near matches; UNAVAILABLE where the text does not say the triple
                and the compiler, which knows this machine, is not installed.
        """
        return cls.of(chosen_target(text))

    @classmethod
    def register_preset(cls, name: str, text: str) -> Self:
        """Let ``name`` stand for the target ``text``, in this process, wherever a target is named; the target is returned.

        A service does not know the name: what it is asked to compile for is sent as the text.

        Raises:
            IngotError: INVALID_TARGET as :meth:`parse`; ALREADY_EXISTS, the name stands for another target; INVALID_ARGUMENT, it is
                no name.
        """
        target = chosen_target(text)
        if not name or name.split() != [name] or name.startswith("-"):
            raise IngotError(
                ErrorCode.INVALID_ARGUMENT,
                "a preset is called by one word",
                field="name",
                expected="a name such as lab/board-3",
                received=repr(name),
            )
        if name in ("host", "llvm", *PRESETS) or _own.get(name, target) != target:
            raise IngotError(
                ErrorCode.ALREADY_EXISTS,
                f"the target {name!r} is another one already",
                field="name",
                received=str(target),
                remedy="Take another name.",
            )
        _own[name] = target
        return cls.of(target)


def chosen_target(given: str | Machine) -> Machine:
    """The target that is given, or that a text names, as :meth:`Target.parse` reads it.

    Raises:
        IngotError: INVALID_TARGET; UNAVAILABLE when the compiler is not installed.
    """
    if isinstance(given, Machine):
        return Machine(**{own.name: getattr(given, own.name) for own in fields(Machine)})
    with compiler():
        from compiler_service.compiler.codegen.toolchain.host import host_target

    return resolve_target(expanded(given), host_target)


def text_of(given: Any) -> Any:
    """What a service is told that knows no presets of this process; what is no target stays for it to refuse."""
    if isinstance(given, Machine):
        return str(given)
    return expanded(given) if isinstance(given, str) else given


def expanded(text: str) -> str:
    """``text``, in which a preset of this process stands as what it is."""
    if not isinstance(text, str):
        raise IngotError(
            ErrorCode.INVALID_TARGET,
            "not a target",
            field="target",
            expected="a text or an ingot.Target",
            received=type(text).__name__,
        )
    name, space, options = text.strip().partition(" ")
    return f"{_own[name]}{space}{options}" if name in _own else text
