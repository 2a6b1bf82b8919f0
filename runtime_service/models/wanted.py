"""Which models are to be served, and how: what the settings say, and what requests have changed since."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from runtime_service.model_settings import EVERY_MODEL, ModelSettings
from runtime_service.policies import VersionPolicy


class WantedModels:
    """A model that was unloaded by request stays so, also where the settings ask for every model of the store, until it is loaded by
    request or the server starts again."""

    def __init__(self) -> None:
        self._models: dict[str, ModelSettings] = {}
        self._template: ModelSettings | None = None
        self._dropped: dict[str, ModelSettings] = {}

    @property
    def has_template(self) -> bool:
        """Whether every model of the store is wanted for which the policy finds a version."""
        return self._template is not None

    def __contains__(self, name: str) -> bool:
        return name in self._models

    def configure(self, models: Iterable[ModelSettings]) -> tuple[str, ...]:
        """Names of those that are wanted from now on."""
        for model in models:
            if model.name == EVERY_MODEL:
                self._template = model
            else:
                self._models[model.name] = model
        return self.names()

    def get(self, name: str) -> ModelSettings | None:
        return self._models.get(name)

    def names(self) -> tuple[str, ...]:
        return tuple(self._models)

    def proposed(self, name: str, policy: str) -> ModelSettings:
        """How a model that is asked for would be served: as it is, was last, or as all are, but by ``policy`` where that is not empty.

        Raises:
            IngotError: INVALID_ARGUMENT, no policy.
        """
        found = self._models.get(name) or self._dropped.get(name) or self._like_all(name)
        found = found or ModelSettings(name, VersionPolicy.parse("stable"))
        return replace(found, policy=VersionPolicy.parse(policy)) if policy else found

    def discoverable(self, name: str) -> ModelSettings | None:
        """How a model of the store would be served that nobody has named; None where it is wanted already, or was unloaded."""
        return None if name in self._models or name in self._dropped else self._like_all(name)

    def put(self, model: ModelSettings) -> None:
        self._models[model.name] = model
        self._dropped.pop(model.name, None)

    def drop(self, name: str) -> None:
        self._dropped[name] = self._models.pop(name)

    def _like_all(self, name: str) -> ModelSettings | None:
        return None if self._template is None else replace(self._template, name=name)
