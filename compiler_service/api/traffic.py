"""What clients hold and move at the moment, as metrics of this server."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge


class Traffic:
    """Uploads under way, bytes in and out, and those who watch."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._uploads = Gauge("ingot_compiler_uploads", "Uploads under way at this server.", registry=registry)
        self._bytes = Counter(
            "ingot_compiler_bytes",
            "Bytes of files that clients sent (in) and took (out).",
            ("direction",),
            registry=registry,
        )
        self._watchers = Gauge("ingot_compiler_watchers", "Open WatchJob streams at this server.", registry=registry)
        for direction in ("in", "out"):
            self._bytes.labels(direction)

    def count_watchers(self, count: Callable[[], int]) -> None:
        self._watchers.set_function(lambda: float(count()))

    def upload(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        """``chunks`` of an upload as they come."""
        with self._uploads.track_inprogress():
            yield from self._counted("in", chunks)

    def download(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        return self._counted("out", chunks)

    def _counted(self, direction: str, chunks: Iterable[bytes]) -> Iterator[bytes]:
        counter = self._bytes.labels(direction)
        for chunk in chunks:
            counter.inc(len(chunk))
            yield chunk
