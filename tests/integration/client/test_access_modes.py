"""Producer access modes and names, in one process and between processes."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import pulsar_on_kafka as pulsar
from tests.clocks import WRONG_CLOCKS
from tests.programs import a_program
from tests.steps import EARLIEST, Unique, nothing_comes, payloads, receive
from tests.waiting import never

MODE = pulsar.ProducerAccessMode

_ANOTHER_PRODUCER = """
    import json
    client = pulsar.Client(sys.argv[1])
    options = {"producer_name": sys.argv[4]} if sys.argv[4] else {}
    producer = client.create_producer(sys.argv[2], access_mode=pulsar.ProducerAccessMode[sys.argv[3]], **options)
    print("ready", flush=True)
    for line in sys.stdin:
        try:
            if line.strip() == "close":
                producer.close()
                print("closed", flush=True)
            else:
                producer.send(line.strip().encode())
                print("sent", flush=True)
        except pulsar.PulsarException as error:
            print(type(error).__name__, flush=True)
"""


class Another:
    """A producer in another process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def say(self, text: str) -> str:
        assert self.process.stdin is not None
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()
        return self.hear()

    def hear(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()


@contextmanager
def another(service_url: str, topic: str, mode: str, name: str = "") -> Iterator[Another]:
    with a_program(_ANOTHER_PRODUCER, service_url, topic, mode, name) as process:
        try:
            other = Another(process)
            assert other.hear() == "ready"
            yield other
        finally:
            process.kill()


@pytest.mark.kills
def test_a_name_is_taken_across_processes_until_its_process_dies(
    client: pulsar.Client, service_url: str, unique: Unique
) -> None:
    topic = unique()
    with another(service_url, topic, "Shared", "a") as other:
        with pytest.raises(pulsar.ProducerBusy):
            client.create_producer(topic, producer_name="a")
        assert other.say("one") == "sent"
        other.process.kill()
        other.process.wait()
        client.create_producer(topic, producer_name="a").send(b"two")


@WRONG_CLOCKS
@pytest.mark.kills
def test_exclusive_across_processes_and_after_a_death(client: pulsar.Client, service_url: str, unique: Unique) -> None:
    topic = unique()
    with another(service_url, topic, "Exclusive") as other:
        with pytest.raises(pulsar.ProducerFenced):
            client.create_producer(topic, access_mode=MODE.Exclusive)
        with pytest.raises(pulsar.ProducerBusy):
            client.create_producer(topic)
        assert other.say("one") == "sent"
        other.process.kill()
        other.process.wait()
        client.create_producer(topic, access_mode=MODE.Exclusive).send(b"two")
    consumer = client.subscribe(topic, "s", initial_position=EARLIEST)
    assert payloads(receive(consumer, 2)) == ["one", "two"]


@pytest.mark.parametrize("mode", ["Exclusive", "Shared"])
def test_fencing_throws_out_another_process(client: pulsar.Client, service_url: str, unique: Unique, mode: str) -> None:
    topic = unique()
    with another(service_url, topic, mode) as other:
        assert other.say("one") == "sent"
        producer = client.create_producer(topic, access_mode=MODE.ExclusiveWithFencing)
        fence = producer.send(b"two")
        assert other.say("void") == "ProducerFenced"
        assert other.say("void") == "ProducerFenced"
        assert other.say("close") == "closed"
        message_id = producer.send(b"three")
    consumer = client.subscribe(topic, "s", initial_position=EARLIEST)
    assert payloads(receive(consumer, 3)) == ["one", "two", "three"]
    assert nothing_comes(consumer)
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    assert [reader.read_next(15_000).data() for _ in range(3)] == [b"one", b"two", b"three"]
    assert not reader.has_message_available()
    consumer.acknowledge_cumulative(message_id)
    consumer.close()
    consumer = client.subscribe(topic, "from behind the fence", initial_position=EARLIEST)
    consumer.seek(fence)  # a restart: what makes the next record void is not read any more
    assert payloads(receive(consumer, 1)) == ["three"]
    assert nothing_comes(consumer)


def test_fencing_throws_out_this_process(client: pulsar.Client, unique: Unique) -> None:
    topic = unique()
    shared = client.create_producer(topic)
    first = client.create_producer(topic, access_mode=MODE.ExclusiveWithFencing)
    with pytest.raises(pulsar.ProducerFenced):
        shared.send(b"void")
    second = client.create_producer(topic, access_mode=MODE.ExclusiveWithFencing)
    with pytest.raises(pulsar.ProducerFenced):
        first.send(b"void")
    assert not first.is_connected()
    results: list[pulsar.Result] = []
    first.send_async(b"void", lambda result, message_id: results.append(result))
    assert results == [pulsar.Result.ProducerFenced]
    second.send(b"x")


def test_waiting_for_exclusive(client: pulsar.Client, service_url: str, unique: Unique) -> None:
    topic = unique()
    impatient = pulsar.Client(service_url, operation_timeout_seconds=1)
    holder = client.create_producer(topic)
    with pytest.raises(pulsar.Timeout):
        impatient.create_producer(topic, access_mode=MODE.WaitForExclusive)
    impatient.close()
    made: list[pulsar.Producer] = []
    waiting = threading.Thread(
        target=lambda: made.append(client.create_producer(topic, access_mode=MODE.WaitForExclusive))
    )
    waiting.start()
    never(lambda: made, "a producer beside the exclusive one")
    holder.close()
    waiting.join(20)
    made[0].send(b"at last")
