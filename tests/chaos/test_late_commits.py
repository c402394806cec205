"""A group commit whose first copy arrives seconds late, behind a newer one, when its member is dead."""

from __future__ import annotations

import json

import pytest

import pulsar_on_kafka as pulsar
from tests.late_proxy import OFFSET_COMMIT, LateProxy
from tests.programs import a_program
from tests.steps import Unique, receive_rest, send_fast
from tests.waiting import until

pytestmark = pytest.mark.kafka

_LATE_S = 4.0
_MESSAGES = 200

_CONSUMER = """
import json
from pulsar_on_kafka.broker.cursor import commit_metadata
commit_metadata.MAX_METADATA_CHARS = int(sys.argv[3])
client = pulsar.Client(sys.argv[1], kafka_config=json.loads(sys.argv[5]))
consumer = client.subscribe(sys.argv[2], "s", pulsar.ConsumerType.Shared, receiver_queue_size=1000)
messages = [consumer.receive(60000) for _ in range(int(sys.argv[4]))]
acknowledged = set()

def save(some):
    # A commit without a reply ends the membership of the group client; what was lost comes again.
    for message in some:
        acknowledged.add(str(message.message_id()))
        consumer.acknowledge(message)
    try:
        consumer.flush()
    except pulsar.PulsarException as lost:
        print("lost", flush=True)
        left = len(messages) - 25
        while left:
            again = consumer.receive(60000)
            left -= 1
            if str(again.message_id()) in acknowledged:
                consumer.acknowledge(again)
        try:
            consumer.flush()
        except pulsar.NotConnected:  # the loss is reported once
            consumer.flush()

save(messages[1:50:2])
print("ready", flush=True)
sys.stdin.readline()
save(messages[51:100:2])
save(messages[101::2])
print("durable", flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize("config", [{}, {"fetch.min.bytes": "1"}], ids=["group client", "librdkafka"])
@pytest.mark.parametrize("metadata_chars", [4_095, 125], ids=["in the commit", "in segments"])
def test_a_late_commit_sets_nothing_back(
    late: LateProxy, unique: Unique, metadata_chars: int, config: dict[str, str]
) -> None:
    topic = unique()
    client = pulsar.Client(late.url, operation_timeout_seconds=120)
    client.subscribe(topic, "s", pulsar.ConsumerType.Shared, initial_position=pulsar.InitialPosition.Earliest).close()
    send_fast(client, topic, _MESSAGES)
    arguments = late.url, topic, str(metadata_chars), str(_MESSAGES), json.dumps(config)
    with a_program(_CONSUMER, *arguments) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        assert program.stdout.readline() == "ready\n"
        before = late.delivered["OffsetCommit"]
        late.hold(OFFSET_COMMIT, _LATE_S)
        program.stdin.write("go\n")
        program.stdin.flush()
        if not config:
            assert program.stdout.readline() == "lost\n"
        said = program.stdout.readline()
        assert said == "durable\n", said or program.communicate()[1]
        assert late.delivered["OffsetCommit"] == before, "the copy has arrived too early to try anything"
        until(lambda: late.delivered["OffsetCommit"] > before, "the copy to arrive")
        program.kill()
    rest = receive_rest(client.subscribe(topic, "s", pulsar.ConsumerType.Shared), least=_MESSAGES // 2)
    client.close()
    assert len(rest) == _MESSAGES // 2
