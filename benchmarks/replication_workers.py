"""Copying a topic to a second cluster: `pok serve --only replication`, beside a loop of raw confluent-kafka.

The second broker belongs to this process, which stays for the whole group; who copies runs in a process of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from benchmarks.pacing import Receiver, send_paced
from benchmarks.second_cluster import THERE, introduce, second_url
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.client.client import Client
from pulsar_on_kafka.kafka.settings import KafkaSettings
from pulsar_on_kafka_mapping.names.topic_name import TopicName, kafka_topic
from tests.waiting import until

_PATIENCE_S: Final = 600.0
_QUEUE_KBYTES: Final = 16 * 1024


def copy(url: str, messages: int, size: int, by: str) -> dict[str, Any]:
    """Entries a second that arrive on the second cluster, from the first tenth to the last one."""
    with AdminClient(url) as here, AdminClient(second_url()) as there:
        topic = _topic(here, url, there)
        client = Client(url, stand_in=False)
        producer = client.create_producer(topic, block_if_queue_full=True, max_pending_messages=10_000)
        for _ in range(messages):
            producer.send_async(b"x" * size, None)
        producer.close()
        client.close()

        def arrived() -> int:
            return sum(there.topic_stats(topic).end_offsets.values())

        with _copying(here, there, url, topic, by):
            _await(lambda: arrived() >= messages // 10)
            first, start_s = arrived(), time.monotonic()
            if first >= messages:
                raise RuntimeError(f"all {messages} messages were there at once: too few to tell a rate")
            _await(lambda: arrived() >= messages)
            took_s = time.monotonic() - start_s
    return {"per_s": round((messages - first) / took_s), "took_s": round(took_s, 2)}


def copy_latency(url: str, messages: int, rate: int, by: str) -> dict[str, Any]:
    """From when a message was to be sent on the first cluster until a raw consumer of the second one has it."""
    with AdminClient(url) as here, AdminClient(second_url()) as there:
        topic = _topic(here, url, there)
        name = kafka_topic(TopicName.parse(topic))
        receiver = Receiver(
            "raw_workers",
            "latency_receiver",
            {"config": _plain(_settings(second_url()).reader(fetch_queue_kbytes=_QUEUE_KBYTES)), "topic": name,
             "messages": messages, "rate": rate},
        )  # fmt: skip
        receiver.wait_ready()
        producer = Producer(_plain(_settings(url).producer(compression="none", message_timeout_ms=30_000, linger_ms=1)))
        with _copying(here, there, url, topic, by):

            def send(payload: bytes) -> None:
                producer.produce(name, payload)
                producer.poll(0)

            lag_ms = send_paced(messages, rate, send)
            producer.flush()
            return {**receiver.result(), "sender_lag_ms": lag_ms}


def raw_copy(source: dict[str, Any], target: dict[str, Any], topic: str) -> dict[str, Any]:
    """consume(1000), produce each with its headers and a callback, poll; until it is killed."""
    consumer = Consumer({**source, "enable.partition.eof": False, "fetch.wait.max.ms": 100})
    consumer.assign([TopicPartition(topic, 0, 0)])
    producer = Producer(target)
    producer.list_topics(topic, timeout=30)
    print("ready", flush=True)
    failed: list[KafkaError] = []

    def delivered(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            failed.append(error)

    while not failed:
        first = consumer.poll(0.05)
        for message in [] if first is None else [first, *consumer.consume(999, 0)]:
            while True:
                try:
                    producer.produce(
                        topic, message.value(), message.key(), 0, on_delivery=delivered, headers=message.headers()
                    )
                    break
                except BufferError:
                    producer.poll(0.01)
        producer.poll(0)
    raise RuntimeError(f"a copy was not stored: {failed[0]}")


@contextmanager
def _copying(here: AdminClient, there: AdminClient, url: str, topic: str, by: str) -> Iterator[None]:
    """Somebody copies the topic while inside, from when this begins."""
    if by == "layer":
        here.set_policy(topic, "replication_clusters", [THERE])
        command = [
            sys.executable,
            "-m",
            "pulsar_on_kafka.cli",
            "--url",
            url,
            "serve",
            "--only",
            "replication",
            "--port",
            "0",
        ]
    else:
        arguments = {
            "source": _plain(_settings(url).reader(fetch_queue_kbytes=_QUEUE_KBYTES)),
            "target": _plain(_settings(second_url()).producer(compression="none", message_timeout_ms=0, linger_ms=1)),
            "topic": kafka_topic(TopicName.parse(topic)),
        }
        command = [sys.executable, "-m", "benchmarks.worker", "replication_workers", "raw_copy",
                   json.dumps(arguments)]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            if not process.stdout.readline():
                raise RuntimeError(f"who copies ended with {process.wait()}")
            if by == "layer":
                _await(lambda: bool(_replication(here, topic)))
            yield
        finally:
            process.kill()
            if by == "layer":
                here.remove_policy(topic, "replication_clusters")


def _replication(here: AdminClient, topic: str) -> str:
    found = here.topic_stats(topic).replication.get(THERE)
    return "" if found is None else found.connected


def _topic(here: AdminClient, url: str, there: AdminClient) -> str:
    """A fresh one, on both."""
    introduce(here, url, there)
    name = f"copied-{uuid.uuid4().hex}"
    for admin in (here, there):
        admin.create_topic(name)
    return name


def _settings(url: str) -> KafkaSettings:
    return KafkaSettings(url.partition("://")[2])


def _plain(config: dict[str, Any]) -> dict[str, Any]:
    """Without what cannot be given to another process."""
    return {name: value for name, value in config.items() if isinstance(value, (str, int, float, bool))}


def _await(happened: Any) -> None:
    until(happened, "what is to be copied", _PATIENCE_S)
