"""A client and an administrator of the session's broker, closed at the end of the test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import layer as pulsar
from layer.admin import AdminClient


@pytest.fixture
def client(service_url: str) -> Iterator[pulsar.Client]:
    made = pulsar.Client(service_url)
    yield made
    made.close()


@pytest.fixture
def admin(service_url: str) -> Iterator[AdminClient]:
    with AdminClient(service_url) as made:
        yield made
