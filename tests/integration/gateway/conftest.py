"""A gateway on the shared broker, and those who talk to it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.embedded import Broker
from pulsar_on_kafka.gateway.login.access import OPEN_ACCESS, GatewayAccess
from pulsar_on_kafka.gateway.rest.server import RestServer
from pulsar_on_kafka.gateway.server import Gateway, GatewaySettings
from tests.compat.harness.java import JavaRuntime, JavaSdk, JavaUnavailable, known_jars
from tests.compat.harness.java.bridge import Bridge
from tests.integration.gateway.rest import Rest, ServingRest
from tests.integration.gateway.wire import Wire
from tests.steps import Missing, Unique


@pytest.fixture(scope="module")
def gateway(kafka_broker: Broker) -> Iterator[Gateway]:
    with AdminClient(f"kafka://{kafka_broker.bootstrap}") as admin:
        made = Gateway(admin.node, GatewaySettings(port=0))
        yield made
        made.close(Deadline.after(60))


@pytest.fixture
def serving_rest(admin: AdminClient, unique: Unique) -> ServingRest:
    @contextmanager
    def made(access: GatewayAccess = OPEN_ACCESS, **more: Any) -> Iterator[RestServer]:
        settings = GatewaySettings(port=0, access=access, fleet=unique(), **more)
        gateway = Gateway(admin.node, settings)
        try:
            rest = RestServer(admin, gateway, settings)
            try:
                yield rest
            finally:
                rest.close()
        finally:
            gateway.close(Deadline.after(60))

    return made


@pytest.fixture
def rest(serving_rest: ServingRest) -> Iterator[Rest]:
    with serving_rest() as running:
        yield Rest(running.url())


@pytest.fixture
def bridge() -> Iterator[Bridge]:
    pulsar = pytest.importorskip("pulsar", reason="the official client, whose exceptions are raised, is not installed")
    pytest.importorskip("py4j.java_gateway", reason="py4j is not installed")
    runtime = JavaRuntime(known_jars())
    try:
        runtime.start()
    except JavaUnavailable as missing:
        pytest.skip(f"no Java client: {missing}")
    try:
        made = Bridge(runtime.address, pulsar)
        yield made
        made._gateway.close()
    finally:
        runtime.stop()


@pytest.fixture
def wire(gateway: Gateway) -> Iterator[Wire]:
    made = Wire(gateway)
    yield made
    made.close()


@pytest.fixture(scope="module")
def java(missing: Missing) -> Iterator[Any]:
    """The Java client's module, with the face of the Python client's (`compat.java`)."""
    pytest.importorskip("pulsar", reason="the official client, whose exceptions are raised, is not installed")
    runtime = JavaRuntime(known_jars())
    try:
        runtime.start()
    except JavaUnavailable as reason:
        missing("pulsar", str(reason))
    sdk = JavaSdk(runtime.address)
    yield sdk
    sdk.end_jvm()
    runtime.stop()


@pytest.fixture
def teller(java: Any, gateway: Gateway) -> Iterator[Any]:
    """A Java client with transactions."""
    made = java.Client(gateway.address(), enable_transaction=True)
    yield made
    made.close()
