"""Keeps the registry at what the version policies ask for: loads, swaps, retires, retries.

A version that answers is taken away only when what replaces it is loaded and warm, so a failed load, a half-written
store or an unreachable one changes nothing for the clients.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from runtime_service.metrics import Metrics
from runtime_service.models.registry import ModelRegistry, VersionState, VersionStatus
from runtime_service.models.source import VersionSource
from runtime_service.models.versions import ModelLoader
from runtime_service.policies import Selection
from runtime_service.settings import EVERY_MODEL, ModelSettings
from shared_ir.errors import ErrorCode, IngotError

_LOG = logging.getLogger(__name__)
"""As a configured name: every model of the store that the policy finds a version of."""
LONGEST_PAUSE = 300.0
"""Seconds between two attempts to load a version that keeps failing, at most; the first pauses double from 2."""


@dataclass(frozen=True, slots=True)
class _Retry:
    attempts: int
    not_before: float


class Follower:
    def __init__(
        self,
        registry: ModelRegistry,
        loader: ModelLoader,
        metrics: Metrics,
        changed: Callable[[], object] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``changed`` is called after every pass, so that readiness can be published."""
        self._registry = registry
        self._loader = loader
        self._source: VersionSource = loader.source
        self._metrics = metrics
        self._changed = changed
        self._clock = clock
        self._lock = threading.RLock()  # one pass at a time; load and unload requests take part
        self._models: dict[str, ModelSettings] = {}
        self._template: ModelSettings | None = None
        self._retries: dict[tuple[str, int], _Retry] = {}
        self._closing: list[threading.Thread] = []
        self._stop = threading.Event()

    def configure(self, models: tuple[ModelSettings, ...]) -> None:
        """Follow these models from the next pass on."""
        with self._lock:
            for model in models:
                if model.name == EVERY_MODEL:
                    self._template = model
                else:
                    self._models[model.name] = model
                    self._registry.add(model.name)

    def follow(self, model: ModelSettings) -> None:
        """Load a model now and keep following it.

        Raises:
            IngotError: it could not be loaded. A model that was not served before is forgotten again.
        """
        with self._lock:
            before = self._models.get(model.name)
            self._models[model.name] = model
            self._registry.add(model.name)
            self._retries = {key: retry for key, retry in self._retries.items() if key[0] != model.name}
            try:
                self._follow(model)
            except IngotError:
                if before is None and not self._registry.loaded(model.name):
                    del self._models[model.name]
                    self._registry.forget(model.name)
                raise
            finally:
                self._changed()

    def unfollow(self, name: str) -> None:
        """Unload all versions of a model; its requests in flight are finished.

        Raises:
            IngotError: NOT_FOUND, it is not served.
        """
        with self._lock:
            if name not in self._models:
                raise IngotError(ErrorCode.NOT_FOUND, f"no model {name[:200]!r} is served here", received=name[:200])
            del self._models[name]
            for version in self._registry.loaded(name):
                self._close(name, version)
            self._registry.forget(name)
            self._changed()

    def settings(self, name: str) -> ModelSettings | None:
        """How a model that is followed was configured."""
        return self._models.get(name)

    def reconcile(self) -> None:
        """One pass over all models. Errors are kept as states, never raised."""
        with self._lock:
            self._discover()
            for model in list(self._models.values()):
                if self._stop.is_set():  # what is loaded now would be unloaded at once
                    return
                try:
                    self._follow(model)
                except IngotError as error:
                    _LOG.warning("%s@%s: %s", model.name, model.policy, error)
                except Exception:
                    _LOG.exception("%s@%s: unexpected error", model.name, model.policy)
                self._changed()
            self._closing = [thread for thread in self._closing if thread.is_alive()]
        self._changed()

    def run(self, interval: float) -> None:
        """Reconcile every ``interval`` seconds until :meth:`stop`."""
        while True:
            self.reconcile()
            if self._stop.wait(interval):
                return

    def stop(self) -> None:
        """Make :meth:`run` return; models stay loaded."""
        self._stop.set()

    def close(self, grace: float = 1.0) -> bool:
        """Unload everything and wait for it; False, and nothing is unloaded, while something still loads after ``grace`` seconds."""
        self.stop()
        if not self._lock.acquire(timeout=grace):
            return False
        try:
            for name in list(self._models):
                self.unfollow(name)
            for thread in self._closing:
                thread.join()
        finally:
            self._lock.release()
        return True

    def _discover(self) -> None:
        if self._template is None:
            return
        try:
            names = self._source.models()
        except IngotError as error:
            self._metrics.poll_failed()
            _LOG.warning("cannot list the models of the store: %s", error)
            return
        for name in names:
            if name not in self._models and self._selectable(name, self._template):
                self._models[name] = replace(self._template, name=name)
                self._registry.add(name)

    def _selectable(self, name: str, model: ModelSettings) -> bool:
        try:
            model.policy.select(self._source.catalogue(name))
        except IngotError:
            return False
        return True

    def _follow(self, model: ModelSettings) -> None:
        """Bring one model to what its policy asks for; raises the first error and leaves the old versions alone, but for those
        whose signer is trusted no longer."""
        for version in self._registry.loaded(model.name):
            if self._source.revoked(model.name, version):
                self._close(model.name, version)
                _LOG.error(
                    "%s version %d is unloaded: the key that signed it is trusted no longer", model.name, version
                )
        selection = self._select(model)
        self._registry.want(model.name, selection)
        errors = [
            error
            for version in selection.versions
            if version not in self._registry.loaded(model.name)
            and not self._stop.is_set()
            and (error := self._load(model, version)) is not None
        ]
        for version in self._registry.activate(model.name, selection):
            self._close(model.name, version)
        if errors:
            raise errors[0]

    def _select(self, model: ModelSettings) -> Selection:
        try:
            return model.policy.select(self._source.catalogue(model.name))
        except IngotError as error:
            if error.code is not ErrorCode.NOT_FOUND:
                self._metrics.poll_failed()
            if not self._registry.loaded(model.name):
                self._registry.set_status(VersionStatus(model.name, 0, VersionState.UNAVAILABLE, str(error)))
            raise

    def _load(self, model: ModelSettings, version: int) -> IngotError | None:
        """Try one version, unless it is too soon after the last failure; failures become its state."""
        key = (model.name, version)
        retry = self._retries.get(key, _Retry(0, 0.0))
        begin = self._clock()
        if begin < retry.not_before:
            return None
        self._registry.set_status(
            replace(self._registry.status(*key), state=VersionState.LOADING, attempts=retry.attempts)
        )
        try:
            self._registry.install(self._loader.load(model, version))
        except Exception as error:
            return self._failed(key, retry.attempts + 1, _typed(error))
        self._retries.pop(key, None)
        self._metrics.loaded(self._clock() - begin)
        _LOG.info("%s version %d is ready after %.3f s", model.name, version, self._clock() - begin)
        return None

    def _failed(self, key: tuple[str, int], attempts: int, error: IngotError) -> IngotError:
        self._retries[key] = _Retry(attempts, self._clock() + min(LONGEST_PAUSE, 2.0**attempts))
        self._registry.set_status(VersionStatus(*key, VersionState.FAILED, str(error), attempts))
        self._metrics.load_failed(key[0], error.code)
        _LOG.error("%s version %d did not load (attempt %d): %s", *key, attempts, error)
        return error

    def _close(self, name: str, version: int) -> None:
        """Retire a version at once and free it when its last request is done, in a thread of its own."""
        served = self._registry.retire(name, version)
        thread = threading.Thread(target=served.close, name=f"close-{name}-{version}", daemon=True)
        self._closing.append(thread)
        thread.start()


def _typed(error: Exception) -> IngotError:
    if isinstance(error, IngotError):
        return error
    _LOG.error("unexpected error while loading", exc_info=error)
    return IngotError(
        ErrorCode.INTERNAL, f"loading failed with {type(error).__name__}; the log of the server has the details"
    )
