"""The Java client drives a scenario through this `run.sdk`: the official Python module with another `Client`."""

from __future__ import annotations

import importlib
from typing import Any

from pulsar_on_kafka.compat.java.bridge import Bridge
from pulsar_on_kafka.compat.java.client import JavaClient
from pulsar_on_kafka.compat.java.runtime import JavaAddress


class JavaSdk:
    """Enumerations, policies and exceptions are the official Python module's; what makes clients is Java's."""

    def __init__(self, address: JavaAddress) -> None:
        self._official: Any = importlib.import_module("pulsar")
        self._bridge = Bridge(address, self._official)

    def Client(self, url: str, **options: Any) -> JavaClient:  # noqa: N802 - the official name
        return JavaClient(self._bridge, url, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._official, name)
