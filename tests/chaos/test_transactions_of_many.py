"""Processes with a transaction each, more than there are coordinators, so that some serve none."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pulsar_on_kafka.admin import AdminClient
from tests.integration.transaction_support import data_of
from tests.steps import Unique
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.kafka

_ROOT = Path(__file__).parents[2]
_COUNT = 24
_OPERATION_S = 300
"""All of them start at once, beside other tests."""

_CROWD = """
import os, signal, sys
import pulsar_on_kafka as pulsar

url, topic, count, operation_s = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
told, tell = os.pipe()
wait, go = os.pipe()
for number in range(count):
    if os.fork() == 0:
        os.close(go)
        try:
            client = pulsar.Client(
                url,
                operation_timeout_seconds=operation_s,
                connection_timeout_ms=1000 * operation_s,
                enable_transaction=True,
            )
            producer = client.create_producer(topic, send_timeout_millis=1000 * operation_s)
            first = client.new_transaction(600_000)
            os.write(tell, b"b")
            os.read(wait, 1)  # until all have begun one
            with first:
                producer.send(b"%d" % number, txn=first)
            os.write(tell, b"c")
            client.close()
        except BaseException as failure:
            os.write(tell, b"!")
            os.write(1, f"{number}: {failure!r}\\n".encode())
        finally:
            os._exit(0)
os.close(tell)
os.close(wait)
said = b""
while said.count(b"b") + said.count(b"!") < count:
    said += os.read(told, 100) or sys.exit("they ended early")
os.close(go)
while more := os.read(told, 100):
    said += more
print(said.count(b"c"))
"""
"""Forks processes that meet when each has begun a transaction; says why some failed, and how many committed theirs."""


def test_processes_without_coordinators_take_part(service_url: str, bootstrap: str, unique: Unique) -> None:
    topic = unique()
    with AdminClient(service_url) as admin:
        admin.create_topic(topic)
        kafka_topic = admin.topic_stats(topic).kafka_topic
    crowd = subprocess.run(
        [sys.executable, "-c", _CROWD, service_url, topic, str(_COUNT), str(_OPERATION_S)],
        cwd=_ROOT, capture_output=True, text=True, timeout=_OPERATION_S + PATIENCE_S, check=False,
    )  # fmt: skip
    assert (crowd.returncode, crowd.stdout) == (0, f"{_COUNT}\n"), crowd.stderr
    seen = data_of(bootstrap, kafka_topic)
    messages = {each.txn: each.value for each in seen if each.ended is None}
    assert sorted(messages.values(), key=lambda value: int(value or b"")) == [b"%d" % n for n in range(_COUNT)]
    assert {each.txn for each in seen if each.ended is True} == set(messages)
    assert len({txn.coordinator for txn in messages if txn is not None}) > 1
