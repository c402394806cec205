"""Every message is copied exactly once, whichever process is killed or stopped when."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from pulsar_on_kafka.embedded import EmbeddedBroker
from tests.brokers import available
from tests.chaos.replication_rounds import FAULTS, Service, play
from tests.clusters.cluster import Cluster, clusters_of, embedded_broker
from tests.steps import Missing, Unique, receive
from tests.waiting import until

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def brokers(missing: Missing) -> Iterator[tuple[EmbeddedBroker, EmbeddedBroker]]:
    with available(missing, embedded_broker()) as eu, available(missing, embedded_broker()) as us:
        yield eu, us


@pytest.fixture(scope="module")
def clusters(brokers: tuple[EmbeddedBroker, EmbeddedBroker]) -> Iterator[dict[str, Cluster]]:
    with clusters_of({name: f"kafka://{b.bootstrap}" for name, b in zip(("eu", "us"), brokers, strict=True)}) as made:
        yield made


def _ready(cluster: Cluster, topic: str, to: str) -> None:
    cluster.admin.create_topic(topic)
    cluster.admin.set_policy(topic, "replication_clusters", [to])


def test_a_replicator_is_killed_and_another_one_stopped(
    clusters: dict[str, Cluster],
    brokers: tuple[EmbeddedBroker, EmbeddedBroker],
    unique: Unique,
    tmp_path: Path,
) -> None:
    topic = unique()
    _ready(clusters["eu"], topic, "us")
    log = tmp_path / "services.log"
    play(clusters["eu"], clusters["us"], brokers, topic, ("kill", "stop"), random.Random(7), log)


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_whatever_dies(
    clusters: dict[str, Cluster],
    brokers: tuple[EmbeddedBroker, EmbeddedBroker],
    unique: Unique,
    tmp_path: Path,
) -> None:
    """For POK_CHAOS_SECONDS (600); POK_CHAOS_SEED runs a printed round again."""
    until = time.monotonic() + float(os.environ.get("POK_CHAOS_SECONDS", "600"))
    seed = int(os.environ.get("POK_CHAOS_SEED", "0")) or random.SystemRandom().randrange(1, 2**31)
    while time.monotonic() < until:
        print(f"\nround: POK_CHAOS_SEED={seed}", flush=True)
        chance = random.Random(seed)
        faults = [chance.choice(FAULTS) for _ in range(4)]
        topic = unique()
        _ready(clusters["eu"], topic, "us")
        print(faults, flush=True)
        play(clusters["eu"], clusters["us"], brokers, topic, faults, chance, tmp_path / f"{seed}.log")
        seed += 1


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_a_ring_of_three_does_not_loop(unique: Unique, tmp_path: Path) -> None:
    with ExitStack() as stack:
        urls = {name: f"kafka://{stack.enter_context(embedded_broker()).bootstrap}" for name in "abc"}
        made = stack.enter_context(clusters_of(urls))
        topic = unique()
        names = sorted(made)
        for cluster in made.values():
            cluster.admin.create_topic(topic)
            cluster.admin.create_subscription(topic, "s")
            cluster.admin.set_policy(topic, "replication_clusters", names)
        for name, cluster in made.items():
            service = Service(cluster.url, tmp_path / f"{name}.log")
            stack.callback(service.kill)
            producer = cluster.client.create_producer(topic)
            for number in range(100):
                producer.send(f"{name}{number}".encode())
        wanted = sorted(f"{name}{number}".encode() for name in names for number in range(100))
        for cluster in made.values():
            consumer = cluster.client.subscribe(topic, "s")
            assert sorted(message.data() for message in receive(consumer, 300)) == wanted

        def all_is_copied() -> bool:
            stats = [cluster.admin.topic_stats(topic) for cluster in made.values()]
            return all(found.backlog == 0 for each in stats for found in each.replication.values())

        until(all_is_copied, "nothing is left to be copied")
        for cluster in made.values():  # not one more than each was sent or got
            assert cluster.admin.topic_stats(topic).entries == 300
