"""A service takes memory and processor time while nothing happens, and gathers metrics of subscriptions; these workers
measure it."""

from __future__ import annotations

import secrets
import subprocess
import sys
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import psutil
from confluent_kafka.admin import NewTopic

from benchmarks.model import OWN_SDK
from benchmarks.sent_requests import COUNTED, SentRequests
from benchmarks.session import run_worker
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.admin.overview.gathering import EVERY_S, Gatherer
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.metadata.subscriptions.registry import SUBSCRIPTION_KEYS
from pulsar_on_kafka.broker.metadata.topics import DATA_TOPIC_CONFIGS, TOPIC_KEYS
from pulsar_on_kafka.client.client import Client
from pulsar_on_kafka.client.values.enums import ConsumerType
from pulsar_on_kafka.metrics.overview import MAX_SUBSCRIPTIONS, page_of
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.state.metadata.metadata_records import (
    LifeState,
    SubscriptionRecord,
    TopicRecord,
    encode_subscription,
    encode_topic,
)
from pulsar_on_kafka_mapping.state.state_topics import SUBSCRIPTIONS, TOPICS, StateTopic
from tests.waiting import until

_IDLE_S: Final = 60.0
_MAKERS: Final = 8
_MB: Final = 1 << 20
_TOPICS: Final = 1_000
_PASSES: Final = 3
_PATIENCE_S: Final = 600.0
_LINE: Final = b"\npok_subscription_backlog_entries{"


def serve_idle(sdk: str, url: str, topic: str, messages: int) -> dict[str, Any]:
    """`pok serve` with all roles, a minute after it began to serve a cluster of `messages` topics.

    `rss_mb` is what is resident then, in MB of 1024 x 1024; `cpu_s` the processor time of that minute.
    """
    assert sdk == OWN_SDK
    with AdminClient(url) as admin, ThreadPoolExecutor(_MAKERS) as makers:
        list(makers.map(lambda number: admin.create_topic(f"{topic}-{number}"), range(messages)))
    command = [sys.executable, "-m", "pulsar_on_kafka.cli", "--url", url, "serve", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            if not process.stdout.readline().startswith("serving "):
                raise AssertionError("pok serve does not serve")
            seen = psutil.Process(process.pid)
            before = seen.cpu_times()
            threading.Event().wait(_IDLE_S)
            after = seen.cpu_times()
            memory, threads = seen.memory_info().rss, seen.num_threads()
        finally:
            process.terminate()
    return {
        "rss_mb": round(memory / _MB, 1),
        "threads": threads,
        "cpu_s": round(after.user + after.system - before.user - before.system, 2),
    }


def overview(sdk: str, url: str, topic: str, messages: int) -> dict[str, Any]:
    """`messages` subscriptions of 1,000 topics, of which every tenth has holes: in processes of their own they are
    gathered again and again as a service does, and scraped from a service."""
    assert sdk == OWN_SDK
    _subscribe(url, topic, messages)
    gathered = run_worker("service_workers", "gather", {"url": url, "subscriptions": messages})
    scraped = run_worker("service_workers", "scrape", {"url": url, "subscriptions": messages})
    return {
        **{name: value for name, value in gathered.items() if name != "peak_mb"},
        "gatherer_peak_mb": gathered["peak_mb"],
        **{name: value for name, value in scraped.items() if name != "peak_mb"},
    }


def _subscribe(url: str, topic: str, subscriptions: int) -> None:
    """Topics and subscriptions are written to the state topics at once, as their registries would one by one."""
    topics = [f"{topic}-{number}" for number in range(min(_TOPICS, subscriptions))]
    with AdminClient(url, operation_timeout_seconds=_PATIENCE_S) as admin:
        made = _make_topics(admin, topics)
        records: dict[int, list[tuple[bytes, bytes | None]]] = {}
        for number in range(subscriptions):
            name, incarnation = made[number % len(topics)]
            record = SubscriptionRecord(
                name, f"s{number // len(topics)}", LifeState.ACTIVE, "Shared", {"0": 0}, number, incarnation
            )
            key = SUBSCRIPTION_KEYS.encode((name, record.subscription), 1, secrets.token_hex(16))
            records.setdefault(SUBSCRIPTIONS.partition_for(name), []).append((key, encode_subscription(record)))
        _append(admin, SUBSCRIPTIONS, records)
        client = Client(url, stand_in=False)
        for name in topics[::10]:
            producer = client.create_producer(name)
            for _ in range(3):
                producer.send(b"x" * 100)
            consumer = client.subscribe(name, "s0", ConsumerType.Shared)
            received = [consumer.receive(60_000) for _ in range(3)]
            consumer.acknowledge(received[1])
            consumer.close()
            producer.close()
        client.close()


def _make_topics(admin: AdminClient, topics: list[str]) -> list[tuple[str, int]]:
    """Gives their full names and incarnations."""
    node, deadline = admin.node, Deadline.after(_PATIENCE_S)
    names = [TopicName.parse(topic) for topic in topics]
    kafka_topics = [node.settings.instance.kafka_topic(name) for name in names]
    new = [NewTopic(kafka_topic, 1, config=dict(DATA_TOPIC_CONFIGS)) for kafka_topic in kafka_topics]
    for future in node.admin._handle.create_topics(new, request_timeout=_PATIENCE_S).values():
        future.result(_PATIENCE_S)
    described = until(
        lambda: found if len(found := node.admin.describe_topics(kafka_topics, deadline)) == len(topics) else None,
        "the topics to be known", _PATIENCE_S,
    )  # fmt: skip
    made, records = [], dict[int, list[tuple[bytes, bytes | None]]]()
    for number, (name, kafka_topic) in enumerate(zip(names, kafka_topics, strict=True), 1):
        record = TopicRecord(
            str(name), LifeState.ACTIVE, kafka_topic, 0, 50_000, number, described[kafka_topic].topic_id, created_ms=1
        )
        made.append((str(name), number))
        key = TOPIC_KEYS.encode(str(name), 1, secrets.token_hex(16))
        records.setdefault(TOPICS.partition_for(str(name)), []).append((key, encode_topic(record)))
    _append(admin, TOPICS, records)
    return made


def _append(admin: AdminClient, topic: StateTopic, records: dict[int, list[tuple[bytes, bytes | None]]]) -> None:
    for partition, together in records.items():
        admin.node.log.append_many(topic, partition, together, Deadline.after(_PATIENCE_S))


def gather(url: str, subscriptions: int) -> dict[str, Any]:
    """One pass after the other, as far apart as in a service; the first one reads everything there is."""
    requests = SentRequests()
    with AdminClient(url, kafka_config=COUNTED) as admin:
        requests.taken(admin)
        gatherer = Gatherer(admin.node)
        first = gatherer.gather(Deadline.after(_PATIENCE_S))
        assert len(first.subscriptions) >= subscriptions, len(first.subscriptions)
        first_requests = requests.taken(admin)
        cpu_s, took_s, begun_s = time.process_time(), list[float](), time.monotonic()
        for _ in range(_PASSES):
            threading.Event().wait(EVERY_S)
            seen = gatherer.gather(Deadline.after(_PATIENCE_S))
            took_s.append(seen.took_s)
        lasted_s, cpu_s = time.monotonic() - begun_s, time.process_time() - cpu_s
        sent = requests.taken(admin)
        begun_s = time.monotonic()
        page = page_of(seen)
        paged_s = time.monotonic() - begun_s
        assert page.text.count(_LINE) == min(len(seen.subscriptions), MAX_SUBSCRIPTIONS)
        gatherer.close()
    return {
        "first_pass_s": round(first.took_s, 2),
        "first_pass_requests": first_requests,
        "pass_s": round(max(took_s), 2),
        "requests_per_s": round(sent / lasted_s, 2),
        "cpu_share": round(cpu_s / lasted_s, 3),
        "page_s": round(paged_s, 2),
        "page_mb": round(len(page.text) / _MB, 1),
    }


def scrape(url: str, subscriptions: int) -> dict[str, Any]:
    """The slowest of some scrapes of `pok serve`, once it has gathered."""
    command = [sys.executable, "-m", "pulsar_on_kafka.cli", "--url", url, "serve", "--only", "maintenance"]
    command += ["--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stderr is not None
            port = int(process.stderr.readline().rpartition(" ")[2])

            def answer() -> tuple[float, int]:
                begun_s = time.monotonic()
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as got:
                    lines = got.read().count(_LINE)
                return time.monotonic() - begun_s, lines

            until(lambda: answer()[1] >= subscriptions, "all subscriptions to be gathered", _PATIENCE_S)
            slowest_s = max(answer()[0] for _ in range(10))
            memory = psutil.Process(process.pid).memory_info().rss
        finally:
            process.terminate()
    return {"scrape_s": round(slowest_s, 2), "serve_rss_mb": round(memory / _MB, 1)}
