"""Options of a compilation: everything a user can ask for beside the model and the target."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from numbers import Integral
from typing import Any, Literal, Self

from compiler_service.compiler.frontend.options import ImportOptions, ShapeOverride
from shared_ir.errors import ErrorCode, IngotError

OPT_LEVELS = (0, 1, 2, 3)
BUNDLES = ("", "executable", "shared")
VERIFICATIONS = ("available", "required", "off")
MOST_TUNING_SECONDS = 86_400
"""A day."""


@dataclass(frozen=True)
class CompileOptions:
    """Options that change the code; all of them are part of the artifact key.

    Attributes:
        opt_level: 0 (nothing but what is needed to run) to 3 (everything).
        shapes: input name -> shape, to pin dims (numbers) or name them; ``None`` leaves a dim as the model says.
        disabled_passes: names of graph passes to leave out.
        name: name of the model in the artifact; empty: the graph's own.
        bundle: a further file in the artifact that holds the weights too: ``executable``, a static program for a device
            with nothing installed, or ``shared``, a library for C; empty for none.
        winograd: whether convolutions may be computed by Winograd's filtering (at level 3, where it pays): its rounding
            errors are larger than those of a plain sum, see ``algorithms`` in the report.
        strassen: whether products may be computed by Strassen's algorithm (at level 3, where it pays): the same holds, and their
            weights become 1.75 times as large.
        denormals: whether float32 and float64 results below the least normal number are kept, which costs x86 a hundred times
            the time of an operation whose result is one; else they are zero there. Those that a model reads always count.
        overridable: names of initializers that the graph lists among its inputs and that a caller may give in place of them;
            None: all of them where they are few numbers and the model compiles without knowing them, else none.
        tune: seconds that faster schedules may be looked for, by measuring them on the compiling machine; 0: records are used, and none
            is added.
        verification: of a job of the service, whether the answers are compared with another implementation's before anything is
            published: where the worker can run the code or has an emulator (``available``), always, so that the job fails
            where it cannot be done (``required``), or not (``off``).
    """

    opt_level: int = 3
    shapes: Mapping[str, ShapeOverride] = field(default_factory=dict)
    disabled_passes: tuple[str, ...] = ()
    name: str = ""
    tune: int = 0
    bundle: Literal["", "executable", "shared"] = ""
    winograd: bool = True
    strassen: bool = True
    denormals: bool = False
    overridable: tuple[str, ...] | None = None
    verification: Literal["available", "required", "off"] = "available"

    def __post_init__(self) -> None:
        whole = type(self.opt_level) is int  # True and 3.0 equal numbers, and would be further keys of the same code
        if not whole or self.opt_level not in OPT_LEVELS:
            raise _refused("no such optimisation level", "opt_level", "0, 1, 2 or 3", self.opt_level)
        if type(self.tune) is not int or not 0 <= self.tune <= MOST_TUNING_SECONDS:
            expected = f"a whole number of seconds from 0 to {MOST_TUNING_SECONDS}"
            raise _refused("no such time for tuning", "tune", expected, self.tune)
        if self.bundle not in BUNDLES:
            raise _refused("no such kind of bundle", "bundle", ", ".join(BUNDLES[1:]), self.bundle)
        if self.verification not in VERIFICATIONS:
            raise _refused("no such verification", "verification", ", ".join(VERIFICATIONS), self.verification)
        if not isinstance(self.name, str):
            raise _refused("the name of a model is a text", "name", "a string", self.name)
        for option in fields(self):
            value = getattr(self, option.name)
            if isinstance(option.default, bool) and not isinstance(value, bool):
                raise _refused(f"the option {option.name} is yes or no", option.name, "true or false", value)

    def allows(self, method: str) -> bool:
        """Whether a method that rounds more than plain sums may be used: unless an option of its name forbids it."""
        return self.opt_level >= 3 and getattr(self, method, True)

    @property
    def fast_ways(self) -> bool:
        """Whether runs that need less have a way of their own; below level 3, which fuses, it would be no faster."""
        return self.opt_level >= 3

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Options from JSON values.

        Raises:
            IngotError: INVALID_ARGUMENT naming an unknown option or one of the wrong kind.
        """
        known = {f.name for f in fields(cls)}
        for name in data:
            if name not in known:
                raise IngotError(
                    ErrorCode.INVALID_ARGUMENT,
                    "there is no such option",
                    field=name,
                    expected=", ".join(sorted(known)),
                    received=name,
                )
        values = dict(data)
        if "shapes" in values:
            values["shapes"] = _shapes(values["shapes"])
        for name in ("disabled_passes", "overridable"):
            if values.get(name) is not None:
                values[name] = _names(name, values[name])
        return cls(**values)

    def to_dict(self) -> dict[str, Any]:
        """JSON values; :meth:`from_dict` is the inverse."""
        data = asdict(self)
        data["shapes"] = {k: list(v) for k, v in self.shapes.items()}
        data["disabled_passes"] = list(self.disabled_passes)
        if self.overridable is None:
            del data["overridable"]
        else:
            data["overridable"] = list(self.overridable)
        if self.verification == VERIFICATIONS[0]:
            del data["verification"]  # workers of the version before know no such option
        return data

    @property
    def import_options(self) -> ImportOptions:
        return ImportOptions(shapes=self.shapes, overridable=self.overridable)


def _refused(message: str, option: str, expected: str, received: object) -> IngotError:
    text = received if isinstance(received, str) else repr(received)
    return IngotError(ErrorCode.INVALID_ARGUMENT, message, field=option, expected=expected, received=text)


def _shapes(given: Any) -> dict[str, tuple[int | str | None, ...]]:
    """An empty string stands for None where that cannot travel."""
    if not isinstance(given, Mapping):
        raise _refused("shapes are named by their inputs", "shapes", "{'x': [1, 3, 'h', None]}", given)
    for name, shape in given.items():
        listed = isinstance(shape, Sequence) and not isinstance(shape, str | bytes)
        if not isinstance(name, str) or not listed or not all(map(_is_dim, shape)):
            expected = "a list of numbers, names and None, such as [1, 3, 'h', None]"
            raise _refused(f"the shape of {name!r} is no list of dims", "shapes", expected, shape)
    return {name: tuple(_dim(dim) for dim in shape) for name, shape in given.items()}


def _is_dim(value: Any) -> bool:
    return value is None or isinstance(value, str) or (isinstance(value, Integral) and not isinstance(value, bool))


def _dim(value: Any) -> int | str | None:
    return int(value) if isinstance(value, Integral) else value or None


def _names(option: str, given: Any) -> tuple[str, ...]:
    if isinstance(given, str) or not isinstance(given, Iterable) or not all(isinstance(n, str) for n in given):
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            f"the option {option} is a list of names",
            field=option,
            expected=f"[{given!r}]" if isinstance(given, str) else "a list of strings",
            received=repr(given),
            remedy="Write it as a list, of one name too.",
        )
    return tuple(given)
