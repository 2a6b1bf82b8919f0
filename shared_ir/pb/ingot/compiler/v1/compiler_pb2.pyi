# mypy: ignore-errors
import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Blame(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    BLAME_UNSPECIFIED: _ClassVar[Blame]
    BLAME_USER: _ClassVar[Blame]
    BLAME_SERVICE: _ClassVar[Blame]

class FileKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FILE_KIND_UNSPECIFIED: _ClassVar[FileKind]
    FILE_KIND_MODEL: _ClassVar[FileKind]
    FILE_KIND_EXTERNAL_DATA: _ClassVar[FileKind]

class JobState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    JOB_STATE_UNSPECIFIED: _ClassVar[JobState]
    JOB_STATE_QUEUED: _ClassVar[JobState]
    JOB_STATE_RUNNING: _ClassVar[JobState]
    JOB_STATE_SUCCEEDED: _ClassVar[JobState]
    JOB_STATE_FAILED: _ClassVar[JobState]
    JOB_STATE_CANCELLED: _ClassVar[JobState]
BLAME_UNSPECIFIED: Blame
BLAME_USER: Blame
BLAME_SERVICE: Blame
FILE_KIND_UNSPECIFIED: FileKind
FILE_KIND_MODEL: FileKind
FILE_KIND_EXTERNAL_DATA: FileKind
JOB_STATE_UNSPECIFIED: JobState
JOB_STATE_QUEUED: JobState
JOB_STATE_RUNNING: JobState
JOB_STATE_SUCCEEDED: JobState
JOB_STATE_FAILED: JobState
JOB_STATE_CANCELLED: JobState

class ErrorDetail(_message.Message):
    __slots__ = ("code", "blame", "message", "node", "tensor", "field", "expected", "received", "remedy")
    CODE_FIELD_NUMBER: _ClassVar[int]
    BLAME_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    TENSOR_FIELD_NUMBER: _ClassVar[int]
    FIELD_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_FIELD_NUMBER: _ClassVar[int]
    REMEDY_FIELD_NUMBER: _ClassVar[int]
    code: str
    blame: Blame
    message: str
    node: str
    tensor: str
    field: str
    expected: str
    received: str
    remedy: str
    def __init__(self, code: _Optional[str] = ..., blame: _Optional[_Union[Blame, str]] = ..., message: _Optional[str] = ..., node: _Optional[str] = ..., tensor: _Optional[str] = ..., field: _Optional[str] = ..., expected: _Optional[str] = ..., received: _Optional[str] = ..., remedy: _Optional[str] = ...) -> None: ...

class QueryUploadRequest(_message.Message):
    __slots__ = ("sha256", "size")
    SHA256_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    sha256: str
    size: int
    def __init__(self, sha256: _Optional[str] = ..., size: _Optional[int] = ...) -> None: ...

class QueryUploadResponse(_message.Message):
    __slots__ = ("received", "complete")
    RECEIVED_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    received: int
    complete: bool
    def __init__(self, received: _Optional[int] = ..., complete: bool = ...) -> None: ...

class UploadHeader(_message.Message):
    __slots__ = ("name", "size", "sha256", "offset", "kind", "ir_version", "opsets")
    class OpsetsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    IR_VERSION_FIELD_NUMBER: _ClassVar[int]
    OPSETS_FIELD_NUMBER: _ClassVar[int]
    name: str
    size: int
    sha256: str
    offset: int
    kind: FileKind
    ir_version: int
    opsets: _containers.ScalarMap[str, int]
    def __init__(self, name: _Optional[str] = ..., size: _Optional[int] = ..., sha256: _Optional[str] = ..., offset: _Optional[int] = ..., kind: _Optional[_Union[FileKind, str]] = ..., ir_version: _Optional[int] = ..., opsets: _Optional[_Mapping[str, int]] = ...) -> None: ...

class UploadModelRequest(_message.Message):
    __slots__ = ("header", "chunk")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    header: UploadHeader
    chunk: bytes
    def __init__(self, header: _Optional[_Union[UploadHeader, _Mapping]] = ..., chunk: _Optional[bytes] = ...) -> None: ...

class UploadModelResponse(_message.Message):
    __slots__ = ("sha256", "size")
    SHA256_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    sha256: str
    size: int
    def __init__(self, sha256: _Optional[str] = ..., size: _Optional[int] = ...) -> None: ...

class ModelSource(_message.Message):
    __slots__ = ("model_sha256", "external_data")
    class ExternalDataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    MODEL_SHA256_FIELD_NUMBER: _ClassVar[int]
    EXTERNAL_DATA_FIELD_NUMBER: _ClassVar[int]
    model_sha256: str
    external_data: _containers.ScalarMap[str, str]
    def __init__(self, model_sha256: _Optional[str] = ..., external_data: _Optional[_Mapping[str, str]] = ...) -> None: ...

class OptionList(_message.Message):
    __slots__ = ("values",)
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedCompositeFieldContainer[OptionValue]
    def __init__(self, values: _Optional[_Iterable[_Union[OptionValue, _Mapping]]] = ...) -> None: ...

class OptionMap(_message.Message):
    __slots__ = ("values",)
    class ValuesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: OptionValue
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[OptionValue, _Mapping]] = ...) -> None: ...
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: _containers.MessageMap[str, OptionValue]
    def __init__(self, values: _Optional[_Mapping[str, OptionValue]] = ...) -> None: ...

class OptionValue(_message.Message):
    __slots__ = ("bool_value", "int_value", "double_value", "string_value", "list_value", "map_value")
    BOOL_VALUE_FIELD_NUMBER: _ClassVar[int]
    INT_VALUE_FIELD_NUMBER: _ClassVar[int]
    DOUBLE_VALUE_FIELD_NUMBER: _ClassVar[int]
    STRING_VALUE_FIELD_NUMBER: _ClassVar[int]
    LIST_VALUE_FIELD_NUMBER: _ClassVar[int]
    MAP_VALUE_FIELD_NUMBER: _ClassVar[int]
    bool_value: bool
    int_value: int
    double_value: float
    string_value: str
    list_value: OptionList
    map_value: OptionMap
    def __init__(self, bool_value: bool = ..., int_value: _Optional[int] = ..., double_value: _Optional[float] = ..., string_value: _Optional[str] = ..., list_value: _Optional[_Union[OptionList, _Mapping]] = ..., map_value: _Optional[_Union[OptionMap, _Mapping]] = ...) -> None: ...

class CheckModelRequest(_message.Message):
    __slots__ = ("source", "options")
    class OptionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: OptionValue
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[OptionValue, _Mapping]] = ...) -> None: ...
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    source: ModelSource
    options: _containers.MessageMap[str, OptionValue]
    def __init__(self, source: _Optional[_Union[ModelSource, _Mapping]] = ..., options: _Optional[_Mapping[str, OptionValue]] = ...) -> None: ...

class TensorInfo(_message.Message):
    __slots__ = ("name", "dtype", "shape")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    name: str
    dtype: str
    shape: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, name: _Optional[str] = ..., dtype: _Optional[str] = ..., shape: _Optional[_Iterable[str]] = ...) -> None: ...

class CheckModelResponse(_message.Message):
    __slots__ = ("ok", "ir_version", "opsets", "producer", "inputs", "outputs", "operators", "issues")
    class OpsetsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class OperatorsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    OK_FIELD_NUMBER: _ClassVar[int]
    IR_VERSION_FIELD_NUMBER: _ClassVar[int]
    OPSETS_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_FIELD_NUMBER: _ClassVar[int]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    OPERATORS_FIELD_NUMBER: _ClassVar[int]
    ISSUES_FIELD_NUMBER: _ClassVar[int]
    ok: bool
    ir_version: int
    opsets: _containers.ScalarMap[str, int]
    producer: str
    inputs: _containers.RepeatedCompositeFieldContainer[TensorInfo]
    outputs: _containers.RepeatedCompositeFieldContainer[TensorInfo]
    operators: _containers.ScalarMap[str, int]
    issues: _containers.RepeatedCompositeFieldContainer[ErrorDetail]
    def __init__(self, ok: bool = ..., ir_version: _Optional[int] = ..., opsets: _Optional[_Mapping[str, int]] = ..., producer: _Optional[str] = ..., inputs: _Optional[_Iterable[_Union[TensorInfo, _Mapping]]] = ..., outputs: _Optional[_Iterable[_Union[TensorInfo, _Mapping]]] = ..., operators: _Optional[_Mapping[str, int]] = ..., issues: _Optional[_Iterable[_Union[ErrorDetail, _Mapping]]] = ...) -> None: ...

class CompileRequest(_message.Message):
    __slots__ = ("name", "source", "targets", "options", "labels", "idempotency_key", "timeout_seconds", "priority")
    class OptionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: OptionValue
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[OptionValue, _Mapping]] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    TARGETS_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENCY_KEY_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    name: str
    source: ModelSource
    targets: _containers.RepeatedScalarFieldContainer[str]
    options: _containers.MessageMap[str, OptionValue]
    labels: _containers.RepeatedScalarFieldContainer[str]
    idempotency_key: str
    timeout_seconds: float
    priority: int
    def __init__(self, name: _Optional[str] = ..., source: _Optional[_Union[ModelSource, _Mapping]] = ..., targets: _Optional[_Iterable[str]] = ..., options: _Optional[_Mapping[str, OptionValue]] = ..., labels: _Optional[_Iterable[str]] = ..., idempotency_key: _Optional[str] = ..., timeout_seconds: _Optional[float] = ..., priority: _Optional[int] = ...) -> None: ...

class CompileResponse(_message.Message):
    __slots__ = ("job",)
    JOB_FIELD_NUMBER: _ClassVar[int]
    job: Job
    def __init__(self, job: _Optional[_Union[Job, _Mapping]] = ...) -> None: ...

class TargetJob(_message.Message):
    __slots__ = ("target", "state", "stage", "done", "total", "artifact_key", "cache_hit", "error", "verification")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    ARTIFACT_KEY_FIELD_NUMBER: _ClassVar[int]
    CACHE_HIT_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    VERIFICATION_FIELD_NUMBER: _ClassVar[int]
    target: str
    state: JobState
    stage: str
    done: int
    total: int
    artifact_key: str
    cache_hit: bool
    error: ErrorDetail
    verification: Verification
    def __init__(self, target: _Optional[str] = ..., state: _Optional[_Union[JobState, str]] = ..., stage: _Optional[str] = ..., done: _Optional[int] = ..., total: _Optional[int] = ..., artifact_key: _Optional[str] = ..., cache_hit: bool = ..., error: _Optional[_Union[ErrorDetail, _Mapping]] = ..., verification: _Optional[_Union[Verification, _Mapping]] = ...) -> None: ...

class OutputFigures(_message.Message):
    __slots__ = ("name", "max_abs_error", "max_rel_error")
    NAME_FIELD_NUMBER: _ClassVar[int]
    MAX_ABS_ERROR_FIELD_NUMBER: _ClassVar[int]
    MAX_REL_ERROR_FIELD_NUMBER: _ClassVar[int]
    name: str
    max_abs_error: float
    max_rel_error: float
    def __init__(self, name: _Optional[str] = ..., max_abs_error: _Optional[float] = ..., max_rel_error: _Optional[float] = ...) -> None: ...

class Verification(_message.Message):
    __slots__ = ("state", "reason", "oracle", "sizes", "tolerance", "outputs", "seconds", "oracle_seconds", "ratio", "emulator")
    class SizesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    STATE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ORACLE_FIELD_NUMBER: _ClassVar[int]
    SIZES_FIELD_NUMBER: _ClassVar[int]
    TOLERANCE_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    ORACLE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    RATIO_FIELD_NUMBER: _ClassVar[int]
    EMULATOR_FIELD_NUMBER: _ClassVar[int]
    state: str
    reason: str
    oracle: str
    sizes: _containers.ScalarMap[str, int]
    tolerance: float
    outputs: _containers.RepeatedCompositeFieldContainer[OutputFigures]
    seconds: float
    oracle_seconds: float
    ratio: float
    emulator: str
    def __init__(self, state: _Optional[str] = ..., reason: _Optional[str] = ..., oracle: _Optional[str] = ..., sizes: _Optional[_Mapping[str, int]] = ..., tolerance: _Optional[float] = ..., outputs: _Optional[_Iterable[_Union[OutputFigures, _Mapping]]] = ..., seconds: _Optional[float] = ..., oracle_seconds: _Optional[float] = ..., ratio: _Optional[float] = ..., emulator: _Optional[str] = ...) -> None: ...

class Job(_message.Message):
    __slots__ = ("id", "name", "state", "model_sha256", "targets", "options", "labels", "created", "started", "finished", "cache_hit", "version", "error", "stage_seconds", "user", "deadline", "priority", "eta_seconds")
    class OptionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: OptionValue
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[OptionValue, _Mapping]] = ...) -> None: ...
    class StageSecondsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    MODEL_SHA256_FIELD_NUMBER: _ClassVar[int]
    TARGETS_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    STARTED_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    CACHE_HIT_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    STAGE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    ETA_SECONDS_FIELD_NUMBER: _ClassVar[int]
    id: str
    name: str
    state: JobState
    model_sha256: str
    targets: _containers.RepeatedCompositeFieldContainer[TargetJob]
    options: _containers.MessageMap[str, OptionValue]
    labels: _containers.RepeatedScalarFieldContainer[str]
    created: _timestamp_pb2.Timestamp
    started: _timestamp_pb2.Timestamp
    finished: _timestamp_pb2.Timestamp
    cache_hit: bool
    version: int
    error: ErrorDetail
    stage_seconds: _containers.ScalarMap[str, float]
    user: str
    deadline: _timestamp_pb2.Timestamp
    priority: int
    eta_seconds: float
    def __init__(self, id: _Optional[str] = ..., name: _Optional[str] = ..., state: _Optional[_Union[JobState, str]] = ..., model_sha256: _Optional[str] = ..., targets: _Optional[_Iterable[_Union[TargetJob, _Mapping]]] = ..., options: _Optional[_Mapping[str, OptionValue]] = ..., labels: _Optional[_Iterable[str]] = ..., created: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., started: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., finished: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., cache_hit: bool = ..., version: _Optional[int] = ..., error: _Optional[_Union[ErrorDetail, _Mapping]] = ..., stage_seconds: _Optional[_Mapping[str, float]] = ..., user: _Optional[str] = ..., deadline: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., priority: _Optional[int] = ..., eta_seconds: _Optional[float] = ...) -> None: ...

class GetJobRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class ListJobsRequest(_message.Message):
    __slots__ = ("limit", "state", "name", "page_size", "page_token", "target", "label", "user", "since", "until")
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    UNTIL_FIELD_NUMBER: _ClassVar[int]
    limit: int
    state: JobState
    name: str
    page_size: int
    page_token: str
    target: str
    label: str
    user: str
    since: _timestamp_pb2.Timestamp
    until: _timestamp_pb2.Timestamp
    def __init__(self, limit: _Optional[int] = ..., state: _Optional[_Union[JobState, str]] = ..., name: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., target: _Optional[str] = ..., label: _Optional[str] = ..., user: _Optional[str] = ..., since: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., until: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class ListJobsResponse(_message.Message):
    __slots__ = ("jobs", "next_page_token")
    JOBS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[Job]
    next_page_token: str
    def __init__(self, jobs: _Optional[_Iterable[_Union[Job, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class WatchJobRequest(_message.Message):
    __slots__ = ("id", "after")
    ID_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    id: str
    after: str
    def __init__(self, id: _Optional[str] = ..., after: _Optional[str] = ...) -> None: ...

class Progress(_message.Message):
    __slots__ = ("stage", "done", "total", "eta_seconds", "message")
    STAGE_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    ETA_SECONDS_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    stage: str
    done: int
    total: int
    eta_seconds: float
    message: str
    def __init__(self, stage: _Optional[str] = ..., done: _Optional[int] = ..., total: _Optional[int] = ..., eta_seconds: _Optional[float] = ..., message: _Optional[str] = ...) -> None: ...

class LogLine(_message.Message):
    __slots__ = ("level", "text", "stage")
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    level: str
    text: str
    stage: str
    def __init__(self, level: _Optional[str] = ..., text: _Optional[str] = ..., stage: _Optional[str] = ...) -> None: ...

class JobEvent(_message.Message):
    __slots__ = ("sequence", "time", "target", "job", "progress", "log")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    LOG_FIELD_NUMBER: _ClassVar[int]
    sequence: str
    time: _timestamp_pb2.Timestamp
    target: str
    job: Job
    progress: Progress
    log: LogLine
    def __init__(self, sequence: _Optional[str] = ..., time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., target: _Optional[str] = ..., job: _Optional[_Union[Job, _Mapping]] = ..., progress: _Optional[_Union[Progress, _Mapping]] = ..., log: _Optional[_Union[LogLine, _Mapping]] = ...) -> None: ...

class CancelJobRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class RetryJobRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class GetJobLogRequest(_message.Message):
    __slots__ = ("id", "stage", "target", "page_size", "page_token")
    ID_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    id: str
    stage: str
    target: str
    page_size: int
    page_token: str
    def __init__(self, id: _Optional[str] = ..., stage: _Optional[str] = ..., target: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class JobLogLine(_message.Message):
    __slots__ = ("time", "target", "stage", "level", "text")
    TIME_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    time: _timestamp_pb2.Timestamp
    target: str
    stage: str
    level: str
    text: str
    def __init__(self, time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., target: _Optional[str] = ..., stage: _Optional[str] = ..., level: _Optional[str] = ..., text: _Optional[str] = ...) -> None: ...

class GetJobLogResponse(_message.Message):
    __slots__ = ("lines", "next_page_token")
    LINES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    lines: _containers.RepeatedCompositeFieldContainer[JobLogLine]
    next_page_token: str
    def __init__(self, lines: _Optional[_Iterable[_Union[JobLogLine, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class GetReproducerRequest(_message.Message):
    __slots__ = ("id", "target")
    ID_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    id: str
    target: int
    def __init__(self, id: _Optional[str] = ..., target: _Optional[int] = ...) -> None: ...

class GetReproducerResponse(_message.Message):
    __slots__ = ("text",)
    TEXT_FIELD_NUMBER: _ClassVar[int]
    text: str
    def __init__(self, text: _Optional[str] = ...) -> None: ...

class ListModelsRequest(_message.Message):
    __slots__ = ("page_size", "page_token", "prefix", "label")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    prefix: str
    label: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., prefix: _Optional[str] = ..., label: _Optional[str] = ...) -> None: ...

class ListModelsResponse(_message.Message):
    __slots__ = ("models", "next_page_token")
    MODELS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    models: _containers.RepeatedCompositeFieldContainer[Model]
    next_page_token: str
    def __init__(self, models: _Optional[_Iterable[_Union[Model, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class Label(_message.Message):
    __slots__ = ("label", "version", "etag", "moved", "by")
    LABEL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ETAG_FIELD_NUMBER: _ClassVar[int]
    MOVED_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    label: str
    version: int
    etag: str
    moved: _timestamp_pb2.Timestamp
    by: str
    def __init__(self, label: _Optional[str] = ..., version: _Optional[int] = ..., etag: _Optional[str] = ..., moved: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., by: _Optional[str] = ...) -> None: ...

class Model(_message.Message):
    __slots__ = ("name", "latest_version", "labels", "label_details", "error")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    LATEST_VERSION_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    LABEL_DETAILS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    name: str
    latest_version: int
    labels: _containers.ScalarMap[str, int]
    label_details: _containers.RepeatedCompositeFieldContainer[Label]
    error: ErrorDetail
    def __init__(self, name: _Optional[str] = ..., latest_version: _Optional[int] = ..., labels: _Optional[_Mapping[str, int]] = ..., label_details: _Optional[_Iterable[_Union[Label, _Mapping]]] = ..., error: _Optional[_Union[ErrorDetail, _Mapping]] = ...) -> None: ...

class GetModelRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class TargetArtifact(_message.Message):
    __slots__ = ("key", "triple", "cpu", "features", "abi_version", "min_glibc", "compiler_version")
    KEY_FIELD_NUMBER: _ClassVar[int]
    TRIPLE_FIELD_NUMBER: _ClassVar[int]
    CPU_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    ABI_VERSION_FIELD_NUMBER: _ClassVar[int]
    MIN_GLIBC_FIELD_NUMBER: _ClassVar[int]
    COMPILER_VERSION_FIELD_NUMBER: _ClassVar[int]
    key: str
    triple: str
    cpu: str
    features: _containers.RepeatedScalarFieldContainer[str]
    abi_version: int
    min_glibc: str
    compiler_version: str
    def __init__(self, key: _Optional[str] = ..., triple: _Optional[str] = ..., cpu: _Optional[str] = ..., features: _Optional[_Iterable[str]] = ..., abi_version: _Optional[int] = ..., min_glibc: _Optional[str] = ..., compiler_version: _Optional[str] = ...) -> None: ...

class ModelVersion(_message.Message):
    __slots__ = ("name", "version", "created", "model_sha256", "job_id", "digest", "targets")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    MODEL_SHA256_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    TARGETS_FIELD_NUMBER: _ClassVar[int]
    name: str
    version: int
    created: _timestamp_pb2.Timestamp
    model_sha256: str
    job_id: str
    digest: str
    targets: _containers.RepeatedCompositeFieldContainer[TargetArtifact]
    def __init__(self, name: _Optional[str] = ..., version: _Optional[int] = ..., created: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., model_sha256: _Optional[str] = ..., job_id: _Optional[str] = ..., digest: _Optional[str] = ..., targets: _Optional[_Iterable[_Union[TargetArtifact, _Mapping]]] = ...) -> None: ...

class ListVersionsRequest(_message.Message):
    __slots__ = ("name", "page_size", "page_token", "target", "since", "until")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    UNTIL_FIELD_NUMBER: _ClassVar[int]
    name: str
    page_size: int
    page_token: str
    target: str
    since: _timestamp_pb2.Timestamp
    until: _timestamp_pb2.Timestamp
    def __init__(self, name: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., target: _Optional[str] = ..., since: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., until: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class ListVersionsResponse(_message.Message):
    __slots__ = ("versions", "next_page_token")
    VERSIONS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    versions: _containers.RepeatedCompositeFieldContainer[ModelVersion]
    next_page_token: str
    def __init__(self, versions: _Optional[_Iterable[_Union[ModelVersion, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class SetLabelRequest(_message.Message):
    __slots__ = ("name", "label", "version", "etag")
    NAME_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ETAG_FIELD_NUMBER: _ClassVar[int]
    name: str
    label: str
    version: int
    etag: str
    def __init__(self, name: _Optional[str] = ..., label: _Optional[str] = ..., version: _Optional[int] = ..., etag: _Optional[str] = ...) -> None: ...

class DeleteLabelRequest(_message.Message):
    __slots__ = ("name", "label", "etag")
    NAME_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    ETAG_FIELD_NUMBER: _ClassVar[int]
    name: str
    label: str
    etag: str
    def __init__(self, name: _Optional[str] = ..., label: _Optional[str] = ..., etag: _Optional[str] = ...) -> None: ...

class DeleteVersionRequest(_message.Message):
    __slots__ = ("name", "version")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    name: str
    version: int
    def __init__(self, name: _Optional[str] = ..., version: _Optional[int] = ...) -> None: ...

class DeleteVersionResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DeleteModelRequest(_message.Message):
    __slots__ = ("name", "force")
    NAME_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    name: str
    force: bool
    def __init__(self, name: _Optional[str] = ..., force: bool = ...) -> None: ...

class DeleteModelResponse(_message.Message):
    __slots__ = ("versions",)
    VERSIONS_FIELD_NUMBER: _ClassVar[int]
    versions: int
    def __init__(self, versions: _Optional[int] = ...) -> None: ...

class ListEventsRequest(_message.Message):
    __slots__ = ("page_size", "page_token", "model", "action", "by", "since", "until")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    UNTIL_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    model: str
    action: str
    by: str
    since: _timestamp_pb2.Timestamp
    until: _timestamp_pb2.Timestamp
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., model: _Optional[str] = ..., action: _Optional[str] = ..., by: _Optional[str] = ..., since: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., until: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class AuditEvent(_message.Message):
    __slots__ = ("id", "time", "action", "by", "model", "version", "label", "before", "after")
    ID_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    id: str
    time: _timestamp_pb2.Timestamp
    action: str
    by: str
    model: str
    version: int
    label: str
    before: str
    after: str
    def __init__(self, id: _Optional[str] = ..., time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., action: _Optional[str] = ..., by: _Optional[str] = ..., model: _Optional[str] = ..., version: _Optional[int] = ..., label: _Optional[str] = ..., before: _Optional[str] = ..., after: _Optional[str] = ...) -> None: ...

class ListEventsResponse(_message.Message):
    __slots__ = ("events", "next_page_token")
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[AuditEvent]
    next_page_token: str
    def __init__(self, events: _Optional[_Iterable[_Union[AuditEvent, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class DownloadArtifactRequest(_message.Message):
    __slots__ = ("name", "version", "label", "artifact_key")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    ARTIFACT_KEY_FIELD_NUMBER: _ClassVar[int]
    name: str
    version: int
    label: str
    artifact_key: str
    def __init__(self, name: _Optional[str] = ..., version: _Optional[int] = ..., label: _Optional[str] = ..., artifact_key: _Optional[str] = ...) -> None: ...

class FileHeader(_message.Message):
    __slots__ = ("path", "size")
    PATH_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    path: str
    size: int
    def __init__(self, path: _Optional[str] = ..., size: _Optional[int] = ...) -> None: ...

class DownloadArtifactResponse(_message.Message):
    __slots__ = ("header", "chunk")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    header: FileHeader
    chunk: bytes
    def __init__(self, header: _Optional[_Union[FileHeader, _Mapping]] = ..., chunk: _Optional[bytes] = ...) -> None: ...

class GetCapabilitiesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class OptionInfo(_message.Message):
    __slots__ = ("name", "type", "default", "description")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    name: str
    type: str
    default: str
    description: str
    def __init__(self, name: _Optional[str] = ..., type: _Optional[str] = ..., default: _Optional[str] = ..., description: _Optional[str] = ...) -> None: ...

class Capabilities(_message.Message):
    __slots__ = ("compiler_version", "abi_version", "limits", "options", "operators", "min_opset", "max_opset", "signing_key", "signing_key_id")
    class LimitsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    COMPILER_VERSION_FIELD_NUMBER: _ClassVar[int]
    ABI_VERSION_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    OPERATORS_FIELD_NUMBER: _ClassVar[int]
    MIN_OPSET_FIELD_NUMBER: _ClassVar[int]
    MAX_OPSET_FIELD_NUMBER: _ClassVar[int]
    SIGNING_KEY_FIELD_NUMBER: _ClassVar[int]
    SIGNING_KEY_ID_FIELD_NUMBER: _ClassVar[int]
    compiler_version: str
    abi_version: int
    limits: _containers.ScalarMap[str, int]
    options: _containers.RepeatedCompositeFieldContainer[OptionInfo]
    operators: _containers.RepeatedScalarFieldContainer[str]
    min_opset: int
    max_opset: int
    signing_key: str
    signing_key_id: str
    def __init__(self, compiler_version: _Optional[str] = ..., abi_version: _Optional[int] = ..., limits: _Optional[_Mapping[str, int]] = ..., options: _Optional[_Iterable[_Union[OptionInfo, _Mapping]]] = ..., operators: _Optional[_Iterable[str]] = ..., min_opset: _Optional[int] = ..., max_opset: _Optional[int] = ..., signing_key: _Optional[str] = ..., signing_key_id: _Optional[str] = ...) -> None: ...

class ListTargetsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class TargetInfo(_message.Message):
    __slots__ = ("name", "description", "triple", "cpu", "features", "vector_bits")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    TRIPLE_FIELD_NUMBER: _ClassVar[int]
    CPU_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    VECTOR_BITS_FIELD_NUMBER: _ClassVar[int]
    name: str
    description: str
    triple: str
    cpu: str
    features: _containers.RepeatedScalarFieldContainer[str]
    vector_bits: int
    def __init__(self, name: _Optional[str] = ..., description: _Optional[str] = ..., triple: _Optional[str] = ..., cpu: _Optional[str] = ..., features: _Optional[_Iterable[str]] = ..., vector_bits: _Optional[int] = ...) -> None: ...

class ListTargetsResponse(_message.Message):
    __slots__ = ("targets",)
    TARGETS_FIELD_NUMBER: _ClassVar[int]
    targets: _containers.RepeatedCompositeFieldContainer[TargetInfo]
    def __init__(self, targets: _Optional[_Iterable[_Union[TargetInfo, _Mapping]]] = ...) -> None: ...
