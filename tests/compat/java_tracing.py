"""Pulsar's Java client with its tracing (PIP-446), which the client of the harness's Pulsar does not have yet."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from pulsar_on_kafka.embedded.jar_cache import JarSet, cached

CLIENT_VERSION: Final = "4.2.4"
_OTEL_VERSION: Final = "1.62.0"
"""The client's."""
_OTEL: Final = ("api", "context", "common", "sdk", "sdk-common", "sdk-trace", "sdk-metrics", "sdk-logs")


def tracing_jars() -> Path:
    """The directory of the jars, fetched now if the cache does not hold them.

    Raises:
        EmbeddedBrokerError: the jars are missing and stay so.
    """
    coordinates = (
        f"org.apache.pulsar:pulsar-client:{CLIENT_VERSION}",
        f"org.apache.pulsar:pulsar-client-api:{CLIENT_VERSION}",
        f"org.apache.pulsar:pulsar-client-admin-api:{CLIENT_VERSION}",  # classes of which the client has signatures
        *(f"io.opentelemetry:opentelemetry-{name}:{_OTEL_VERSION}" for name in _OTEL),
        f"io.opentelemetry:opentelemetry-api-incubator:{_OTEL_VERSION}-alpha",
        "com.fasterxml.jackson.core:jackson-annotations:2.18.9",
        "javax.validation:validation-api:1.1.0.Final",
        "org.jspecify:jspecify:1.0.0",
        "org.slf4j:slf4j-api:2.0.17",
    )
    jars = JarSet(
        name=f"java-tracing-{CLIENT_VERSION}",
        title=f"Pulsar's Java client {CLIENT_VERSION} and OpenTelemetry",
        size_mb=50,
        alone=coordinates,
        fewest=len(coordinates),
        needed=(f"pulsar-client-{CLIENT_VERSION}.jar", f"opentelemetry-sdk-trace-{_OTEL_VERSION}.jar"),
    )
    return cached(jars) / "libs"
