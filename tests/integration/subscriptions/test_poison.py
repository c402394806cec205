"""Messages that kill their process, with real processes: delivery counts survive crashes."""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from tests.programs import a_program
from tests.seeds import first_of
from tests.steps import EARLIEST, SHARED, Unique, counted, nothing_comes, payloads, receive, receive_rest, send
from tests.waiting import until

WORKER = """
    url, topic, log, how, kind = sys.argv[1:]
    client = pulsar.Client(url)
    consumer = client.subscribe(topic, "s", pulsar.ConsumerType[kind],
                                initial_position=pulsar.InitialPosition.Earliest, receiver_queue_size=10,
                                dead_letter_policy=pulsar.ConsumerDeadLetterPolicy(2, None, "inspector"))
    file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    patience_ms = 15_000  # a killed predecessor is thrown out of the group after six seconds
    while True:
        try:
            message = consumer.receive(patience_ms)
        except pulsar.Timeout:
            break
        patience_ms = 3000
        os.write(file, message.data() + b" %d\\n" % message.redelivery_count())
        if message.data() == b"3":
            if how == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            raise RuntimeError("boom")
        consumer.acknowledge(message)
    client.close()
    print("done", flush=True)
"""


@pytest.mark.parametrize("kind", first_of(1, [SHARED, pulsar.ConsumerType.KeyShared]), ids=lambda kind: kind.name)
@pytest.mark.parametrize(
    ("how", "code"),
    [pytest.param("kill", -signal.SIGKILL, marks=pytest.mark.kills), pytest.param("raise", 1, marks=pytest.mark.long)],
)
def test_a_message_that_always_kills_its_process_ends_as_a_dead_letter(
    client: pulsar.Client,
    service_url: str,
    unique: Unique,
    tmp_path: Path,
    how: str,
    code: int,
    kind: pulsar.ConsumerType,
) -> None:
    topic, log = unique(), tmp_path / "received"
    client.subscribe(topic, "s", kind, initial_position=EARLIEST).close()
    producer = client.create_producer(topic)
    for number in range(25):
        producer.send(b"%d" % number, partition_key=f"key {number % 3}")
    producer.close()
    ends = []
    for _ in range(5):
        process = a_program(WORKER, service_url, topic, str(log), how, kind.name)
        out, err = process.communicate(timeout=60)
        ends.append(process.returncode)
        if out == "done\n":
            break
        assert process.returncode == code, err
    assert ends == [code] * 3 + [0], log.read_text()
    received = Counter(line.split()[0] for line in log.read_text().splitlines())
    assert received.pop("3") == 3
    assert sorted(map(int, received)) == [n for n in range(25) if n != 3]
    assert max(received.values()) <= 3  # they share a window with it, never its last delivery
    assert {line.split()[1] for line in log.read_text().splitlines()} == {"0"}
    if kind is not SHARED:
        first_times = dict.fromkeys(int(line.split()[0]) for line in log.read_text().splitlines())
        for key in range(3):
            of_key = [number for number in first_times if number % 3 == key]
            assert of_key == sorted(of_key)
    letters = receive(client.subscribe(f"{topic}-s-DLQ", "inspector"), 1)
    assert payloads(letters) == ["3"]
    rest = client.subscribe(topic, "s", kind)
    assert nothing_comes(rest)


@pytest.mark.kills
def test_a_policy_that_comes_late_finds_the_counts_of_a_dead_process(
    client: pulsar.Client, service_url: str, unique: Unique, tmp_path: Path
) -> None:
    topic, log = unique(), tmp_path / "received"
    client.subscribe(topic, "s", SHARED, initial_position=EARLIEST).close()
    send(client, topic, 4)
    for _ in range(3):
        process = a_program(WORKER, service_url, topic, str(log), "kill", "Shared")
        process.communicate(timeout=60)
        assert process.returncode == -signal.SIGKILL
    indifferent = client.subscribe(topic, "s", SHARED, negative_ack_redelivery_delay_ms=100)
    poison = until(lambda: receive(indifferent, 1), "the suspect")[0]
    assert poison.data() == b"3"
    client.subscribe(topic, "s", SHARED, dead_letter_policy=pulsar.ConsumerDeadLetterPolicy(2, None, "inspector"))
    indifferent.negative_acknowledge(poison)
    letters = receive(client.subscribe(f"{topic}-s-DLQ", "inspector"), 1)
    assert payloads(letters) == ["3"]


def test_a_delay_outlives_the_consumer_that_asked_for_it(client: pulsar.Client, unique: Unique) -> None:
    """Also when it closes at once; without a dead letter policy the message comes again, as in Pulsar."""
    for policy, left in ((pulsar.ConsumerDeadLetterPolicy(3), []), (None, ["0"])):
        topic = unique()

        def subscribe(topic: str = topic, policy: Any = policy) -> pulsar.Consumer:
            return client.subscribe(
                topic, "s", SHARED, initial_position=EARLIEST, negative_ack_redelivery_delay_ms=3_600_000,
                dead_letter_policy=policy,
            )  # fmt: skip

        send(client, topic, 2)
        consumer = subscribe()
        for message in receive(consumer, 2):
            (consumer.negative_acknowledge if message.data() == b"0" else consumer.acknowledge)(message)
        consumer.close()
        consumer = subscribe()
        assert payloads(receive_rest(consumer)) == left
        consumer.close()


@pytest.mark.kills
def test_counts_and_delays_outlive_the_process(
    client: pulsar.Client, admin: AdminClient, service_url: str, unique: Unique
) -> None:
    topic = unique()
    policy = pulsar.ConsumerDeadLetterPolicy(3)
    client.subscribe(topic, "s", SHARED, initial_position=EARLIEST).close()
    send(client, topic, 4)
    process = a_program(
        """
        url, topic = sys.argv[1:]
        client = pulsar.Client(url, ack_persist_interval_ms=100)
        consumer = client.subscribe(topic, "s", pulsar.ConsumerType.Shared, negative_ack_redelivery_delay_ms=100,
                                    dead_letter_policy=pulsar.ConsumerDeadLetterPolicy(3))
        for turn in range(2):
            for _ in range(4):
                message = consumer.receive(15000)
                if message.data() == b"0" and turn == 1:
                    consumer._nack_delay_s = 3600
                    consumer.negative_acknowledge(message)
                    consumer._nack_delay_s = 0.1
                elif message.data() in (b"0", b"1") or turn == 0:
                    consumer.negative_acknowledge(message)
        message = consumer.receive(15000)
        assert (message.data(), message.redelivery_count()) == (b"1", 2), message.data()
        consumer.flush()
        print("ready", flush=True)
        sys.stdin.read()
        """,
        service_url, topic,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n", process.communicate()
    process.kill()
    process.communicate(timeout=20)
    group = admin.subscription_stats(topic, "s").group
    assert group
    consumer = client.subscribe(topic, "s", SHARED, dead_letter_policy=policy)
    found = {}
    for _ in range(3):
        message = until(lambda: receive(consumer, 1), "a suspect")[0]
        found.update(dict(counted([message])))
        consumer.acknowledge(message)
    assert found == {"1": 2, "2": 1, "3": 1}
    assert nothing_comes(consumer)  # "0" is put off for an hour
    consumer.flush()
    assert admin.subscription_stats(topic, "s").partitions[0].backlog == 1
