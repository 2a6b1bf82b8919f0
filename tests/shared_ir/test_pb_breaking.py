"""What the last release promised of the protocol still holds: numbers, names, types. What is taken away leaves its number reserved."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2
from grpc_tools import protoc

PROTO = Path(__file__).parents[2] / "proto"
SOURCES = ("ingot/compiler/v1/compiler.proto", "inference/v2/model_config.proto", "inference/v2/grpc_service.proto")
OURS = "ingot/compiler/v1/compiler.proto"


def compiled(folder: Path, out: Path, sources: tuple[str, ...] = SOURCES) -> Any:
    """The descriptors of the sources in a folder, comments included."""
    command = ["protoc", f"-I{folder}", f"-I{files('grpc_tools') / '_proto'}", "--include_source_info"]
    assert protoc.main([*command, f"--descriptor_set_out={out}", *sources]) == 0
    return descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes())


def messages(file: Any) -> dict[str, Any]:
    """By full name, those inside of others too."""
    found: dict[str, Any] = {}

    def add(prefix: str, own: Any) -> None:
        for message in own:
            name = f"{prefix}.{message.name}"
            found[name] = message
            add(name, message.nested_type)

    add(file.package, file.message_type)
    return found


def enums(file: Any) -> dict[str, Any]:
    inside = {f"{name}.{enum.name}": enum for name, message in messages(file).items() for enum in message.enum_type}
    return {f"{file.package}.{enum.name}": enum for enum in file.enum_type} | inside


def broken(before: Any, after: Any) -> list[str]:
    """What a peer of the version before would no longer understand, a sentence each."""
    now = {file.name: file for file in after.file}
    found: list[str] = []
    for file in before.file:
        if file.name not in now:
            found.append(f"{file.name} is gone")
            continue
        found += _messages_broken(messages(file), messages(now[file.name]))
        found += _enums_broken(enums(file), enums(now[file.name]))
        found += _services_broken(file, now[file.name])
    return found


def _messages_broken(before: dict[str, Any], after: dict[str, Any]) -> Iterator[str]:
    for name, message in before.items():
        if name not in after:
            yield f"message {name} is gone"
            continue
        yield from _freed(name, message, after[name])
        fields = {field.number: field for field in after[name].field}
        for field in message.field:
            own = fields.get(field.number)
            if own is None:
                yield from _not_reserved(f"{name}.{field.name}", field, after[name])
            elif _shape(field, message) != _shape(own, after[name]):
                yield f"field {name}.{field.name} is another: {_shape(field, message)} became {_shape(own, after[name])}"


def _freed(name: str, before: Any, after: Any) -> Iterator[str]:
    """What was reserved, of messages and enums, stays so: a field that comes in its place means another thing to some peer."""
    for number in sorted(_reserved(before) - _reserved(after)):
        yield f"number {number} of {name} is no longer reserved"
    for text in sorted(set(before.reserved_name) - set(after.reserved_name)):
        yield f"name {text!r} of {name} is no longer reserved"


def _reserved(message: Any) -> set[int]:
    """NOTE: the end of a reserved range is behind it in messages, and in it in enums; those of both are short."""
    last = 0 if message.DESCRIPTOR.name == "DescriptorProto" else 1
    return {number for span in message.reserved_range for number in range(span.start, span.end + last)}


def _not_reserved(name: str, field: Any, message: Any) -> Iterator[str]:
    if field.number not in _reserved(message):
        yield f"field {name} is gone, and its number {field.number} is not reserved"
    if field.name not in message.reserved_name:
        yield f"field {name} is gone, and its name is not reserved"


def _shape(field: Any, message: Any) -> tuple[Any, ...]:
    inside = message.oneof_decl[field.oneof_index].name if field.HasField("oneof_index") else ""
    return field.name, field.type, field.type_name, field.label, inside


def _enums_broken(before: dict[str, Any], after: dict[str, Any]) -> Iterator[str]:
    for name, enum in before.items():
        if name not in after:
            yield f"enum {name} is gone"
            continue
        yield from _freed(name, enum, after[name])
        values = {value.number: value.name for value in after[name].value}
        for value in enum.value:
            is_reserved = value.number in _reserved(after[name]) and value.name in after[name].reserved_name
            if values.get(value.number) != value.name and not is_reserved:
                yield f"value {name}.{value.name} = {value.number} is {values.get(value.number, 'gone')}"


def _services_broken(before: Any, after: Any) -> Iterator[str]:
    services = {service.name: service for service in after.service}
    for service in before.service:
        own = {method.name: method for method in services[service.name].method} if service.name in services else {}
        for method in service.method:
            if method.name not in own:
                yield f"method {service.name}.{method.name} is gone"
            elif _kind(method) != _kind(own[method.name]):
                yield f"method {service.name}.{method.name} is another: {_kind(method)} became {_kind(own[method.name])}"


def _kind(method: Any) -> tuple[Any, ...]:
    return method.input_type, method.output_type, method.client_streaming, method.server_streaming


@pytest.fixture(name="released", scope="module")
def fixture_released() -> Any:
    return descriptor_pb2.FileDescriptorSet.FromString((PROTO / "released.binpb").read_bytes())


def test_nothing_of_the_last_release_is_broken(released: Any, tmp_path: Path) -> None:
    assert broken(released, compiled(PROTO, tmp_path / "now.binpb")) == []


BREAKING = [
    (r"  string stage = 3;", "  bytes stage = 3;", "TargetJob.stage is another"),
    (r"  string stage = 3;", "  string phase = 3;", "TargetJob.stage is another"),
    (r"  string stage = 3;", "  repeated string stage = 3;", "TargetJob.stage is another"),
    (r"  string stage = 3;", "", "its number 3 is not reserved"),
    (r"  string stage = 3;", "  reserved 3;", "its name is not reserved"),
    (r"  bool complete = 2;", "  bool complete = 4;", "its number 2 is not reserved"),
    (r"  JOB_STATE_FAILED = 4;", "  JOB_STATE_BROKEN = 4;", "JobState.JOB_STATE_FAILED = 4 is JOB_STATE_BROKEN"),
    (r"  rpc CancelJob\(.*?;\n", "", "CompilerService.CancelJob is gone"),
    (r"returns \(stream JobEvent\)", "returns (JobEvent)", "CompilerService.WatchJob is another"),
    (r"  oneof which \{", "  oneof one {", "DownloadArtifactRequest.version is another"),
]


@pytest.mark.parametrize(("pattern", "text", "said"), BREAKING)
def test_what_breaks_the_protocol_is_told(released: Any, tmp_path: Path, pattern: str, text: str, said: str) -> None:
    source = (PROTO / OURS).read_text()
    changed, count = re.subn(pattern, text, source, count=1)
    assert count == 1
    (tmp_path / OURS).parent.mkdir(parents=True)
    (tmp_path / OURS).write_text(changed)
    ours = descriptor_pb2.FileDescriptorSet(file=[file for file in released.file if file.name == OURS])
    found = broken(ours, compiled(tmp_path, tmp_path / "now.binpb", (OURS,)))
    assert any(said in sentence for sentence in found), found


def test_a_field_that_goes_may_go_if_its_number_and_name_are_reserved(released: Any, tmp_path: Path) -> None:
    source = (PROTO / OURS).read_text().replace("  string stage = 3;", '  reserved 3;\n  reserved "stage";', 1)
    (tmp_path / OURS).parent.mkdir(parents=True)
    (tmp_path / OURS).write_text(source)
    ours = descriptor_pb2.FileDescriptorSet(file=[file for file in released.file if file.name == OURS])
    assert broken(ours, compiled(tmp_path, tmp_path / "now.binpb", (OURS,))) == []


def test_what_is_reserved_stays_reserved(tmp_path: Path) -> None:
    def made(fields: str, values: str) -> Any:
        text = f'syntax = "proto3"; package p; message M {{ {fields} string b = 9; }} enum E {{ ZERO = 0; {values} }}'
        (tmp_path / "p.proto").write_text(text)
        return compiled(tmp_path, tmp_path / "p.binpb", ("p.proto",))

    before = made('reserved 2, 4 to 5; reserved "a";', 'reserved 7; reserved "SEVEN"; EIGHT = 8;')
    assert broken(before, before) == []
    assert broken(before, made("reserved 2; string a = 4;", "EIGHT = 8; SEVEN = 7;")) == [
        "number 4 of p.M is no longer reserved",
        "number 5 of p.M is no longer reserved",
        "name 'a' of p.M is no longer reserved",
        "number 7 of p.E is no longer reserved",
        "name 'SEVEN' of p.E is no longer reserved",
    ]
    gone = made('reserved 2, 4 to 5; reserved "a";', 'reserved 7, 8; reserved "SEVEN", "EIGHT";')
    assert broken(before, gone) == []


def test_everything_in_our_protocol_is_documented(tmp_path: Path) -> None:
    """Each method, and each field of each message that is not the entry of a map; and what the values of an enum mean."""
    (file,) = compiled(PROTO, tmp_path / "now.binpb", (OURS,)).file
    told = {tuple(place.path) for place in file.source_code_info.location if place.leading_comments.strip()}
    silent = [
        f"{message.name}.{field.name}"
        for number, message in enumerate(file.message_type)
        for place, field in enumerate(message.field)
        if (4, number, 2, place) not in told
    ]
    silent += [
        value.name
        for number, enum in enumerate(file.enum_type)
        for place, value in enumerate(enum.value)
        if value.number and (5, number, 2, place) not in told
    ]
    silent += [m.name for number, m in enumerate(file.service[0].method) if (6, 0, 2, number) not in told]
    assert silent == []
