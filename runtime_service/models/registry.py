"""The models in memory: states of versions, which of them answer, and who is using them.

All changes happen under one lock and swap whole values, so that a request sees either the old selection or the new one.
"""

from __future__ import annotations

import enum
import threading
from dataclasses import dataclass, field

from runtime_service.metrics import Metrics
from runtime_service.models.served import ServedModel
from runtime_service.policies import Selection
from runtime_service.readiness import ModelStanding
from runtime_service.splitting import Share, chosen
from shared_ir.artifact.published import NEWEST_VERSION
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.printable import some_of
from shared_ir.service_kit.waiting import WouldWait


class VersionState(enum.StrEnum):
    LOADING = "LOADING"
    READY = "READY"
    UNLOADING = "UNLOADING"
    UNAVAILABLE = "UNAVAILABLE"
    FAILED = "FAILED"


@dataclass(frozen=True, slots=True)
class VersionStatus:
    """State of one version; ``version`` 0 stands for what no version could be chosen for: a model, or labels of its policy.

    ``attempts`` counts the loads that were tried since the last success, ``reason`` says why the last one failed.
    """

    name: str
    version: int
    state: VersionState
    reason: str = ""
    attempts: int = 0


@dataclass(slots=True)
class _Model:
    """``active`` is what answers now; ``complete`` that all the policy asks for was loaded at least once; ``came_later`` that it was
    found when all others had been tried."""

    complete: bool = False
    came_later: bool = False
    active: Selection | None = None
    statuses: dict[int, VersionStatus] = field(default_factory=dict)
    served: dict[int, ServedModel] = field(default_factory=dict)


class ModelRegistry:
    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._lock = threading.Lock()
        self._models: dict[str, _Model] = {}
        self._split: set[str] = set()
        self.is_discovering = False
        """Whether models may be served that are not known here yet: nobody has named them, and the store was not read to its end."""

    @property
    def splits(self) -> bool:
        """Whether requests of any model are shared by weight."""
        return bool(self._split)

    # What requests ask.

    def acquire(self, name: str, version: str = "", key: str | None = None, waits: bool = True) -> ServedModel:
        """The version that ``version`` (number, label, ``latest`` or empty) means now; release it after use.

        Args:
            key: of a request that takes part in the split by weight, where it names no version; empty: it is drawn by itself. None:
                it takes no part, and goes to the default.
            waits: whether it may wait for its turn later on.

        Raises:
            WouldWait: it may not, and would be drawn once more where it had to: those that have to wait would be the fewer.
            IngotError: NOT_FOUND, no such model or version here; UNAVAILABLE, it is loading, or may be, or failed to load.
        """
        with self._lock:
            model = self._model(name)
            shares = model.active.shares if model.active is not None else ()
            split = key is not None and not version and shares
            if split and not key and not waits:
                raise WouldWait
            number = chosen(name, shares, key or "") if split else _resolve(name, model, version)
            served = model.served.get(number)
            if served is None:
                raise _not_ready(name, version, model.statuses.get(number), model)
            served.acquire()
            return served

    def ready_versions(self, name: str) -> tuple[int, ...]:
        """Raises IngotError NOT_FOUND: no such model here; UNAVAILABLE: that is not known yet."""
        with self._lock:
            return tuple(sorted(self._model(name).served))

    def names(self) -> tuple[str, ...]:
        with self._lock:
            return tuple(sorted(self._models))

    def statuses(self) -> tuple[VersionStatus, ...]:
        """One status per known version, by name and version."""
        with self._lock:
            found = [status for model in self._models.values() for status in model.statuses.values()]
        return tuple(sorted(found, key=lambda status: (status.name, status.version)))

    def standings(self) -> dict[str, ModelStanding]:
        """How far every model has come.

        An update takes nothing away: the old version answers until the new one does, also when that fails.
        """
        with self._lock:
            return {
                name: ModelStanding(model.active is not None, model.complete, model.came_later)
                for name, model in self._models.items()
            }

    def models_ready(self) -> dict[str, bool]:
        """Of every model, whether it has a version that answers by default."""
        with self._lock:
            return {name: model.active is not None for name, model in self._models.items()}

    # What the follower changes.

    def add(self, name: str, came_later: bool = False) -> None:
        """Make the model known, so that requests get UNAVAILABLE instead of NOT_FOUND until it is loaded."""
        with self._lock:
            if name not in self._models:
                self._models[name] = _Model(came_later=came_later)
                self._set(self._models[name], VersionStatus(name, 0, VersionState.LOADING))

    def forget(self, name: str) -> None:
        """The inverse of :meth:`add`; versions must have been retired."""
        with self._lock:
            self._models.pop(name, None)
            self._split.discard(name)
            self._metrics.forget(name)

    def want(self, name: str, selection: Selection) -> None:
        """Forget the statuses of versions that are neither loaded nor asked for any more."""
        with self._lock:
            model = self._models[name]
            self._drop(model, 0)
            for version in [v for v in model.statuses if v not in selection.versions and v not in model.served]:
                self._drop(model, version)

    def set_status(self, status: VersionStatus) -> None:
        with self._lock:
            self._set(self._models[status.name], status)

    def status(self, name: str, version: int) -> VersionStatus:
        with self._lock:
            unknown = VersionStatus(name, version, VersionState.UNAVAILABLE)
            return self._models[name].statuses.get(version, unknown)

    def install(self, served: ServedModel) -> None:
        """Make a loaded and warm version answer requests that name its number."""
        with self._lock:
            model = self._models[served.name]
            model.served[served.version] = served
            self._set(model, VersionStatus(served.name, served.version, VersionState.READY))

    def activate(self, name: str, selection: Selection) -> tuple[int, ...]:
        """Send requests to the versions of ``selection`` that are loaded; what is not loaded yet keeps its old version.

        So a label moves as soon as its own version is there, and a broken canary does not hold up the stable one.

        Returns:
            Loaded versions that nothing points at any more.
        """
        with self._lock:
            model = self._models[name]
            if not model.served:
                return ()
            model.complete = model.complete or set(selection.versions) <= model.served.keys()
            model.active = _merge(selection, model.active, frozenset(model.served))
            if selection.missing:
                why = "; ".join(f"{term}: {reason}" for term, reason in selection.missing.items())
                self._set(model, VersionStatus(name, 0, VersionState.UNAVAILABLE, why))
            self._share(name, model.active)
            if selection.default not in model.served:
                return ()
            return tuple(version for version in sorted(model.served) if version not in model.active.versions)

    def loaded(self, name: str) -> tuple[int, ...]:
        with self._lock:
            return tuple(sorted(self._models[name].served))

    def retire(self, name: str, version: int) -> ServedModel:
        """Take a version out of service; the caller closes it (which waits for its requests)."""
        with self._lock:
            model = self._models[name]
            served = model.served.pop(version)
            self._drop(model, version)
            if not model.served:
                model.active = None
                self._share(name, None)
            return served

    def _model(self, name: str) -> _Model:
        model = self._models.get(name)
        if model is None and self.is_discovering:
            message = f"whether a model {name[:200]!r} is served here is not known yet: models are being loaded"
            raise IngotError(ErrorCode.UNAVAILABLE, message, remedy="Retry in a moment.")
        if model is None:
            raise IngotError(
                ErrorCode.NOT_FOUND,
                f"no model {name[:200]!r} is served here",
                expected="one of " + (some_of([repr(each) for each in sorted(self._models)]) or "(no models)"),
                received=repr(name[:200]),
            )
        return model

    def _share(self, name: str, active: Selection | None) -> None:
        if active is not None and active.shares:
            self._split.add(name)
        else:
            self._split.discard(name)
        self._metrics.set_shares(name, () if active is None else active.served_shares)

    def _set(self, model: _Model, status: VersionStatus) -> None:
        model.statuses[status.version] = status
        self._metrics.set_state(status.name, status.version, status.state)

    def _drop(self, model: _Model, version: int) -> None:
        status = model.statuses.pop(version, None)
        if status is not None:
            self._metrics.drop_state(status.name, version)


def _merge(wanted: Selection, old: Selection | None, loaded: frozenset[int]) -> Selection:
    """``wanted`` where its versions are loaded, ``old`` where they are not."""
    labels = {label: version for label, version in wanted.labels.items() if version in loaded}
    default = wanted.default
    if old is not None:
        kept = {label: version for label, version in old.labels.items() if label in wanted.labels and version in loaded}
        labels = kept | labels
    if default not in loaded:
        default = old.default if old is not None and old.default in loaded else max(loaded)
    shares = _shares(wanted, old, loaded, default)
    versions = (loaded & set(wanted.versions)) | {default, *labels.values(), *(share.version for share in shares)}
    return Selection(tuple(sorted(versions)), default, labels, shares, wanted.term)


def _shares(wanted: Selection, old: Selection | None, loaded: frozenset[int], default: int) -> tuple[Share, ...]:
    """A share whose version is not loaded has its old one, or else the default: its keys stay together."""
    before = {share.term: share.version for share in old.shares} if old is not None else {}
    places = ((share, (share.version, before.get(share.term, default), default)) for share in wanted.shares)
    return tuple(
        Share(share.term, next(version for version in versions if version in loaded), share.weight)
        for share, versions in places
    )


def _resolve(name: str, model: _Model, version: str) -> int:
    if version.isdecimal() and version.isascii():
        number = int(version[:20])
        if number in model.served or number in model.statuses:
            return number
    elif model.active is None:
        return next(iter(model.statuses), 0)
    elif not version:
        return model.active.default
    elif version in model.active.labels:
        return model.active.labels[version]
    elif version == NEWEST_VERSION:
        return max(model.active.versions)
    known = [*map(str, sorted(model.served)), *sorted(model.active.labels if model.active else ())]
    raise IngotError(
        ErrorCode.NOT_FOUND,
        f"the model {name!r} has no version {version[:200]!r} here",
        expected=some_of(known) or "(none)",
        received=repr(version[:200]),
    )


def _not_ready(name: str, version: str, status: VersionStatus | None, model: _Model) -> IngotError:
    status = status or next(iter(model.statuses.values()), None)
    what = f"the model {name!r}" + (f" version {version!r}" if version else "")
    if status is not None and status.reason:
        return IngotError(
            ErrorCode.UNAVAILABLE,
            f"{what} could not be loaded: {status.reason.rstrip('.')}",
            remedy=f"Attempt {status.attempts} failed; loading is retried." if status.attempts else "",
        )
    return IngotError(ErrorCode.UNAVAILABLE, f"{what} is loading", remedy="Retry in a moment.")
