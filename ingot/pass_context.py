"""Which passes run, and who watches them: what ``with ingot.ir.PassContext(...)`` sets for what happens inside."""

from __future__ import annotations

from collections.abc import Iterable
from contextvars import ContextVar
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar

from ingot.arguments import require_kind
from shared_ir.errors import ErrorCode, IngotError

if TYPE_CHECKING:
    from ingot.ir.module import Module

LEVELS = (0, 1, 2, 3)


class Instrument:
    """Told of every pass that runs inside a :class:`PassContext`; override what is of interest."""

    def before(self, name: str, module: Module) -> None:
        """Pass ``name`` is about to be given ``module``."""

    def after(self, name: str, module: Module, seconds: float) -> None:
        """Pass ``name`` made ``module``, the same object where it changed nothing."""


@dataclass(frozen=True)
class PassContext:
    """A context manager: inside it, passes, :class:`ingot.ir.Sequential` and :func:`ingot.compile` do as it says::

        with ir.PassContext(opt_level=2, disabled=["fold-batch-norm"], instruments=[ir.Printing()]):
            artifact = ingot.compile(module)

    Contexts nest; the innermost counts. Each thread and each task has its own.

    Attributes:
        opt_level: 0 (only what is needed to run) to 3 (everything): passes of a higher level are left out.
        disabled: names of passes that are left out.
        instruments: told before and after each pass, in this order.

    Raises:
        IngotError: INVALID_ARGUMENT, there is no such level, or ``disabled`` is no list of names.
    """

    opt_level: int = 3
    disabled: Iterable[str] = ()
    instruments: Iterable[Instrument] = ()

    _active: ClassVar[ContextVar[tuple[PassContext, ...]]] = ContextVar("active", default=())

    def __post_init__(self) -> None:
        if type(self.opt_level) is not int or self.opt_level not in LEVELS:
            raise _refused("no such optimisation level", "opt_level", "0, 1, 2 or 3", self.opt_level)
        if isinstance(self.disabled, str):
            raise _refused(
                "the passes to leave out are a list of names", "disabled", f"[{self.disabled!r}]", self.disabled
            )
        require_kind(self.disabled, Iterable, "disabled", "a list of names")
        object.__setattr__(self, "disabled", tuple(self.disabled))
        require_kind(self.instruments, Iterable, "instruments", "a list of ir.Instrument")
        object.__setattr__(self, "instruments", tuple(self.instruments))
        for own in self.instruments:
            if not (hasattr(own, "before") and hasattr(own, "after")):
                raise _refused("an instrument is told before and after each pass", "instruments", "ir.Instrument", own)

    def __enter__(self) -> PassContext:
        self._active.set((*self._active.get(), self))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._active.set(self._active.get()[:-1])

    @classmethod
    def current(cls) -> PassContext:
        """The innermost context; outside of all, one of level 3 in which every pass runs and nobody watches."""
        found = cls._active.get()
        return found[-1] if found else cls()

    @classmethod
    def is_active(cls) -> bool:
        """Whether this is inside of a context."""
        return bool(cls._active.get())

    def enables(self, name: str, level: int) -> bool:
        """Whether a pass runs in this context."""
        return level <= self.opt_level and name not in self.disabled


def _refused(message: str, option: str, expected: str, received: Any) -> IngotError:
    return IngotError(ErrorCode.INVALID_ARGUMENT, message, field=option, expected=expected, received=repr(received))
