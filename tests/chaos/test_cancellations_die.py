"""Messages are cancelled and rescheduled while the processes that own the cursors are killed."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from tests.integration.pending_ack_support import begin
from tests.steps import Unique
from tests.waiting import until

pytestmark = [pytest.mark.kafka, pytest.mark.kills]

_MESSAGES = 800
_KINDS = 4


class Consumers:
    """Two processes that consume a subscription, and what they printed."""

    def __init__(self, url: str, topic: str, folder: Path, stack: ExitStack) -> None:
        options = ["consume", topic, "-s", "s", "--type", "shared", "-n", "0"]
        self._command = [sys.executable, "-m", "pulsar_on_kafka.cli", "--url", url, *options]
        self._folder = folder
        self._stack = stack
        self._running: list[subprocess.Popen[bytes]] = []
        self._started = 0

    def start(self) -> None:
        self._started += 1
        with (self._folder / f"{self._started}.txt").open("wb") as printed:
            process = subprocess.Popen(self._command, stdout=printed)
        self._stack.callback(process.wait)
        self._stack.callback(process.kill)
        self._running.append(process)

    def replace(self) -> None:
        """Kill the older one, which owns a partition, and start another one."""
        self._running.pop(0).kill()
        self.start()

    def received(self) -> set[int]:
        lines = [line for each in self._folder.glob("*.txt") for line in each.read_text().splitlines(keepends=True)]
        return {int(line.split("\t")[3]) for line in lines if line.endswith("\n")}


def test_cancelled_messages_are_not_delivered_and_the_others_are(
    client: pulsar.Client, admin: AdminClient, service_url: str, unique: Unique, tmp_path: Path
) -> None:
    topic = unique()
    admin.create_partitioned_topic(topic, 2)
    admin.create_subscription(topic, "s", from_earliest=True)
    producer = client.create_producer(topic, block_if_queue_full=True)
    for number in range(_MESSAGES):
        kind = {"kind": str(number % _KINDS)}
        producer.send_async(b"%d" % number, None, kind, partition_key=f"k{number}", deliver_after=timedelta(hours=1))
    producer.flush()
    with ExitStack() as stack, ThreadPoolExecutor(1) as thread:
        consumers = Consumers(service_url, topic, tmp_path, stack)
        for _ in range(2):
            consumers.start()
        until(lambda: len(admin.subscription_stats(topic, "s").consumers) == 2, "both consumers")

        def while_one_dies(call: Any, **arguments: Any) -> Any:
            under_way = thread.submit(call, topic, **arguments)
            consumers.replace()
            return under_way.result()

        each = _MESSAGES // _KINDS
        assert while_one_dies(admin.cancel_messages, properties={"kind": "1"}) == {"s": each}
        txn = begin(client)
        done = while_one_dies(admin.cancel_messages, properties={"kind": "2"}, transaction=txn)
        assert done == {"s": each}
        txn.commit()
        while_one_dies(admin.reschedule_messages, deliver_at=0, properties={"kind": "0"})
        assert admin.reschedule_messages(topic, deliver_at=0, delayed=True) >= each
        kept = {number for number in range(_MESSAGES) if number % _KINDS in (0, 3)}
        until(lambda: consumers.received() >= kept, lambda: f"{len(kept - consumers.received())} more messages")
        until(lambda: admin.subscription_stats(topic, "s").backlog == 0, "everything to be acknowledged")
        assert consumers.received() == kept
