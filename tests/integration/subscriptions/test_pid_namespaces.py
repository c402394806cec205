"""A live process with the same host name in another PID namespace, as containers with the host's network are."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import pulsar_on_kafka as pulsar
from tests.pid_namespaces import REFUSED, are_permitted
from tests.programs import a_program
from tests.steps import EARLIEST, Unique, nothing_comes, receive_rest, send

pytestmark = pytest.mark.skipif(not are_permitted(), reason=REFUSED)

ROOT = Path(__file__).resolve().parents[3]
LONGER_THAN_A_LOOK_S = 4


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_exclusive_stays_with_who_has_it(client: pulsar.Client, service_url: str, unique: Unique) -> None:
    topic = unique()
    process = a_program(
        """
        client = pulsar.Client(sys.argv[1])
        consumer = client.subscribe(sys.argv[2], "s", initial_position=pulsar.InitialPosition.Earliest)
        print("ready", flush=True)
        consumer.acknowledge(consumer.receive(60000))
        consumer.flush()
        print("received", flush=True)
        sys.stdin.read()
        client.close()
        """,
        service_url, topic, apart=True,
    )  # fmt: skip
    try:
        assert line_of(process) == "ready"
        with pytest.raises(pulsar.ConsumerBusy):
            client.subscribe(topic, "s")
        send(client, topic, 1)
        assert line_of(process) == "received"
        process.communicate(timeout=60)
        assert nothing_comes(client.subscribe(topic, "s"))
    finally:
        process.kill()
        process.communicate()


@pytest.mark.long
def test_messages_of_a_living_process_are_nobody_else_s(
    client: pulsar.Client, service_url: str, unique: Unique
) -> None:
    """Its owner in another namespace leases them to it; neither is a crash that dead letters count."""
    topic = unique()
    policy = pulsar.ConsumerDeadLetterPolicy(1, dead_letter_topic=f"{topic}-dead")
    ours = client.subscribe(
        topic, "s", pulsar.ConsumerType.Shared, initial_position=EARLIEST, receiver_queue_size=10,
        dead_letter_policy=policy,
    )  # fmt: skip
    process = a_program(
        """
        import time
        topic, work_s = sys.argv[2], float(sys.argv[3])
        client = pulsar.Client(sys.argv[1])
        policy = pulsar.ConsumerDeadLetterPolicy(1, dead_letter_topic=topic + "-dead")
        consumer = client.subscribe(topic, "s", pulsar.ConsumerType.Shared, receiver_queue_size=10,
                                    initial_position=pulsar.InitialPosition.Earliest, dead_letter_policy=policy)
        print("ready", flush=True)
        messages = [consumer.receive(60000)]
        end = time.monotonic() + work_s
        while time.monotonic() < end:
            try:
                messages.append(consumer.receive(200))
            except pulsar.Timeout:
                pass
        for message in messages:
            consumer.acknowledge(message)
        client.close()
        print(*(message.data().decode() for message in messages), flush=True)
        """,
        service_url, topic, str(LONGER_THAN_A_LOOK_S), apart=True,
    )  # fmt: skip
    try:
        assert line_of(process) == "ready"
        producer, sent = client.create_producer(topic), 0
        mine: list[str] = []
        while process.poll() is None:  # from when theirs is known to our owner on some go to it
            producer.send(str(sent).encode())
            sent += 1
            try:
                message = ours.receive(200)
            except pulsar.Timeout:
                continue
            mine.append(message.data().decode())
            ours.acknowledge(message)
        theirs = line_of(process).split()
        for message in receive_rest(ours):
            mine.append(message.data().decode())
            ours.acknowledge(message)
        assert theirs
        assert sorted(mine + theirs) == sorted(map(str, range(sent)))
    finally:
        process.kill()
        process.communicate()
    dead = client.subscribe(f"{topic}-dead", "look", initial_position=EARLIEST)
    assert nothing_comes(dead)
