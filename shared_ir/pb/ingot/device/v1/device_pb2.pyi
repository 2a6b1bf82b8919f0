# mypy: ignore-errors
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GetStatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DeviceStatus(_message.Message):
    __slots__ = ("version", "architecture", "processor", "features", "emulates", "cores", "is_leased", "lease_seconds", "runs", "failed_trials", "trusted_keys", "cache_bytes", "memory_bytes", "most_trials", "most_seconds")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ARCHITECTURE_FIELD_NUMBER: _ClassVar[int]
    PROCESSOR_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    EMULATES_FIELD_NUMBER: _ClassVar[int]
    CORES_FIELD_NUMBER: _ClassVar[int]
    IS_LEASED_FIELD_NUMBER: _ClassVar[int]
    LEASE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    FAILED_TRIALS_FIELD_NUMBER: _ClassVar[int]
    TRUSTED_KEYS_FIELD_NUMBER: _ClassVar[int]
    CACHE_BYTES_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    MOST_TRIALS_FIELD_NUMBER: _ClassVar[int]
    MOST_SECONDS_FIELD_NUMBER: _ClassVar[int]
    version: str
    architecture: str
    processor: str
    features: _containers.RepeatedScalarFieldContainer[str]
    emulates: _containers.RepeatedScalarFieldContainer[str]
    cores: int
    is_leased: bool
    lease_seconds: float
    runs: int
    failed_trials: int
    trusted_keys: _containers.RepeatedScalarFieldContainer[str]
    cache_bytes: int
    memory_bytes: int
    most_trials: int
    most_seconds: float
    def __init__(self, version: _Optional[str] = ..., architecture: _Optional[str] = ..., processor: _Optional[str] = ..., features: _Optional[_Iterable[str]] = ..., emulates: _Optional[_Iterable[str]] = ..., cores: _Optional[int] = ..., is_leased: bool = ..., lease_seconds: _Optional[float] = ..., runs: _Optional[int] = ..., failed_trials: _Optional[int] = ..., trusted_keys: _Optional[_Iterable[str]] = ..., cache_bytes: _Optional[int] = ..., memory_bytes: _Optional[int] = ..., most_trials: _Optional[int] = ..., most_seconds: _Optional[float] = ...) -> None: ...

class TakeLeaseRequest(_message.Message):
    __slots__ = ("seconds",)
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    seconds: float
    def __init__(self, seconds: _Optional[float] = ...) -> None: ...

class DeviceLease(_message.Message):
    __slots__ = ("id", "seconds")
    ID_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    id: str
    seconds: float
    def __init__(self, id: _Optional[str] = ..., seconds: _Optional[float] = ...) -> None: ...

class RenewLeaseRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class ReleaseLeaseRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class ReleaseLeaseResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class FindMissingRequest(_message.Message):
    __slots__ = ("lease", "digests")
    LEASE_FIELD_NUMBER: _ClassVar[int]
    DIGESTS_FIELD_NUMBER: _ClassVar[int]
    lease: str
    digests: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, lease: _Optional[str] = ..., digests: _Optional[_Iterable[str]] = ...) -> None: ...

class FindMissingResponse(_message.Message):
    __slots__ = ("digests",)
    DIGESTS_FIELD_NUMBER: _ClassVar[int]
    digests: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, digests: _Optional[_Iterable[str]] = ...) -> None: ...

class ContentHeader(_message.Message):
    __slots__ = ("lease", "digest", "size")
    LEASE_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    lease: str
    digest: str
    size: int
    def __init__(self, lease: _Optional[str] = ..., digest: _Optional[str] = ..., size: _Optional[int] = ...) -> None: ...

class PutContentRequest(_message.Message):
    __slots__ = ("header", "data")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    header: ContentHeader
    data: bytes
    def __init__(self, header: _Optional[_Union[ContentHeader, _Mapping]] = ..., data: _Optional[bytes] = ...) -> None: ...

class PutContentResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RunRequest(_message.Message):
    __slots__ = ("lease", "order")
    LEASE_FIELD_NUMBER: _ClassVar[int]
    ORDER_FIELD_NUMBER: _ClassVar[int]
    lease: str
    order: bytes
    def __init__(self, lease: _Optional[str] = ..., order: _Optional[bytes] = ...) -> None: ...

class ResultPiece(_message.Message):
    __slots__ = ("digest", "data")
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    digest: str
    data: bytes
    def __init__(self, digest: _Optional[str] = ..., data: _Optional[bytes] = ...) -> None: ...

class TrialOutcome(_message.Message):
    __slots__ = ("kind", "rounds", "results", "reason")
    KIND_FIELD_NUMBER: _ClassVar[int]
    ROUNDS_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    kind: str
    rounds: _containers.RepeatedScalarFieldContainer[float]
    results: _containers.RepeatedScalarFieldContainer[str]
    reason: str
    def __init__(self, kind: _Optional[str] = ..., rounds: _Optional[_Iterable[float]] = ..., results: _Optional[_Iterable[str]] = ..., reason: _Optional[str] = ...) -> None: ...

class RunResponse(_message.Message):
    __slots__ = ("piece", "outcome")
    PIECE_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    piece: ResultPiece
    outcome: TrialOutcome
    def __init__(self, piece: _Optional[_Union[ResultPiece, _Mapping]] = ..., outcome: _Optional[_Union[TrialOutcome, _Mapping]] = ...) -> None: ...
