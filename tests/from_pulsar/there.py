"""The Pulsar that tenants leave, as tests speak to it."""

from __future__ import annotations

import json
import urllib.request
from typing import Any
from urllib.parse import urlsplit

import pulsar as official

from tests.compat.pulsar_standalone import PulsarRelease, PulsarStandalone

_KEEP = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}


class There:
    """The Pulsar that a tenant leaves."""

    def __init__(self, standalone: PulsarStandalone, release: PulsarRelease) -> None:
        self.release = release
        self.service_url = standalone.service_url
        self.admin_url = standalone.admin_url
        self.client = official.Client(self.service_url, logger=official.ConsoleLogger(official.LoggerLevel.Error))

    @property
    def port(self) -> int:
        """Of the binary protocol, on this machine."""
        port = urlsplit(self.service_url).port
        assert port is not None
        return port

    def ask(self, method: str, path: str, body: object | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.admin_url}/admin/v2{path}", data, headers, method=method)  # noqa: S310
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310 - our own address
            text = answer.read()
        return json.loads(text) if text else None

    def make_tenant(self, tenant: str) -> str:
        """With a namespace, whose name it gives."""
        self.ask("PUT", f"/tenants/{tenant}", {"allowedClusters": ["standalone"]})
        self.ask("PUT", f"/namespaces/{tenant}/shop", {})
        self.ask("POST", f"/namespaces/{tenant}/shop/retention", _KEEP)
        self.ask("PUT", f"/namespaces/{tenant}/shop/schemaCompatibilityStrategy", "ALWAYS_COMPATIBLE")
        return f"{tenant}/shop"
