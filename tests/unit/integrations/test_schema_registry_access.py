"""Access to the schema registry."""

from __future__ import annotations

import base64

import pytest

from pulsar_on_kafka.base.errors import InvalidOption
from pulsar_on_kafka.integrations.schema_registry.access import RegistryAccess


def basic(text: str) -> dict[str, str]:
    return {"authorization": f"Basic {base64.b64encode(text.encode()).decode()}"}


def test_users_log_in_by_basic_auth() -> None:
    access = RegistryAccess.checked("0.0.0.0", {"connect": "a:b", "ui": "c"})  # noqa: S104
    assert access.admits(basic("connect:a:b"))
    assert access.admits(basic("ui:c"))
    for headers in (basic("ui:a:b"), basic("ui"), {"authorization": "Basic ä"}, {"authorization": "Bearer c"}, {}):
        assert not access.admits(headers)


def test_without_users_this_machine_alone_may_read() -> None:
    access = RegistryAccess.checked("127.0.0.1", None)
    assert access.admits({"host": "localhost:8081"})
    assert not access.admits({"host": "evil.example:8081"})
    assert not access.admits({})
    with pytest.raises(InvalidOption, match="--schema-registry-users-file"):
        RegistryAccess.checked("0.0.0.0", None)  # noqa: S104
