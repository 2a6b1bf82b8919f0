"""Settings of both services from the environment, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from compiler_service import settings as compiler
from runtime_service import settings as runtime
from shared_ir.errors import ErrorCode, IngotError


@pytest.mark.parametrize("module", [compiler, runtime])
@pytest.mark.parametrize("text", ["", "many", "nan", "inf", "1,5", "x" * 1000])
def test_the_malformed_variable_is_named(module: Any, text: str) -> None:
    defaults = module.Settings()
    for name in module.Settings.__dataclass_fields__:
        if type(getattr(defaults, name)) not in (int, float):
            continue
        with pytest.raises(IngotError, match="wrong kind of value") as caught:
            module.Settings.from_environment({module.variable(name): text})
        assert (caught.value.code, caught.value.field) == (ErrorCode.INVALID_ARGUMENT, module.variable(name))
        assert caught.value.expected in ("an integer", "a number")
        assert len(caught.value.received) <= 100


@pytest.mark.parametrize(
    ("module", "name", "text"),
    [
        (compiler, "workers", "0"),
        (compiler, "max_jobs", "-1"),
        (compiler, "job_seconds", "-1"),
        (compiler, "tls_key", "/key.pem"),
        (runtime, "instances", "0"),
        (runtime, "tls_key", "/key.pem"),
        (compiler, "tls_client_ca", "/ca.pem"),
        (runtime, "tls_client_ca", "/ca.pem"),
        (runtime, "tls_certificate", "/crt.pem"),
        (runtime, "model_control", "explicit"),
    ],
)
def test_what_is_out_of_range_is_named(module: Any, name: str, text: str) -> None:
    with pytest.raises(IngotError, match="out of range") as caught:
        module.Settings.from_environment({module.variable(name): text})
    assert caught.value.field == module.variable(name)
