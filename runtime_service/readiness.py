"""When the server says that it is ready, by the models that it is to serve."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from shared_ir.artifact.published import is_model_name
from shared_ir.errors import ErrorCode, IngotError

RULES = ("all", "any", "none")


@dataclass(frozen=True, slots=True)
class ModelStanding:
    """How far a model has come.

    Attributes:
        answers: requests that name no version get an answer.
        is_complete: everything that its policy asks for was loaded at least once.
        came_later: it was found when the server had tried all others already.
    """

    answers: bool
    is_complete: bool
    came_later: bool


@dataclass(frozen=True, slots=True)
class ReadyRule:
    """``all``: every model is complete and answers, and there is one. ``any``: one answers, the others were tried. ``none``: they were
    tried. Else ``names``: these models answer and are complete.

    A model that comes later counts once it was complete: otherwise one publication that does not load would take every replica out of
    service at once.
    """

    word: str = "all"
    names: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str, where: str) -> Self:
        """Raises IngotError INVALID_ARGUMENT, naming ``where`` it stands."""
        if text in RULES:
            return cls(text)
        names = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
        if not all(is_model_name(name) for name in names):
            raise IngotError(
                ErrorCode.INVALID_ARGUMENT,
                "a setting is out of range",
                field=where,
                expected="all, any, none, or names of models separated by commas",
                received=repr(text)[:100],
            )
        return cls("", names)

    def holds(self, models: Mapping[str, ModelStanding], tried: bool) -> bool:
        """Whether the server is ready with ``models``. ``tried``: each of them was tried, and the store was there to be asked."""
        if self.word == "none":
            return tried
        if self.word == "any":
            return tried and any(model.answers for model in models.values())
        if self.word == "all":
            counted = [model for model in models.values() if model.is_complete or not model.came_later]
            return bool(counted) and all(model.is_complete and model.answers for model in counted)
        found = [models.get(name) for name in self.names]
        return all(model is not None and model.is_complete and model.answers for model in found)
