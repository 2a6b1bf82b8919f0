"""Keeps the registry at what is wanted: loads, swaps, retires, retries.

What is wanted is what the settings say and requests to load and unload have changed since. A version that answers is taken away only
when what replaces it is loaded and warm, so a failed load, a half-written store or an unreachable one changes nothing for the clients.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from runtime_service.metrics import Metrics
from runtime_service.model_settings import ModelSettings
from runtime_service.models.registry import ModelRegistry, VersionState, VersionStatus
from runtime_service.models.served import ServedModel
from runtime_service.models.source import VersionSource
from runtime_service.models.turns import ModelTurns
from runtime_service.models.versions import ModelLoader
from runtime_service.models.wanted import WantedModels
from runtime_service.policies import Selection
from shared_ir.errors import ErrorCode, IngotError

_LOG = logging.getLogger(__name__)
LONGEST_PAUSE = 300.0
"""Seconds between two attempts to load a version that keeps failing, at most; the first pauses double from 2."""
_MOMENT_SECONDS = 0.25
"""A key that is missing is looked for again after so long: who writes its file anew, or replaces the folder, leaves a moment without it."""


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
        """``changed`` is called whenever something has changed, so that readiness can be published."""
        self._registry = registry
        self._loader = loader
        self._source: VersionSource = loader.source
        self._metrics = metrics
        self._changed = changed
        self._clock = clock
        self._turns = ModelTurns()  # one model at a time; load and unload requests take part
        self._wanted = WantedModels()
        self._unread: set[str] = set()
        """Models whose versions and labels are to be read anew."""
        self._selections: dict[str, Selection] = {}
        self._settled: set[str] = set()
        """Models of which all is loaded, by keys that are trusted: nothing is done for them until something changes."""
        self._trusted: frozenset[str] = frozenset()
        self._retries: dict[tuple[str, int], _Retry] = {}
        self._closing: list[threading.Thread] = []
        self._stop = threading.Event()
        self._has_tried = False

    @property
    def has_tried(self) -> bool:
        """Whether the store could be asked, and each model that is wanted was tried since."""
        return self._has_tried

    def configure(self, models: tuple[ModelSettings, ...]) -> None:
        """Follow these models from the next pass on."""
        for name in self._wanted.configure(models):
            self._unread.add(name)
            self._registry.add(name)
        self._registry.is_discovering = self._wanted.has_template

    def load(self, name: str, policy: str = "") -> None:
        """Load what ``policy`` says of a model, now, and keep following it; without one by the policy that it has, or had last.

        Raises:
            IngotError: it cannot be. Nothing has changed then.
        """
        with self._turns.request():
            model = self._wanted.proposed(name, policy)
            selection = model.policy.select(self._source.catalogue(name))
            is_known = name in self._wanted
            here = self._registry.loaded(name) if is_known else ()
            try:
                loaded = self._load_together(model, [version for version in selection.versions if version not in here])
            except IngotError:
                if not is_known:
                    self._metrics.forget(name)
                raise
            self._wanted.put(model)
            self._registry.add(name, came_later=True)  # it counts from the moment on that it answers
            self._registry.want(name, selection)
            for served in loaded:
                self._registry.install(served)
                self._retries.pop((name, served.version), None)
            self._select(name, selection)
            self._settled.discard(name)
            self._activate(name, selection)
        self._changed()

    def unload(self, name: str) -> None:
        """Unload all versions of a model, and follow it no longer; its requests in flight are finished.

        Raises:
            IngotError: NOT_FOUND, it is not served.
        """
        with self._turns.request():
            if name not in self._wanted:
                raise IngotError(ErrorCode.NOT_FOUND, f"no model {name[:200]!r} is served here", received=name[:200])
            self._wanted.drop(name)
            self._forget(name)
        self._changed()

    def settings(self, name: str) -> ModelSettings | None:
        """How a model that is followed was configured."""
        return self._wanted.get(name)

    def reconcile(self) -> None:
        """One pass over all models. Errors are kept as states, never raised."""
        was_asked = self._learn()
        for name in self._wanted.names():
            if name in self._settled and name not in self._unread:
                continue
            with self._turns.turn():
                model = self._wanted.get(name)
                if self._stop.is_set():
                    return
                has_changed = model is not None and self._follow_safely(model)
            if has_changed:
                self._changed()
        self._has_tried = self._has_tried or was_asked
        self._changed()

    def run(self, interval: float) -> None:
        """Reconcile every ``interval`` seconds until :meth:`stop`."""
        while True:
            self.reconcile()
            if self._stop.wait(interval):
                return

    def stop(self) -> None:
        """Make :meth:`run` return, at the latest when the version is loaded that it is at; models stay loaded."""
        self._stop.set()

    def close(self, patience: float | None = None) -> bool:
        """Unload everything and wait for it; False where a version was still being loaded after ``patience`` seconds: what is
        loaded stays so."""
        self.stop()
        with self._turns.request(patience) as is_ours:
            if not is_ours:
                return False
            for name in self._wanted.names():
                self._wanted.drop(name)
                self._forget(name)
        for thread in self._closing:
            thread.join()
        return True

    def _learn(self) -> bool:
        """Note what is to be looked at anew, and find models that nobody has named; whether the store answered."""
        try:
            trusted = self._source.trusted()
            if self._trusted - trusted:
                self._stop.wait(_MOMENT_SECONDS)
                trusted = self._source.trusted()
            if trusted != self._trusted:
                self._trusted = trusted
                self._settled.clear()
            self._unread |= self._source.changes(None if self._wanted.has_template else self._wanted.names())
        except Exception as error:
            self._metrics.poll_failed()
            _LOG.warning("cannot look at the store: %s", error, exc_info=not isinstance(error, IngotError))
            return False
        for name in sorted(self._unread):
            found = self._wanted.discoverable(name)
            if found is not None:
                self._discover(found)
            elif name not in self._wanted:
                self._unread.discard(name)
        if all(name in self._wanted for name in self._unread):
            self._registry.is_discovering = False
        return True

    def _discover(self, model: ModelSettings) -> None:
        """Want a model of the store that nobody has named, if its policy finds a version. NOTE: who was not reached is asked again."""
        try:
            selection = model.policy.select(self._source.catalogue(model.name))
        except Exception as error:
            if not isinstance(error, IngotError):
                _LOG.exception("%s@%s: unexpected error", model.name, model.policy)
            elif error.code is not ErrorCode.UNAVAILABLE:
                self._unread.discard(model.name)
            return
        with self._turns.turn():
            if self._wanted.discoverable(model.name) is not None:  # nobody has loaded it meanwhile
                self._wanted.put(model)
                self._select(model.name, selection)
                self._registry.add(model.name, came_later=self._has_tried)
        self._unread.discard(model.name)

    def _follow_safely(self, model: ModelSettings) -> bool:
        """As :meth:`_follow`; what is raised is written to the log."""
        try:
            return self._follow(model)
        except IngotError as error:
            _LOG.warning("%s@%s: %s", model.name, model.policy, error)
        except Exception:
            _LOG.exception("%s@%s: unexpected error", model.name, model.policy)
        return True

    def _follow(self, model: ModelSettings) -> bool:
        """Bring one model to what its policy asks for, and leave the old versions alone where that fails, but for those whose signer is
        trusted no longer; whether anything has changed."""
        name = model.name
        self._settled.discard(name)
        revoked = [version for version in self._registry.loaded(name) if self._source.revoked(name, version)]
        for version in revoked:
            self._close(name, version)
            _LOG.error("%s version %d is unloaded: the key that signed it is trusted no longer", name, version)
        is_new = name in self._unread
        if is_new:
            self._read(model)
        selection = self._selections.get(name)
        if selection is None:
            return bool(revoked)
        here = self._registry.loaded(name)
        missing = [version for version in selection.versions if version not in here]
        if not (is_new or missing or revoked):
            self._settled.add(name)
            return False
        self._registry.want(name, selection)
        has_tried = [self._try(model, version) for version in missing]
        self._activate(name, selection)
        if set(selection.versions) <= set(self._registry.loaded(name)):
            self._settled.add(name)
        return bool(is_new or revoked or any(has_tried))

    def _read(self, model: ModelSettings) -> None:
        """What the store says of a model now; raises what keeps it from being followed. NOTE: only an answer is one: who was not reached
        is asked again."""
        try:
            selection = model.policy.select(self._source.catalogue(model.name))
        except IngotError as error:
            if error.code is ErrorCode.UNAVAILABLE:
                self._metrics.poll_failed()
            else:
                self._selections.pop(model.name, None)
                self._unread.discard(model.name)
            if not self._registry.loaded(model.name):
                self._registry.set_status(VersionStatus(model.name, 0, VersionState.UNAVAILABLE, str(error)))
            raise
        self._select(model.name, selection)
        self._unread.discard(model.name)

    def _select(self, name: str, selection: Selection) -> None:
        """What the policy of a model asks for from now on; what is not there is said once."""
        before = self._selections.get(name)
        for term, reason in selection.missing.items():
            if before is None or term not in before.missing:
                _LOG.warning("%s: %s of its policy is not served: %s", name, term, reason)
        self._selections[name] = selection

    def _try(self, model: ModelSettings, version: int) -> bool:
        """Load one version, unless it is too soon after the last failure, which becomes its state; whether it was tried."""
        key = (model.name, version)
        retry = self._retries.get(key, _Retry(0, 0.0))
        if self._clock() < retry.not_before or self._stop.is_set():
            return False
        self._registry.set_status(
            replace(self._registry.status(*key), state=VersionState.LOADING, attempts=retry.attempts)
        )
        try:
            served = self._load(model, version)
        except IngotError as error:
            attempts = retry.attempts + 1
            self._retries[key] = _Retry(attempts, self._clock() + min(LONGEST_PAUSE, 2.0**attempts))
            self._registry.set_status(VersionStatus(*key, VersionState.FAILED, str(error), attempts))
            return True
        if self._stop.is_set():  # nobody waits for it any more
            served.close()
            return False
        self._registry.install(served)
        self._retries.pop(key, None)
        return True

    def _load_together(self, model: ModelSettings, versions: Sequence[int]) -> list[ServedModel]:
        """All of them or, where one does not load, none."""
        loaded: list[ServedModel] = []
        try:
            for version in versions:
                loaded.append(self._load(model, version))
        except IngotError:
            for served in loaded:
                served.close()
            raise
        return loaded

    def _load(self, model: ModelSettings, version: int) -> ServedModel:
        begin = self._clock()
        try:
            served = self._loader.load(model, version)
        except Exception as error:
            typed = _typed(error)
            self._metrics.load_failed(model.name, typed.code)
            _LOG.error("%s version %d did not load: %s", model.name, version, typed)
            raise typed from error
        self._metrics.loaded(self._clock() - begin)
        _LOG.info("%s version %d is loaded after %.3f s", model.name, version, self._clock() - begin)
        return served

    def _activate(self, name: str, selection: Selection) -> None:
        for version in self._registry.activate(name, selection):
            self._close(name, version)

    def _forget(self, name: str) -> None:
        for version in self._registry.loaded(name):
            self._close(name, version)
        self._registry.forget(name)
        self._selections.pop(name, None)
        self._unread.discard(name)
        self._settled.discard(name)
        self._retries = {key: retry for key, retry in self._retries.items() if key[0] != name}

    def _close(self, name: str, version: int) -> None:
        """Retire a version at once and free it when its last request is done, in a thread of its own."""
        served = self._registry.retire(name, version)
        thread = threading.Thread(target=served.close, name=f"close-{name}-{version}", daemon=True)
        self._closing = [*(each for each in self._closing if each.is_alive()), thread]
        thread.start()


def _typed(error: Exception) -> IngotError:
    if isinstance(error, IngotError):
        return error
    _LOG.error("unexpected error while loading", exc_info=error)
    return IngotError(
        ErrorCode.INTERNAL, f"loading failed with {type(error).__name__}; the log of the server has the details"
    )
