"""The client of the compiler service."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ingot import messages
from ingot.channel import authorization, call, check_timeout, open_channel, stream
from ingot.download import receive_layout
from ingot.frontends import refuse_others
from ingot.home import Addresses, home_directory
from ingot.paging import paged
from ingot.records import (
    AuditEvent,
    Capabilities,
    CheckReport,
    Job,
    JobEvent,
    JobLogLine,
    ModelVersion,
    PublishedModel,
    Source,
    TargetInfo,
)
from ingot.resuming import OutagePatience
from ingot.target import Target, text_of
from ingot.upload import Progress, Uploader, no_progress
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.pb.ingot.compiler.v1 import compiler_pb2_grpc
from shared_ir.service_kit.tls import client_tls

pb: Any = messages.Requests()
Model = str | Path | bytes | Source
"""A path, bytes, or what :meth:`Client.upload` returned."""

_LAST_TRY_SECONDS = 0.01
"""For a call when the time is up: none at all would be as long as any other has."""


class Client:
    """Talks to the compiler service at ``address`` (``host:port``). Every method raises :class:`IngotError`.

    Restarts of the service end no upload, watch or wait: they go on where they were, until their ``timeout``, or for as long
    as the service is not away for minutes.

    Args:
        address: by default ``INGOT_COMPILER_ADDRESS``, else what ``ingot up`` wrote, else ``127.0.0.1:8500``.
        token: bearer token of the service.
        ca_certificate: PEM file with the authorities that signed the service's certificate; turns TLS on.
        client_certificate, client_key: PEM files to show a service that asks for a certificate; turn TLS on too.
        timeout: seconds for each call but uploads, downloads, checks and watching; an order of :meth:`compile` is repeated for so long,
            unless it has a timeout of its own, where the service is away for a moment.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        token: str = "",
        ca_certificate: str | Path | None = None,
        client_certificate: str | Path | None = None,
        client_key: str | Path | None = None,
        timeout: float = 30.0,
    ) -> None:
        self.address = address or Addresses.find(home_directory()).compiler
        self._timeout = check_timeout(timeout)
        self._options: dict[str, Any] = {"metadata": authorization(token)}
        self._channel = open_channel(self.address, client_tls(ca_certificate, client_certificate, client_key))
        self._stub: Any = compiler_pb2_grpc.CompilerServiceStub(self._channel)
        self._is_known = False

    def close(self) -> None:
        """Hang up; ``with`` does so at its end."""
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ---- models in

    def upload(
        self,
        model: Any,
        external_data: Mapping[str, bytes | str | Path] | None = None,
        progress: Progress = no_progress,
        timeout: float | None = None,
    ) -> Source:
        """Send a model in chunks; one that the service has already is not sent again, a broken upload goes on.

        External data in the folder of ``model`` is found and sent too.
        """
        if isinstance(model, Source):
            return model
        refuse_others(model)
        uploader = Uploader(self._stub, self.address, self._timeout, self._options, self._patience(timeout))
        sent = uploader.send_model(model, external_data, progress)
        self._is_known = True
        return sent

    def check(self, model: Model, **options: Any) -> CheckReport:
        """Everything that keeps a model from being compiled, at once. Raises when it cannot be read at all."""
        request = pb.CheckModelRequest(
            source=messages.source_to_pb(self.upload(model)), options=messages.options_to_pb(options)
        )
        return messages.check_from_pb(self._call("CheckModel", request, timeout=600.0))

    # ---- jobs

    def compile(
        self,
        model: Model,
        name: str,
        targets: Sequence[str | Target] = ("host",),
        labels: str | Sequence[str] = (),
        *,
        deadline: float = 0.0,
        priority: int = 0,
        timeout: float | None = None,
        **options: Any,
    ) -> Job:
        """Upload if need be, and queue a compilation; a job whose artifacts all exist has finished already.

        Args:
            name: of the model that a version is published of.
            targets: presets, also of :meth:`ingot.Target.register_preset`, texts, or targets as they are.
            labels: one, or several, to move to that version.
            deadline: seconds after which the job has failed with DEADLINE_EXCEEDED unless it has finished; 0 for none.
            priority: from -9 to 9; of your jobs that wait, those with a higher one go first.
            timeout: seconds for which the order is repeated where the service is away for a moment; by default as long as any call.
            options: ``opt_level``, ``shapes``, ``tune``, ...: see :meth:`capabilities`.
        """
        within = self._timeout if timeout is None else check_timeout(timeout)
        wanted = messages.names(
            "targets", [text_of(t) for t in targets] if isinstance(targets, list | tuple) else targets
        )
        moved = messages.names("labels", (labels,) if isinstance(labels, str) else labels)
        request = pb.CompileRequest(
            name=name,
            targets=wanted,
            options=messages.options_to_pb(options),
            labels=moved,
            timeout_seconds=deadline,
            priority=priority,
        )
        request.source.CopyFrom(messages.source_to_pb(self.upload(model)))
        request.idempotency_key = uuid.uuid4().hex  # an answer that is lost with its server costs no second job
        patience = self._patience(within if self._is_known or timeout is not None else None)

        def order() -> Any:
            return self._call("Compile", request, max(patience.at_most(self._timeout), _LAST_TRY_SECONDS))

        return messages.job_from_pb(patience.call(order).job)

    def job(self, id: str) -> Job:
        """The job of this id as it is now. Raises IngotError NOT_FOUND."""
        return messages.job_from_pb(self._call("GetJob", pb.GetJobRequest(id=id)))

    def jobs(
        self,
        limit: int | None = 50,
        state: str = "",
        name: str = "",
        target: str = "",
        label: str = "",
        user: str = "",
        since: float = 0.0,
        until: float = 0.0,
    ) -> tuple[Job, ...]:
        """Newest first, at most ``limit``; only those for which all holds that is given.

        Args:
            name: of the model.
            target: as it was asked for, or the triple or cpu of one.
            label: that they move.
            user: who ordered them.
            since, until: when they were ordered, in seconds since the epoch.
        """
        given = {"name": name, "target": target, "label": label, "user": user}
        most = 1000 if limit is None else min(limit, 1000)  # for a service that knows no pages yet
        request = pb.ListJobsRequest(limit=most, state=messages.state_to_pb(state), **given)
        messages.with_times(request, since=since, until=until)
        found = paged(lambda token, size: self._page("ListJobs", request, token, size), "jobs", limit)
        return tuple(messages.job_from_pb(job) for job in found)

    def log(self, id: str, stage: str = "", target: str = "") -> tuple[JobLogLine, ...]:
        """What the work on a job wrote, the oldest line first; of one stage or target alone, when given. The newest 2000 lines are kept."""
        request = pb.GetJobLogRequest(id=id, stage=stage, target=target)
        found = paged(lambda token, size: self._page("GetJobLog", request, token, size), "lines")
        return tuple(messages.log_line_from_pb(line) for line in found)

    def watch(self, id: str, after: str = "", timeout: float | None = None) -> Iterator[JobEvent]:
        """What happened to a job since event ``after``, then what happens, until it has finished.

        Raises:
            IngotError: DEADLINE_EXCEEDED, it has not after ``timeout`` seconds.
        """
        patience, is_finished = self._patience(timeout), False
        while True:
            try:
                for event in self._events(id, after, patience):
                    after = event.sequence or after
                    told = bool(event.sequence) and event.job is not None and event.job.is_finished
                    is_finished = is_finished or told
                    yield event
                if is_finished:
                    return
                # A server that stops ends the stream as well: what a job did meanwhile is asked for once more.
                is_finished = self._now(id, patience).is_finished
                if not is_finished:
                    patience.wait(_ended(self.address))
            except IngotError as error:
                patience.wait(_late(id) if patience.is_over(error) else error, crowd=True)

    def wait(self, id: str, timeout: float | None = None) -> Job:
        """The job once it has finished, however it ended.

        Raises:
            IngotError: DEADLINE_EXCEEDED, it has not after ``timeout`` seconds.
        """
        patience = self._patience(timeout)
        while not (job := self._now(id, patience)).is_finished:
            try:
                for _ in self._events(id, "", patience):
                    pass
            except IngotError as error:
                patience.wait(_late(id) if patience.is_over(error) else error, crowd=True)
        return job

    def _now(self, id: str, patience: OutagePatience) -> Job:
        request = pb.GetJobRequest(id=id)
        answer = patience.call(lambda: self._call("GetJob", request, patience.at_most(self._timeout)))
        patience.answered()
        return messages.job_from_pb(answer)

    def _events(self, id: str, after: str, patience: OutagePatience) -> Iterator[JobEvent]:
        """Those of one stream, which ends when the job does, or the service."""
        request = pb.WatchJobRequest(id=id, after=after)
        timeout = patience.remaining
        for event in stream(self.address, lambda: self._stub.WatchJob(request, timeout=timeout, **self._options)):
            self._is_known = True
            patience.answered()
            yield messages.event_from_pb(event)

    def cancel(self, id: str) -> Job:
        """Stop a job; one that has finished stays as it is."""
        return messages.job_from_pb(self._call("CancelJob", pb.CancelJobRequest(id=id)))

    def retry(self, id: str) -> Job:
        """Order once more what a job had ordered that failed or was cancelled; the new job."""
        return messages.job_from_pb(self._call("RetryJob", pb.RetryJobRequest(id=id)))

    def reproducer(self, id: str, target: int = 0) -> str:
        """What shows a fault of the compiler again: a text that ``python -m compiler_service.compiler.opt`` runs.

        Args:
            target: number of the job's target, from 0; -1 for what concerned the whole job.

        Raises:
            IngotError: NOT_FOUND, the job had no such fault.
        """
        return str(self._call("GetReproducer", pb.GetReproducerRequest(id=id, target=target)).text)

    # ---- models out

    def models(self, prefix: str = "", label: str = "", limit: int | None = None) -> tuple[PublishedModel, ...]:
        """In order of name; only those whose name starts with ``prefix``, that have ``label``, and at most ``limit``."""
        request = pb.ListModelsRequest(prefix=prefix, label=label)
        found = paged(lambda token, size: self._page("ListModels", request, token, size), "models", limit)
        return tuple(messages.model_from_pb(model) for model in found)

    def model(self, name: str) -> PublishedModel:
        """The model of this name, with its labels. Raises IngotError NOT_FOUND."""
        return messages.model_from_pb(self._call("GetModel", pb.GetModelRequest(name=name)))

    def versions(
        self, name: str, limit: int | None = None, target: str = "", since: float = 0.0, until: float = 0.0
    ) -> tuple[ModelVersion, ...]:
        """Oldest first, but of more than ``limit`` the newest.

        Args:
            target: only those with a target of this triple or cpu.
            since, until: only those published from and until then, in seconds since the epoch.
        """
        request = messages.with_times(pb.ListVersionsRequest(name=name, target=target), since=since, until=until)
        found = paged(lambda token, size: self._page("ListVersions", request, token, size), "versions", limit, True)
        return tuple(messages.version_from_pb(version) for version in reversed(tuple(found)))

    def events(
        self,
        model: str = "",
        action: str = "",
        by: str = "",
        since: float = 0.0,
        until: float = 0.0,
        limit: int | None = None,
    ) -> tuple[AuditEvent, ...]:
        """Who changed what when, the newest first; only those of a model, of an action, by somebody, from and until a time (seconds
        since the epoch)."""
        request = messages.with_times(pb.ListEventsRequest(model=model, action=action, by=by), since=since, until=until)
        found = paged(lambda token, size: self._page("ListEvents", request, token, size), "events", limit)
        return tuple(messages.audit_event_from_pb(event) for event in found)

    def labels(self, name: str) -> Mapping[str, int]:
        """Version by label."""
        return self.model(name).labels

    def set_label(self, name: str, label: str, version: int, etag: str = "") -> PublishedModel:
        """Point a label at a version that exists; runtimes that follow it load that version.

        Args:
            etag: of the label as it was seen (:meth:`PublishedModel.etag`, ``0`` for none): where somebody has moved it since,
                IngotError CONFLICT is raised. Empty: whatever is there.
        """
        request = pb.SetLabelRequest(name=name, label=label, version=version, etag=etag)
        return messages.model_from_pb(self._call("SetLabel", request))

    def delete_label(self, name: str, label: str, etag: str = "") -> PublishedModel:
        """``etag`` is as in :meth:`set_label`."""
        request = pb.DeleteLabelRequest(name=name, label=label, etag=etag)
        return messages.model_from_pb(self._call("DeleteLabel", request))

    def delete_version(self, name: str, version: int) -> None:
        """Its number is never used again. Raises IngotError CONFLICT where a label points at it."""
        self._call("DeleteVersion", pb.DeleteVersionRequest(name=name, version=version))

    def delete_model(self, name: str, force: bool = False) -> int:
        """All of its versions, how many. Raises IngotError CONFLICT where it has labels, unless ``force`` takes them away first."""
        request = pb.DeleteModelRequest(name=name, force=force)
        return int(self._call("DeleteModel", request, timeout=600.0).versions)

    def download(self, name: str, directory: str | Path, which: int | str | None = None, artifact_key: str = "") -> str:
        """Add a version to the OCI image layout at ``directory``; its tag there.

        Args:
            which: a version, a label, or ``None`` for the newest.
            artifact_key: one target alone; by default all.
        """
        chosen: dict[str, Any] = {"version": which} if isinstance(which, int) else {"label": which} if which else {}
        request = pb.DownloadArtifactRequest(name=name, artifact_key=artifact_key, **chosen)
        parts = stream(self.address, lambda: self._stub.DownloadArtifact(request, **self._options))
        return receive_layout(parts, Path(directory))

    # ---- the service itself

    def targets(self) -> tuple[TargetInfo, ...]:
        """Targets that have a name."""
        response = self._call("ListTargets", pb.ListTargetsRequest())
        return tuple(messages.target_info_from_pb(info) for info in response.targets)

    def capabilities(self) -> Capabilities:
        """What this service compiles, and the options that it takes."""
        return messages.capabilities_from_pb(self._call("GetCapabilities", pb.GetCapabilitiesRequest()))

    def _page(self, method: str, request: Any, token: str, size: int) -> Any:
        request.page_token, request.page_size = token, size
        return self._call(method, request)

    def _call(self, method: str, request: Any, timeout: float | None = None) -> Any:
        function = getattr(self._stub, method)
        answer = call(self.address, lambda: function(request, timeout=timeout or self._timeout, **self._options))
        self._is_known = True
        return answer

    def _patience(self, timeout: float | None) -> OutagePatience:
        return OutagePatience(timeout, self._is_known)


def _late(id: str) -> IngotError:
    return IngotError(
        ErrorCode.DEADLINE_EXCEEDED,
        "the job has not finished in time",
        field=id,
        remedy="It goes on: ask for it again, or cancel it.",
    )


def _ended(address: str) -> IngotError:
    return IngotError(ErrorCode.UNAVAILABLE, f"the service at {address} ended the stream of events")
