"""Properties in PRODUCER and SUBSCRIBE are bounded."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pulsar_on_kafka.base.errors import InvalidOption
from pulsar_on_kafka.gateway.protocol.properties import properties_of
from pulsar_on_kafka_mapping.state.metadata.producer_records import MAX_PROPERTIES_BYTES


def _command(value: str) -> Any:
    return SimpleNamespace(topic="persistent://public/default/t", metadata=[SimpleNamespace(key="k", value=value)])


def test_properties_up_to_the_bound_are_kept() -> None:
    value = "x" * (MAX_PROPERTIES_BYTES - 1)
    assert properties_of(_command(value)) == {"k": value}


def test_more_properties_are_refused() -> None:
    with pytest.raises(InvalidOption, match=rf"/t: properties take {MAX_PROPERTIES_BYTES + 1} bytes"):
        properties_of(_command("x" * MAX_PROPERTIES_BYTES))
