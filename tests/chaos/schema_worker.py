"""A process that registers schemas, a thread for each, and may be killed in the middle of it.

It says `ready` when it is connected, begins at a line on its standard input, and says what each thread was told.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.node.node import Node, acquire, release
from pulsar_on_kafka.kafka.settings import KafkaSettings
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.state.state_topics import SCHEMAS, StateTopic
from tests.registries import avro

PATIENCE_S = 120.0
UNDER_WAY_S = 0.002


@dataclass(frozen=True)
class SchemaOrders:
    """`fields` are the schemas, by the name of their one field. `cut`: 'before', 'under way' or 'after' the `cut_at`-th
    proposal (from 1) the process gets SIGKILL."""

    bootstrap: str
    topic: str
    fields: tuple[str, ...]
    cut: str = ""
    cut_at: int = 0


def say(**what: object) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def cut_short(node: Node, orders: SchemaOrders) -> None:
    """Have the process killed around one of its appends to the state topic of schemas."""
    append_many: Callable[..., list[int]] = node.log.append_many
    lock, count = threading.Lock(), 0

    def append_or_die(topic: StateTopic, partition: int, records: Any, deadline: Deadline) -> list[int]:
        nonlocal count
        with lock:
            proposes = topic is SCHEMAS and any(value is not None for _, value in records)
            count += proposes
            dies = proposes and count == orders.cut_at
        if not dies:
            return append_many(topic, partition, records, deadline)
        if orders.cut == "under way":
            threading.Thread(target=append_many, args=(topic, partition, records, deadline), daemon=True).start()
            threading.Event().wait(UNDER_WAY_S)
        elif orders.cut == "after":
            append_many(topic, partition, records, deadline)
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("killed")

    node.log.append_many = append_or_die  # type: ignore[method-assign]


def main(orders: SchemaOrders) -> None:
    logging.basicConfig(level=logging.WARNING)
    node = acquire(KafkaSettings(orders.bootstrap), Deadline.after(PATIENCE_S))
    topic = TopicName.parse(orders.topic)
    if orders.cut:
        cut_short(node, orders)
    together = threading.Barrier(len(orders.fields))

    def register(field: str) -> None:
        together.wait(PATIENCE_S)
        version = node.schemas.for_producer(topic, avro(field), Deadline.after(PATIENCE_S))
        say(field=field, version=version.number if version else None)

    say(ready=True)
    sys.stdin.readline()
    with ThreadPoolExecutor(len(orders.fields)) as threads:
        for done in [threads.submit(register, field) for field in orders.fields]:
            done.result()
    say(counts=asdict(node.schemas.counts))
    release(node)


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    main(SchemaOrders(**{**given, "fields": tuple(given["fields"])}))
