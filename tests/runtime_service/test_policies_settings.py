"""Version policies, settings from the environment, and the division of cores."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from runtime_service.model_settings import _LIMITS, ModelSettings
from runtime_service.models.versions import threads_per_instance
from runtime_service.policies import PolicyCatalogue, Selection, VersionPolicy
from runtime_service.settings import RuntimeSettings, variable
from runtime_service.splitting import Share
from shared_ir.errors import ErrorCode, IngotError

WEIGHTS = (
    "stable:",
    "stable:x",
    "stable:-1",
    "all:3",
    "stable+canary:5",
    "stable:0",
    "stable:1+stable:2",
    "stable:1000001",
)
CATALOGUE = PolicyCatalogue((1, 2, 3, 7), {"stable": 2, "canary": 7})


def split(*shares: tuple[str, int, int]) -> tuple[Share, ...]:
    return tuple(Share(*share) for share in shares)


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("stable", Selection((2,), 2, {"stable": 2})),
        ("canary+stable", Selection((2, 7), 7, {"stable": 2, "canary": 7})),
        ("stable+beta", Selection((2,), 2, {"stable": 2})),
        ("latest", Selection((7,), 7, {"canary": 7})),
        ("latest:2", Selection((3, 7), 7, {"canary": 7})),
        ("1+3", Selection((1, 3), 1, {})),
        ("all", Selection((1, 2, 3, 7), 7, {"stable": 2, "canary": 7})),
        (
            "stable:95+canary:5",
            Selection((2, 7), 2, {"stable": 2, "canary": 7}, split(("stable", 2, 95), ("canary", 7, 5))),
        ),
        ("stable:0+canary:1", Selection((2, 7), 2, {"stable": 2, "canary": 7}, split(("canary", 7, 1)))),
        ("3:1+1:2+latest:2", Selection((1, 3, 7), 3, {"canary": 7}, split(("3", 3, 1), ("1", 1, 2)))),
        ("stable:1+beta:1", Selection((2,), 2, {"stable": 2}, split(("stable", 2, 1), ("beta", 2, 1)))),
    ],
)
def test_policies_select(policy: str, expected: Selection) -> None:
    parsed = VersionPolicy.parse(policy)
    found = parsed.select(CATALOGUE)
    assert replace(found, term="", missing={}) == expected
    assert str(parsed) == policy
    assert found.term == parsed.terms[0].name
    assert found.missing.keys() == {"beta"} & {term.name for term in parsed.terms}
    assert all("the store has no version 'beta'" in reason for reason in found.missing.values())


def test_a_later_label_whose_record_does_not_count_says_why() -> None:
    fault = IngotError(ErrorCode.ARTIFACT_UNTRUSTED, "nobody trusted signed the label")
    found = VersionPolicy.parse("stable+canary").select(PolicyCatalogue((1,), {"stable": 1}, {"canary": fault}))
    assert (found.versions, found.missing) == ((1,), {"canary": str(fault)})


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("stable:95+canary:5", [("stable", 2, 95), ("canary", 7, 5)]),
        ("stable:95+beta:5", [("stable", 2, 100)]),
        ("stable:0+beta:5", [("stable", 2, 5)]),
        ("3:1+1:2+beta:4", [("3", 3, 5), ("1", 1, 2)]),
    ],
)
def test_the_part_of_a_label_that_is_missing_counts_for_the_first(policy: str, expected: Sequence[Any]) -> None:
    found = VersionPolicy.parse(policy).select(CATALOGUE)
    assert found.served_shares == split(*expected)


@pytest.mark.parametrize("policy", ["beta", "beta+stable", "4", "stable+4", "1+4"])
def test_policies_that_find_nothing(policy: str) -> None:
    with pytest.raises(IngotError) as caught:
        VersionPolicy.parse(policy).select(CATALOGUE)
    assert caught.value.code is ErrorCode.NOT_FOUND


@pytest.mark.parametrize("policy", ["", "+", "Stable", "latest:0", "latest:", "stable+", "-1", "0", "a b", *WEIGHTS])
def test_policies_outside_the_grammar(policy: str) -> None:
    with pytest.raises(IngotError) as caught:
        VersionPolicy.parse(policy)
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT


def test_settings_come_from_the_environment() -> None:
    settings = RuntimeSettings.from_environment(
        {
            "INGOT_STORE_URL": "s3://bucket/models",
            "INGOT_HOME": "/var/lib/ingot",
            "INGOT_RUNTIME_MAX_BATCH_SIZE": "16",
            "INGOT_RUNTIME_POLL_INTERVAL": "0.5",
            "INGOT_RUNTIME_MODELS": "resnet@latest:2, bert",
            "INGOT_RUNTIME_PORT": "tcp://10.0.0.1:8001",  # as Kubernetes sets it for a service of that name
        }
    )
    assert (settings.store_url, settings.home) == ("s3://bucket/models", Path("/var/lib/ingot"))
    assert (settings.max_batch_size, settings.poll_interval) == (16, 0.5)
    assert [(m.name, str(m.policy)) for m in settings.model_settings()] == [("resnet", "latest:2"), ("bert", "stable")]


def test_loopback_by_default() -> None:
    settings = RuntimeSettings()
    for address in (settings.grpc_address, settings.http_address, settings.metrics_address):
        assert address.startswith("127.0.0.1:")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_batch_size", "many"),
        ("max_batch_size", "-1"),
        ("poll_interval", "0"),
        ("model_control", "poll"),
        ("max_in_flight", "0"),
        ("tls_key", "/key.pem"),
        ("drain_timeout", "soon"),
        ("token", "  "),
        ("preset", "speed"),
        ("instances", "-1"),
        ("cache_bytes", "-1"),
        ("kept_threads", "-1"),
        ("shared_memory", "/"),
        ("shared_memory", "a/b"),
        ("shared_memory", "/dev/shm/ingot-"),
        ("shared_memory", "  "),
        ("grpc_address", "127.0.0.1:70000"),
        ("http_address", "127.0.0.1:70000"),
        ("http_address", "127.0.0.1"),
        ("metrics_address", "127.0.0.1:http"),
        ("control_address", "localhost:-1"),
    ],
)
def test_a_bad_setting_is_named(field: str, value: str) -> None:
    with pytest.raises(IngotError) as caught:
        RuntimeSettings.from_environment({variable(field): value})
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT
    assert caught.value.field == variable(field)


@pytest.mark.parametrize("prefix", ["", "ingot-", "/ingot-", "*"])
def test_prefixes_of_shared_memory(prefix: str) -> None:
    assert RuntimeSettings.from_environment({"INGOT_RUNTIME_SHARED_MEMORY": prefix}).shared_memory == prefix


@pytest.mark.parametrize("name", ["GRPC", "HTTP"])
def test_shared_memory_is_not_for_whoever_reaches_the_server(name: str) -> None:
    given = {"INGOT_RUNTIME_SHARED_MEMORY": "ingot-", f"INGOT_RUNTIME_{name}_ADDRESS": "0.0.0.0:8000"}
    with pytest.raises(IngotError) as caught:
        RuntimeSettings.from_environment(given)
    assert caught.value.field == "INGOT_RUNTIME_SHARED_MEMORY"
    assert RuntimeSettings.from_environment(given | {"INGOT_RUNTIME_TOKEN": "secret"}).shared_memory == "ingot-"


def test_every_setting_is_documented() -> None:
    source = Path("runtime_service/settings.py").read_text().partition("class RuntimeSettings:")[2]
    for name in RuntimeSettings.__dataclass_fields__:
        line = next(i for i, text in enumerate(source.splitlines()) if text.startswith(f"    {name}: "))
        assert source.splitlines()[line + 1].strip().startswith('"""'), name


def test_models_file(tmp_path: Path) -> None:
    file = tmp_path / "models.json"
    levels = {"preferred_batch_sizes": [4, 2, 4], "priority_levels": 3, "default_priority_level": 2}
    given = {"policy": "3", "max_batch_size": 4, "warmup": {"h": 48}, "instances": 2, **levels}
    file.write_text(json.dumps({"ocr": given}))
    (model,) = RuntimeSettings(models_file=str(file)).model_settings()
    assert model.preferred_batch_sizes == (2, 4)
    assert (model.priority_levels, model.default_priority_level) == (3, 2)
    assert (str(model.policy), model.max_batch_size, dict(model.warmup), model.instances) == ("3", 4, {"h": 48}, 2)
    with pytest.raises(IngotError):
        RuntimeSettings(models_file=str(file), models="ocr@stable").model_settings()


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("", ""),
        ("[]", ""),
        ('{"m": {}, "m": {}}', ""),
        ('{"m": {"instances": 1, "instances": 2}}', ""),
        ('{"m": 3}', ": m"),
        ('{"m": {"warmup": 3}}', ": m: warmup"),
        ('{"m": {"warmup": [["h", 3]]}}', ": m: warmup"),
        ('{"m": {"max_batch": 3}}', ": m: max_batch"),
        ('{"m": {"instances": "x"}}', ": m: instances"),
        ('{"m": {"instances": -2}}', ": m: instances"),
        ('{"m": {"instances": 1000000000}}', ": m: instances"),
        ('{"m": {"instances": 1.5}}', ": m: instances"),
        ('{"m": {"instances": true}}', ": m: instances"),
        ('{"m": {"instances": null}}', ": m: instances"),
        ('{"m": {"run_memory_bytes": -5}}', ": m: run_memory_bytes"),
        ('{"m": {"kept_memory_bytes": -5}}', ": m: kept_memory_bytes"),
        ('{"m": {"max_batch_size": -1}}', ": m: max_batch_size"),
        ('{"m": {"max_queue_size": 0}}', ": m: max_queue_size"),
        ('{"m": {"max_queue_delay_microseconds": -1}}', ": m: max_queue_delay_microseconds"),
        ('{"m": {"warmup": {"h": -1}}}', ": m: warmup: h"),
        ('{"m": {"independent_rows": "false"}}', ": m: independent_rows"),
        ('{"m": {"preferred_batch_sizes": 4}}', ": m: preferred_batch_sizes"),
        ('{"m": {"preferred_batch_sizes": [0]}}', ": m: preferred_batch_sizes"),
        ('{"m": {"preferred_batch_sizes": [4, "x"]}}', ": m: preferred_batch_sizes"),
        ('{"m": {"preferred_batch_sizes": [65]}}', ": m: preferred_batch_sizes"),
        ('{"m": {"preferred_batch_sizes": [8], "max_batch_size": 4}}', ": m: preferred_batch_sizes"),
        ('{"m": {"policy": "stable:x"}}', ": m: policy"),
        ('{"m": {"preset": "speed"}}', ": m: preset"),
        ('{"m": {"preset": {}}}', ": m: preset"),
        ('{"m": {"priority_levels": 3}}', ": m: default_priority_level"),
        ('{"m": {"priority_levels": 3, "default_priority_level": 4}}', ": m: default_priority_level"),
        ('{"m": {"default_priority_level": 1}}', ": m: default_priority_level"),
        ('{"m": {"priority_levels": 1000000, "default_priority_level": 1}}', ": m: priority_levels"),
    ],
)
def test_a_bad_models_file_is_named(tmp_path: Path, text: str, where: str) -> None:
    file = tmp_path / "models.json"
    file.write_text(text)
    with pytest.raises(IngotError) as caught:
        RuntimeSettings(models_file=str(file)).model_settings()
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT
    assert caught.value.field == f"{file}{where}"


def test_who_is_waited_for_is_served(tmp_path: Path) -> None:
    file = tmp_path / "models.json"
    file.write_text('{"in-file": {}}')
    with pytest.raises(IngotError, match="received typo") as caught:
        RuntimeSettings(ready="bert,typo", models="bert", models_file=str(file)).model_settings()
    assert caught.value.field == "INGOT_RUNTIME_READY"
    assert len(RuntimeSettings(ready="bert,in-file", models="bert", models_file=str(file)).model_settings()) == 2
    assert RuntimeSettings(ready="bert", models="*@stable").model_settings()
    explicit: dict[str, Any] = {"model_control": "explicit", "control_address": "unix:/run/ingot.sock"}
    assert RuntimeSettings(ready="later", **explicit).model_settings() == ()


def test_every_number_of_a_model_has_limits() -> None:
    assert set(_LIMITS) == {f.name for f in fields(ModelSettings) if f.type in ("int | None", "int")}


@pytest.mark.parametrize("address", ["0.0.0.0:0", ":9000", "[::]:9000", "10.0.0.7:9000", "models.example.com:9000"])
def test_a_control_address_of_other_machines_needs_a_token_or_certificates(address: str) -> None:
    given = {"INGOT_RUNTIME_MODEL_CONTROL": "explicit", "INGOT_RUNTIME_CONTROL_ADDRESS": address}
    with pytest.raises(IngotError) as caught:
        RuntimeSettings.from_environment(given)
    assert caught.value.field == "INGOT_RUNTIME_CONTROL_ADDRESS"
    certificates = {f"INGOT_RUNTIME_TLS_{name}": "/x.pem" for name in ("CERTIFICATE", "KEY", "CLIENT_CA")}
    for more in ({"INGOT_RUNTIME_TOKEN": "secret"}, certificates):
        assert RuntimeSettings.from_environment(given | more).control_address == address


@pytest.mark.parametrize("address", ["", "unix:/run/ingot.sock", "127.0.0.1:0", "[::1]:0", "localhost:9000"])
def test_a_control_address_of_this_machine_needs_none(address: str) -> None:
    assert RuntimeSettings.from_environment({"INGOT_RUNTIME_CONTROL_ADDRESS": address}).control_address == address


def test_instances_times_threads_stay_within_the_cores() -> None:
    assert [threads_per_instance(8, n) for n in (1, 2, 3, 8, 16)] == [8, 4, 2, 1, 1]


@pytest.mark.parametrize("name", ["-7", "a b", "..", "a/b", "\x1b[2J", "*x", "é", "-", "a" * 300])
def test_what_no_model_can_be_called_is_not_waited_for(name: str, tmp_path: Path) -> None:
    with pytest.raises(IngotError, match="names of models") as caught:
        RuntimeSettings.from_environment({"INGOT_RUNTIME_MODELS": f"good, {name}@stable"}).model_settings()
    assert (caught.value.code, caught.value.field) == (ErrorCode.INVALID_ARGUMENT, "INGOT_RUNTIME_MODELS")
    file = tmp_path / "models.json"
    file.write_text(json.dumps({name: {"policy": "stable"}}))
    with pytest.raises(IngotError, match="names of models"):
        RuntimeSettings(models_file=str(file)).model_settings()
    assert RuntimeSettings(models="*@stable,team.net").model_settings()
