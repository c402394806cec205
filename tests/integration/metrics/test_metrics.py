"""Prometheus metrics of a process and of a cluster."""

from __future__ import annotations

import logging
import re
import urllib.request
from contextlib import closing
from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families
from typer.testing import CliRunner

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.broker.node.metrics.collector import awaited
from pulsar_on_kafka.broker.subscriptions.partition.partition_options import PartitionStats, WaitingFor
from pulsar_on_kafka.cli.main import app
from pulsar_on_kafka.metrics import MetricsCollector
from tests.steps import Unique, receive, send
from tests.waiting import until

pytestmark = pytest.mark.kafka

Samples = dict[str, float]


def of_subscription(text: str, subscription: str) -> Samples:
    """Samples by name (and `event`), of one subscription."""
    found: Samples = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.labels.get("subscription") == subscription:
                event = sample.labels.get("event") or sample.labels.get("le")
                found[f"{sample.name}{{{event}}}" if event else sample.name] = sample.value
    return found


def scrape(client: pulsar.Client) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{client.metrics_port}/metrics") as answer:
        text = answer.read()
        assert isinstance(text, bytes)
        return text.decode()


def test_a_process_counts_what_it_sends_receives_acknowledges_and_saves(service_url: str, unique: Unique) -> None:
    client = pulsar.Client(service_url, metrics_port=0)
    topic, name = unique(), unique("metered")
    consumer = client.subscribe(topic, name, pulsar.ConsumerType.Shared, negative_ack_redelivery_delay_ms=50)
    send(client, topic, 10)
    messages = receive(consumer, 10)
    for message in messages[::2]:
        consumer.acknowledge(message)
    consumer.negative_acknowledge(messages[1])
    again = receive(consumer, 1)[0]
    assert again.redelivery_count() == 1
    consumer.flush()
    found = of_subscription(scrape(client), name)
    expected = {
        "pok_messages_delivered_total": 11, "pok_entries_acknowledged_total": 5, "pok_entries_redelivered_total": 1,
        "pok_received_bytes_total": 10, "pok_rebalances_total{assigned}": 1, "pok_rebalances_total{lost}": 0,
        "pok_messages_undecryptable_total": 0, "pok_cursor_save_failures_total": 0, "pok_consumers": 1,
        "pok_owned_partitions": 1, "pok_stopped_partitions": 0, "pok_backlog_entries": 5,
        "pok_individually_acknowledged_entries": 4, "pok_holes": 4, "pok_unacknowledged": 5,
        "pok_waiting_for_redelivery": 0, "pok_buffered_entries": 0, "pok_suspects": 0,
    }  # fmt: skip
    assert {key: found[key] for key in expected} == expected
    assert found["pok_cursor_persist_seconds_count"] >= 1
    assert 0 < found["pok_cursor_persist_seconds_sum"] < 30
    consumer.close()
    after = of_subscription(scrape(client), name)
    assert (after["pok_messages_delivered_total"], after["pok_consumers"]) == (11, 0)
    registry = CollectorRegistry()
    registry.register(MetricsCollector())
    full = f"persistent://public/default/{topic}"
    labels = {"cluster": client._session.node().cluster_id, "topic": full}
    assert registry.get_sample_value("pok_messages_sent_total", labels) == 10
    assert registry.get_sample_value("pok_messages_pending", labels) == 0
    assert registry.get_sample_value("pok_producers", labels) == 0
    port = client.metrics_port
    client.close()
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics")


def test_what_memberships_share_is_counted(service_url: str, unique: Unique) -> None:
    registry = CollectorRegistry()
    registry.register(MetricsCollector())
    before = registry.get_sample_value("pok_group_memberships")
    assert before is not None
    client = pulsar.Client(service_url)
    consumers = [client.subscribe(unique(), "s", pulsar.ConsumerType.Shared) for _ in range(3)]
    assert registry.get_sample_value("pok_group_memberships") == before + 3
    until(lambda: registry.get_sample_value("pok_heartbeat_lag_seconds_count"), "a turn of heartbeats")
    until(lambda: registry.get_sample_value("pok_fetch_connections"), "a connection that fetches")
    assert (registry.get_sample_value("pok_step_lag_seconds_count") or 0) >= 3
    assert (registry.get_sample_value("pok_step_threads") or 0) >= 1
    assert registry.get_sample_value("pok_fetched_bytes") == 0
    assert registry.get_sample_value("pok_longest_step_seconds") is not None
    consumers[0].close()
    until(lambda: registry.get_sample_value("pok_group_memberships") == before + 2, "a membership less")
    client.close()
    assert registry.get_sample_value("pok_group_memberships") == before


def test_who_is_waited_for_is_a_label_of_some(client: pulsar.Client, unique: Unique) -> None:
    topic, name = unique(), unique("metered")
    for consumer, size in (("slow", 1), ("fast", 1000)):
        client.subscribe(
            topic, name, pulsar.ConsumerType.KeyShared,
            consumer_name=consumer, receiver_queue_size=size, initial_position=pulsar.InitialPosition.Earliest,
        )  # fmt: skip
    producer = client.create_producer(topic)
    for number in range(50):
        producer.send(b"", partition_key=str(number))
    registry = CollectorRegistry()
    registry.register(MetricsCollector())
    labels = {"cluster": client._session.node().cluster_id, "topic": f"persistent://public/default/{topic}"}
    labels |= {"subscription": name, "consumer": "slow"}
    until(lambda: registry.get_sample_value("pok_waiting_for_consumer", labels) is not None, "some to wait")
    assert registry.get_sample_value("pok_waiting_for_consumer_seconds", labels) is not None


def test_of_many_consumers_those_for_which_most_waits_have_labels() -> None:
    stats = PartitionStats(0, -1, 0, 0, 0, 0, 0, 0, None)
    waiting = tuple(WaitingFor(f"c{number}", "", number, 2.0 * number) for number in range(1, 24))
    found = awaited([replace(stats, waiting=waiting), replace(stats, waiting=(WaitingFor("c23", "", 7, 1.0),))])
    assert list(found.items())[:2] == [("c23", (30, 46.0)), ("c22", (22, 44.0))]
    assert len(found) == 21
    assert found["(others)"] == (1 + 2 + 3, 6.0)


def of_topic(topic: str) -> Samples:
    """Samples by name, of one topic."""
    registry = CollectorRegistry()
    registry.register(MetricsCollector())
    return {
        sample.name: sample.value
        for family in registry.collect()
        for sample in family.samples
        if sample.labels.get("topic") == f"persistent://public/default/{topic}"
    }


def test_readers_and_table_views_are_counted(service_url: str, unique: Unique) -> None:
    topic = unique()
    client = pulsar.Client(service_url)
    producer = client.create_producer(topic)
    for number in range(12):
        producer.send(b"abc", partition_key=f"key-{number % 5}")
    reader = client.create_reader(topic, pulsar.MessageId.earliest, receiver_queue_size=4)
    for _ in range(3):
        reader.read_next(10_000)
    until(lambda: of_topic(topic)["pok_reader_messages_delivered_total"] == 7, "the inbox to be full again")
    expected = {
        "pok_reader_received_bytes_total": 36, "pok_reader_messages_undecryptable_total": 0, "pok_readers": 1,
        "pok_stopped_readers": 0, "pok_reader_behind_entries": 0, "pok_reader_buffered_messages": 9,
        "pok_table_views": 0, "pok_table_view_keys": 0,
    }  # fmt: skip
    found = of_topic(topic)
    assert {key: found[key] for key in expected} == expected
    reader.close()
    view = client.create_table_view(topic)
    found = of_topic(topic)
    assert (found["pok_reader_messages_delivered_total"], found["pok_reader_received_bytes_total"]) == (19, 72)
    assert (found["pok_readers"], found["pok_table_views"], found["pok_table_view_keys"]) == (1, 1, 5)
    view.close()
    other = pulsar.Client(service_url)  # the node outlives the first client
    other.create_producer(topic)
    client.close()
    found = of_topic(topic)
    assert (found["pok_readers"], found["pok_table_views"], found["pok_table_view_keys"]) == (0, 0, 0)
    assert found["pok_reader_messages_delivered_total"] == 19
    other.close()


def test_clients_share_a_port_and_a_taken_one_is_told(service_url: str) -> None:
    one = pulsar.Client(service_url, metrics_port=0)
    port = one.metrics_port
    two = pulsar.Client(service_url, metrics_port=port)
    one.close()
    assert "pok_producers" in scrape(two)
    broker_port = int(service_url.rpartition(":")[2])
    with pytest.raises(pulsar.InvalidConfiguration, match=str(broker_port)):
        pulsar.Client(service_url, metrics_port=broker_port)
    two.close()


def test_the_cluster_tells_of_subscriptions_that_nobody_serves(service_url: str, unique: Unique) -> None:
    topic = unique()
    client = pulsar.Client(service_url)
    consumer = client.subscribe(topic, "idle", pulsar.ConsumerType.Shared)
    send(client, topic, 6)
    consumer.acknowledge(receive(consumer, 6)[3])
    client.close()
    result = CliRunner().invoke(app, ["--url", service_url, "metrics", topic])
    assert result.exit_code == 0, result.output
    found = of_subscription(result.stdout, "idle")
    expected = {
        "pok_subscription_backlog_entries": 5,
        "pok_subscription_individually_acknowledged_entries": 1,
        "pok_subscription_holes": 1,
        "pok_subscription_processes": 0,
    }
    assert {name: found[name] for name in expected} == expected


def test_statistics_are_logged(service_url: str, unique: Unique, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "pulsar_on_kafka.client.values.stats_log")
    topic = unique()
    client = pulsar.Client(service_url, stats_interval_in_seconds=1)
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic)
    producer.send(b"x")
    consumer.acknowledge(receive(consumer, 1)[0])
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    reader.read_next(10_000)
    wanted = {("producer", "sent"), ("consumer", "received"), ("reader", "received")}

    def told() -> set[tuple[str, str]]:
        return set(re.findall(r"(producer|consumer|reader)=\S+ .*? in 1 s: (\w+)=1 ", caplog.text))

    until(lambda: told() == wanted, "a line for each")
    client.close()


def test_a_process_counts_the_transactions_that_it_serves(service_url: str, unique: Unique) -> None:
    def counted() -> Samples:
        """Over all coordinators."""
        found: Samples = {}
        for family in text_string_to_metric_families(scrape(client)):
            for sample in family.samples:
                if "coordinator_id" in sample.labels and "le" not in sample.labels:
                    name = f"{sample.name}{{{sample.labels.get('status', '')}}}".replace("{}", "")
                    found[name] = found.get(name, 0) + sample.value
        return found

    def as_expected() -> bool:
        # What other tests left open is served here, too, and perhaps aborted meanwhile.
        found = counted()
        least = {
            "pulsar_txn_created_total": 4,
            "pulsar_txn_committed_total": 2, "pulsar_txn_aborted_total": 1, "pulsar_txn_timeout_total": 0,
            "pulsar_txn_active_count": 1, "pok_transactions_unfinished{OPEN}": 1,
            "pulsar_txn_execution_latency_count": 3, "pok_transaction_end_seconds_count": 3,
        }  # fmt: skip
        return all(found.get(name, -1) >= value for name, value in least.items())

    with closing(pulsar.Client(service_url, metrics_port=0, enable_transaction=True)) as client:
        producer = client.create_producer(unique())
        for commit in (True, True, False):
            transaction = client.new_transaction()
            producer.send(b"x", txn=transaction)
            if commit:
                transaction.commit()
            else:
                transaction.abort()
        running = client.new_transaction()
        until(as_expected, f"transactions to be counted, last {counted()}")
        running.abort()
