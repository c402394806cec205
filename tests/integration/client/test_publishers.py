"""Operators see the producers of a topic."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient, PublisherStats
from tests.integration.cli.conftest import Pok
from tests.integration.cli.conftest import done as done
from tests.integration.cli.conftest import pok as pok
from tests.integration.client.test_access_modes import another
from tests.steps import Unique
from tests.waiting import until

pytestmark = pytest.mark.kafka


def _seen(
    admin: AdminClient, topic: str, wanted: Callable[[tuple[PublisherStats, ...]], bool]
) -> tuple[PublisherStats, ...]:
    found: tuple[PublisherStats, ...] = ()

    def as_wanted() -> bool:
        nonlocal found
        found = admin.topic_stats(topic).publishers
        return wanted(found)

    until(as_wanted, lambda: f"the publishers to be as wanted: {found}")
    return found


def test_producers_are_seen_with_their_properties_and_counts(
    client: pulsar.Client, admin: AdminClient, unique: Unique
) -> None:
    topic, before_ms = unique(), time.time_ns() // 1_000_000
    named = client.create_producer(topic, "writer", properties={"team": "billing"})
    unnamed = client.create_producer(topic)
    for number in range(3):
        named.send(str(number).encode())
    (one, other) = sorted(_seen(admin, topic, lambda found: len(found) == 2 and any(p.sent == 3 for p in found)),
                          key=lambda publisher: publisher.sent)  # fmt: skip
    assert (other.producer_name, other.access_mode, other.properties) == ("writer", "Shared", {"team": "billing"})
    assert (one.producer_name, one.sent, one.failed, one.properties) == (unnamed.producer_name(), 0, 0, {})
    assert before_ms <= other.connected_since_ms <= time.time_ns() // 1_000_000
    assert one.process == other.process
    named.close()
    assert [found.producer_name for found in _seen(admin, topic, lambda found: len(found) == 1)] == [
        unnamed.producer_name()
    ]
    unnamed.close()
    _seen(admin, topic, lambda found: not found)


@pytest.mark.kills
def test_producers_of_a_process_that_was_killed_are_gone(admin: AdminClient, service_url: str, unique: Unique) -> None:
    topic = unique()
    with another(service_url, topic, "Exclusive", "other") as process:
        found = _seen(admin, topic, lambda found: len(found) == 1)
        assert (found[0].producer_name, found[0].access_mode, found[0].epoch) == ("other", "Exclusive", 1)
        process.process.kill()
        process.process.wait(60)
        _seen(admin, topic, lambda found: not found)


def test_the_command_shows_producers(client: pulsar.Client, admin: AdminClient, done: Pok, unique: Unique) -> None:
    topic = unique()
    client.create_producer(topic, "writer", properties={"team": "billing"})
    _seen(admin, topic, lambda found: len(found) == 1)
    shown = done("topics", "stats", topic).out
    assert "writer" in shown
    assert "team=billing" in shown
    (publisher,) = done("--output", "json", "topics", "stats", topic).json["publishers"]
    assert (publisher["producer_name"], publisher["properties"]) == ("writer", {"team": "billing"})


def test_properties_that_cannot_be_kept(client: pulsar.Client, unique: Unique) -> None:
    with pytest.raises(TypeError, match="'a': 1"):
        client.create_producer(unique(), properties={"a": 1})  # type: ignore[dict-item]
    with pytest.raises(pulsar.InvalidConfiguration, match="262144"):
        client.create_producer(unique(), properties={"a": "b" * 300_000})
