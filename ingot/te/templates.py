"""Templates: schedules that leave sizes and orders open, which :func:`ingot.te.tune` chooses by measuring."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from compiler_service.compiler.schedule.language.knobs import NO_VALUES, Knobs, Values
from ingot.te.scheduling import Schedule
from shared_ir.errors import ErrorCode, IngotError

Config = Knobs
"""What a template asks: ``cfg.choice``, ``cfg.range``, ``cfg.split``, ``cfg.flag``, each with the default."""


class Template:
    """A function ``(cfg, *args) -> te.Schedule`` that leaves sizes and orders open; see :func:`template`.

    Attributes:
        name: of the function.
    """

    def __init__(self, function: Callable[..., Schedule]) -> None:
        self._function = function
        self.name: str = getattr(function, "__name__", "template")
        functools.update_wrapper(self, function)

    def __call__(self, cfg: Config, *args: Any) -> Schedule:
        """The schedule with the answers of ``cfg``.

        Raises:
            IngotError: INVALID_ARGUMENT, a step does not fit, or the function gives no schedule or ends the process.
        """
        try:
            found = self._function(cfg, *args)
        except (
            SystemExit
        ) as error:  # it is called again and again, here and in other processes: it must not end any of them
            raise IngotError(
                ErrorCode.INVALID_ARGUMENT,
                f"the template {self.name} ends the process",
                expected="what te.schedule gives",
                received=f"SystemExit({error.code!r})"[:80],
            ) from error
        if not isinstance(found, Schedule):
            raise IngotError(
                ErrorCode.INVALID_ARGUMENT,
                f"the template {self.name} gives no schedule",
                expected="what te.schedule gives",
                received=repr(found)[:80],
            )
        return found

    def schedule(self, *args: Any, values: Values = NO_VALUES) -> Schedule:
        """The schedule with these answers, by the names of the knobs; the defaults for all others."""
        return self(Knobs(values), *args)


def template(function: Callable[..., Schedule]) -> Template:
    """Makes a template of a function ``(cfg, *args) -> te.Schedule``: it asks ``cfg`` for each size or order that it leaves open, with
    the default, and schedules by the answers. Which knobs there are may depend on answers before."""
    return Template(function)
