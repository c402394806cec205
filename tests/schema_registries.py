"""Our schema registry under Confluent's clients."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka.schema_registry import SchemaRegistryClient

from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base.http_server import ServerTls
from pulsar_on_kafka.integrations.schema_registry.server import SchemaRegistryServer


@contextmanager
def a_schema_registry(admin: AdminClient) -> Iterator[str]:
    """The URL of a registry in this process, of the administrator's cluster."""
    server = SchemaRegistryServer("127.0.0.1", 0, ServerTls())
    try:
        server.connect(admin.node)
        yield f"http://127.0.0.1:{server.port}"
    finally:
        server.close()


@contextmanager
def confluents_client(url: str, **more: str) -> Iterator[SchemaRegistryClient]:
    """Confluent's client of a registry."""
    found = SchemaRegistryClient({"url": url, **{name.replace("_", "."): value for name, value in more.items()}})
    try:
        yield found
    finally:
        found.close()
