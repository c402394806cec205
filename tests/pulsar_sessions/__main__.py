"""`python -m tests.pulsar_sessions [CLIENT ...]`: programs in Go, Java, JavaScript, Python and Rust, on clients from
their registries, do what the tests have them do, by a gateway on a broker of its own; what they say becomes the files
in `fixtures`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import timedelta
from typing import Final

import pulsar as official

from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.embedded import BrokerOptions, EmbeddedBroker
from pulsar_on_kafka.gateway.server import Gateway, GatewaySettings
from pulsar_on_kafka_mapping.wire.frames import FrameCutter, frame
from tests.integration.gateway.languages import program_in
from tests.pulsar_sessions import CLIENTS, Said, keep
from tests.tcp_way import TcpWay

_NEAR: Final = "127.0.0.2"
"""Where clients connect to: the gateway's port there is the recorder's."""
_MESSAGES: Final = 3
_COMMANDS: Final[dict[str, Sequence[Sequence[object]]]] = {
    "go": (
        ("produce", "go-a", _MESSAGES, "batches"),
        ("consume", "go-a", _MESSAGES, "Key_Shared"),
        ("read", "go-a", _MESSAGES),
        ("schema", "go-b", _MESSAGES),
        ("produce", "go-c", 1, "single"),
        ("transaction", "go-c", "commit"),
    ),
    "java": (
        ("produce", "java-a", _MESSAGES, "batches"),
        ("consume", "java-a", _MESSAGES, "Shared"),
        ("read", "java-a", _MESSAGES),
        ("schema", "java-b", _MESSAGES),
        ("produce", "java-c", 1, "single"),
        ("transaction", "java-c", "abort"),
        ("dead", "java-c"),
        ("produce", "java-d", _MESSAGES, "single"),
        ("pattern", "persistent://public/default/java-d", _MESSAGES),
    ),
    "js": (("produce", "js-a", _MESSAGES, "single"), ("consume", "js-a", _MESSAGES, "Shared")),
    "rust": (
        ("produce", "rust-a", _MESSAGES, "batches"),
        ("consume", "rust-a", _MESSAGES, "Shared"),
        ("read", "rust-a", _MESSAGES),
    ),
}


class Record:
    """Frames in the order in which they were heard."""

    def __init__(self) -> None:
        self.said: list[Said] = []
        self._cutters: dict[int, FrameCutter] = {}
        self._first = 0

    def heard(self, connection: int, data: bytes) -> None:
        for command, entry in self._cutters.setdefault(connection, FrameCutter()).feed(data):
            self.said.append(Said(connection - self._first, frame(command, entry)))

    def take(self) -> list[Said]:
        """What was said since the last time; the next connection is the first one."""
        said, self.said = self.said, []
        self._first = max(self._cutters, default=-1) + 1
        return said


def main(clients: Sequence[str]) -> None:
    with ExitStack() as stack:
        broker = stack.enter_context(EmbeddedBroker(BrokerOptions()))
        admin = stack.enter_context(AdminClient(f"kafka://{broker.bootstrap}"))
        gateway = Gateway(admin.node, GatewaySettings(port=0, advertised=_NEAR))
        stack.callback(gateway.close, Deadline.after(600))
        admin.create_topic("js-a")
        admin.create_subscription("js-a", "js", from_earliest=True)  # pulsar-flex says no start position
        record = Record()
        stack.callback(TcpWay(gateway.port, (_NEAR, gateway.port), record.heard).close)
        for client in clients:
            play = in_python if client == "python" else _program(client)
            play(gateway.address())
            said = record.take()
            print(f"{client}: {len(said)} frames, {keep(client, said)} bytes", flush=True)


def _program(client: str) -> Callable[[str], None]:
    program = program_in(client)

    def play(url: str) -> None:
        for command in _COMMANDS[client]:
            program.run(url, *map(str, command))
            print(client, *command, flush=True)

    return play


def in_python(url: str) -> None:
    """The official Python client, which is the C++ one."""
    client = official.Client(url, logger=official.ConsoleLogger(official.LoggerLevel.Error))
    topic = "python-a"
    kinds = (official.ConsumerType.Exclusive, official.ConsumerType.Failover, official.ConsumerType.KeyShared)
    consumers = [client.subscribe(topic, kind.name, kind) for kind in kinds]
    single = client.create_producer(topic, producer_name="python", compression_type=official.CompressionType.LZ4)
    single.send(b"plain " * 9, properties={"a": "1"}, partition_key="key", ordering_key="order", event_timestamp=9)
    single.send(b"later", deliver_after=timedelta(milliseconds=1))
    schema = official.schema.JsonSchema(Order)
    typed = client.create_producer(f"{topic}-typed", schema=schema)
    typed.send(Order(number=1))
    batches = client.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=500)
    for number in range(_MESSAGES):
        batches.send_async(b"%d" % number, None, partition_key=f"key{number % 2}")
    batches.flush()
    for consumer in consumers:
        found = [consumer.receive(30_000) for _ in range(_MESSAGES)]
        consumer.negative_acknowledge(found[1])
        consumer.acknowledge(found[0])
        if consumer is not consumers[2]:
            consumer.acknowledge_cumulative(found[-1])
        consumer.redeliver_unacknowledged_messages()
    consumers[0].seek(official.MessageId.earliest)
    consumers[0].seek(1)
    consumers[1].unsubscribe()
    reader = client.create_reader(topic, official.MessageId.earliest)
    while reader.has_message_available():
        reader.read_next(30_000)
    client.get_topic_partitions(topic)
    client.close()


class Order(official.schema.Record):
    number = official.schema.Integer()


if __name__ == "__main__":
    main(sys.argv[1:] or CLIENTS)
