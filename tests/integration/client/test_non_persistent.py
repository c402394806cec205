"""Non-persistent topics: for those who are connected, and never again."""

from __future__ import annotations

import re
import signal

import pytest

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.metrics import MetricsCollector
from tests.programs import a_program
from tests.steps import Unique, nothing_comes, payloads, receive, receive_rest, send
from tests.waiting import until

pytestmark = pytest.mark.kafka

SHARED, FAILOVER, KEY_SHARED = pulsar.ConsumerType.Shared, pulsar.ConsumerType.Failover, pulsar.ConsumerType.KeyShared


@pytest.fixture
def topic(unique: Unique) -> str:
    return f"non-persistent://public/default/{unique()}"


@pytest.mark.parametrize("kind", [FAILOVER, KEY_SHARED], ids=lambda k: k.name)
def test_nothing_is_delivered_again(client: pulsar.Client, topic: str, kind: pulsar.ConsumerType) -> None:
    consumer = client.subscribe(topic, "s", kind, negative_ack_redelivery_delay_ms=50)
    send(client, topic, 5)
    messages = receive(consumer, 1)
    consumer.negative_acknowledge(messages[0])
    consumer.redeliver_unacknowledged_messages()
    messages += receive_rest(consumer)
    assert payloads(messages) == ["0", "1", "2", "3", "4"]
    for message in messages:
        consumer.acknowledge(message)
    consumer.seek(pulsar.MessageId.earliest)
    consumer.seek(0)
    assert nothing_comes(consumer)
    with pytest.raises(ValueError, match="messageid"):
        consumer.seek("x")
    consumer.close()
    assert receive_rest(client.subscribe(topic, "s", kind)) == []


def test_shared_consumers_take_turns_and_key_shared_ones_keep_keys(client: pulsar.Client, topic: str) -> None:
    shared = [client.subscribe(topic, "s", SHARED) for _ in range(2)]
    keyed = [client.subscribe(topic, "k", KEY_SHARED) for _ in range(2)]
    producer = client.create_producer(topic)
    for number in range(100):
        producer.send_async(str(number).encode(), None, partition_key=str(number % 10))
    producer.flush()
    parts = [payloads(receive_rest(consumer)) for consumer in shared]
    assert sorted(map(int, parts[0] + parts[1])) == list(range(100))
    assert all(parts)
    by_key = [receive_rest(consumer) for consumer in keyed]
    keys = [{message.partition_key() for message in part} for part in by_key]
    assert not keys[0] & keys[1]
    assert len(keys[0] | keys[1]) == 10


def test_a_slow_consumer_loses_messages_and_gets_new_ones(client: pulsar.Client, topic: str) -> None:
    slow = client.subscribe(topic, "slow", receiver_queue_size=5)
    quick = client.subscribe(topic, "quick")
    send(client, topic, 200)
    assert len(receive(quick, 200)) == 200

    def lost() -> float:
        samples = [sample for family in MetricsCollector().collect() for sample in family.samples]
        found = [
            sample.value
            for sample in samples
            if sample.name == "pok_entries_dropped_total"
            and (sample.labels["topic"], sample.labels["subscription"]) == (topic, "slow")
        ]
        return found[0] if found else 0.0

    until(lambda: lost() == 195, "195 messages to be dropped")
    assert payloads(receive_rest(slow, least=5)) == ["0", "1", "2", "3", "4"]
    send(client, topic, 1, start=1000)
    assert payloads(receive(slow, 1)) == ["1000"]


def test_a_long_burst_reaches_a_consumer_that_keeps_up(client: pulsar.Client, topic: str) -> None:
    heard: list[str] = []
    client.subscribe(topic, "s", message_listener=lambda _, message: heard.append(message.data().decode()))
    producer = client.create_producer(topic, block_if_queue_full=True, max_pending_messages=10_000)
    for number in range(20_000):
        producer.send_async(str(number).encode(), None)
    producer.flush()
    until(lambda: heard and heard[-1] == "19999", "the last message")
    assert heard == [str(number) for number in range(20_000)]


def test_partitions_delays_batches_and_readers(client: pulsar.Client, admin: AdminClient, topic: str) -> None:
    admin.create_partitioned_topic(topic, 2)
    assert client.get_topic_partitions(topic) == [f"{topic}-partition-0", f"{topic}-partition-1"]
    send(client, topic, 4)
    whole = client.subscribe(topic, "s", SHARED)
    single = client.subscribe(f"{topic}-partition-1", "t")
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    producer = client.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=50)
    for number in range(10):
        producer.send_async(str(number).encode(), None, deliver_at=2**42)
    producer.flush()
    assert sorted(map(int, payloads(receive(whole, 10)))) == list(range(10))
    assert {message.topic_name() for message in receive_rest(single)} <= {f"{topic}-partition-1"}
    assert sorted(int(reader.read_next(15_000).data()) for _ in range(10)) == list(range(10))
    reader.seek(pulsar.MessageId.earliest)
    for call in (reader.has_message_available, whole.get_last_message_id):
        with pytest.raises(pulsar.PulsarException):
            call()
    with pytest.raises(pulsar.UnknownError, match="not persistent"):
        reader.has_message_available()


def test_what_needs_a_log_is_refused(client: pulsar.Client, admin: AdminClient, topic: str) -> None:
    with pytest.raises(pulsar.NotAllowedError, match="not persistent"):
        client.create_table_view(topic)
    with pytest.raises(pulsar.InvalidConfiguration, match="is_read_compacted"):
        client.subscribe(topic, "s", is_read_compacted=True)
    with pytest.raises(pulsar.InvalidConfiguration, match="is_read_compacted"):
        client.create_reader(topic, pulsar.MessageId.earliest, is_read_compacted=True)
    client.subscribe(topic, "s")
    for call in (
        lambda: admin.create_subscription(topic, "t"),
        lambda: admin.clear_backlog(topic, "s"),
        lambda: admin.skip(topic, "s", 1),
        lambda: admin.reset_cursor(topic, "s", timestamp_ms=0),
    ):
        with pytest.raises(pulsar.NotAllowedError, match="not persistent"):
            call()
    with pytest.raises(pulsar.SubscriptionNotFound):
        admin.subscription_stats(topic, "t")
    with pytest.raises(pulsar.ConsumerBusy):
        client.subscribe(topic, "s")


def test_patterns_choose_by_domain(client: pulsar.Client, unique: Unique) -> None:
    name = unique()
    names = {domain: f"{domain}://public/default/{name}-x" for domain in ("persistent", "non-persistent")}
    for full in names.values():
        client.create_producer(full).close()
    mode = pulsar.RegexSubscriptionMode
    wanted = {mode.PersistentOnly: {"persistent"}, mode.NonPersistentOnly: {"non-persistent"}, mode.AllTopics: {*names}}
    consumers = {
        chosen: client.subscribe(
            re.compile(f"public/default/{name}-.*"), f"sub-{chosen.name}", SHARED, regex_subscription_mode=chosen
        )
        for chosen in wanted
    }
    for domain, full in names.items():
        producer = client.create_producer(full)
        producer.send(domain.encode())
    for chosen, domains in wanted.items():
        assert set(payloads(receive_rest(consumers[chosen]))) == domains, chosen


_A_CONSUMER = """
    client = pulsar.Client(sys.argv[1])
    consumer = client.subscribe(sys.argv[2], "s", consumer_type=pulsar.ConsumerType.Failover)
    print("ready", flush=True)
    while True:
        print(consumer.receive(30_000).data().decode(), flush=True)
"""


@pytest.mark.kills
def test_another_process_goes_on_after_a_crash(
    client: pulsar.Client, admin: AdminClient, service_url: str, topic: str
) -> None:
    with a_program(_A_CONSUMER, service_url, topic) as process:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == "ready"
        until(lambda: admin.subscription_stats(topic, "s").partitions[0].owner, "the first process to be the owner")
        ours = client.subscribe(topic, "s", FAILOVER, priority_level=1)
        send(client, topic, 3)
        assert [process.stdout.readline().strip() for _ in range(3)] == ["0", "1", "2"]
        process.send_signal(signal.SIGKILL)
        process.wait(60)
    producer = client.create_producer(topic)
    producer.send(b"after")
    # What the other one got within its last second may come again; what was sent before is not lost.
    found = payloads(receive(ours, 1))
    while found[-1] != "after":
        found += payloads(receive(ours, 1))
    assert [text for text in found if text not in ("0", "1", "2")] == ["after"]
