"""Pulsar sends a tenant's programs to the gateway, where their messages and acknowledgements are already."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka_mapping.state.clusters.tenant_records import ImportSwitch
from tests.compat.harness.java import JavaRuntime, JavaSdk, known_jars
from tests.from_pulsar.there import There
from tests.integration.command_line import CommandLine
from tests.waiting import until

_MESSAGES = 200
_WAIT_MS = 120_000
"""Clients wait longer each time before they try again."""


@pytest.fixture
def java(there: There) -> Iterator[Any]:
    """Pulsar's Java client of its release."""
    with ExitStack() as stack:
        sdk = JavaSdk(stack.enter_context(JavaRuntime(known_jars(there.release))).address)
        stack.callback(sdk.end_jvm)
        yield sdk


def _received(consumer: Any, count: int) -> dict[int, Any]:
    """So many messages, none of them twice."""
    found: dict[int, Any] = {}
    for _ in range(count):
        message = consumer.receive(_WAIT_MS)
        number = int(message.data())
        assert number not in found
        found[number] = message
    return found


def _acknowledge(consumer: Any, messages: dict[int, Any], numbers: Iterable[int]) -> None:
    for number in numbers:
        consumer.acknowledge(messages[number])


def test_programs_go_on_at_the_gateway(
    there: There, admin: AdminClient, service_url: str, tenant: str, java: Any, addresses: list[str]
) -> None:
    """A producer, a consumer without a backlog and one with holes, all of one Java program, go on with the same
    objects. The switch is killed once. What is acknowledged while the tenant is closed does not come again, and what
    is acknowledged later, of messages that Pulsar delivered, counts here."""
    orders = f"persistent://{there.make_tenant(tenant)}/orders"
    there.ask("PUT", f"/persistent/{tenant}/shop/orders/partitions", 2)
    program = java.Client(there.service_url, operation_timeout_seconds=120)
    done = program.subscribe(orders, "done", consumer_type=java.ConsumerType.Shared)
    holes = program.subscribe(orders, "holes", consumer_type=java.ConsumerType.Shared)
    there.client.subscribe(orders, "nothing").close()
    producer = program.create_producer(orders, send_timeout_millis=0)
    for number in range(_MESSAGES):
        producer.send(b"%d" % number)
    everything = range(_MESSAGES)
    _acknowledge(done, _received(done, _MESSAGES), everything)
    held = _received(holes, _MESSAGES)
    _acknowledge(holes, held, everything[::4])

    words = [sys.executable, "-m", "pulsar_on_kafka.cli", "--url", service_url, "migrate", "import", "switch", tenant]
    first = subprocess.Popen([*words, *addresses, "--yes"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def is_closed() -> bool:
        record = admin.node.imports.record(tenant, Deadline.after(30))
        return record is not None and record.switch is not ImportSwitch.NOT_BEGUN

    until(is_closed, "the tenant to be closed", 120)
    first.send_signal(signal.SIGKILL)
    first.wait()
    _acknowledge(holes, held, everything[1::4])
    pok = CommandLine(service_url, "migrate")
    assert pok.json("import", "switch", tenant, *addresses, "--yes")["switch"] == "OPEN"
    assert "switch of tenant" in pok("import", "run", tenant, exits=1).stderr
    assert pok.json("import", "switch", tenant, *addresses, "--yes")["switch"] == "OPEN"

    for number in range(_MESSAGES, _MESSAGES + 50):
        producer.send(b"%d" % number)
    since = range(_MESSAGES, _MESSAGES + 50)
    _acknowledge(done, _received(done, len(since)), since)
    again = _received(holes, 1)
    _acknowledge(holes, held, everything[2::4])
    while not again.keys() >= {*everything[3::4], *since}:
        again |= _received(holes, 1)
    assert not again.keys() & {*everything[::4], *everything[1::4]}
    _acknowledge(holes, again, again.keys() - {*everything[2::4]})

    def backlogs() -> dict[str, int]:
        return {name: admin.subscription_stats(orders, name).backlog for name in ("done", "holes", "nothing")}

    expected = {"done": 0, "holes": 0, "nothing": _MESSAGES + len(since)}
    until(lambda: backlogs() == expected, lambda: f"{backlogs()}, expected {expected}")
    program.close()
