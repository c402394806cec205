"""Programs in Go, Java, JavaScript and Rust, on clients from their registries, run on the gateway unchanged."""

from __future__ import annotations

import pytest

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.gateway.server import Gateway
from tests.builds import Missing
from tests.integration.gateway.languages import Program, program_in
from tests.steps import EARLIEST, SHARED, Unique, payloads, receive, receive_rest, send

pytestmark = [pytest.mark.kafka, pytest.mark.long, pytest.mark.timeout(1200)]

MESSAGES = 20


@pytest.fixture(scope="session", params=["go", "java", "js", "rust"])
def program(request: pytest.FixtureRequest) -> Program:
    try:
        return program_in(request.param)
    except Missing as missing:
        pytest.skip(f"{request.param}: {missing}")


@pytest.mark.parametrize("how", ["single", "batches"])
def test_what_a_program_sends_the_sdk_receives(
    program: Program, gateway: Gateway, client: pulsar.Client, unique: Unique, how: str
) -> None:
    topic = unique()
    consumer = client.subscribe(topic, "s", SHARED, initial_position=EARLIEST)
    assert program.run(gateway.address(), "produce", topic, MESSAGES, how) == [f"sent {MESSAGES}"]
    came = receive_rest(consumer)
    assert [message.data() for message in came] == [b"%d" % number for number in range(MESSAGES)]
    assert [message.properties() for message in came] == [{"number": str(number)} for number in range(MESSAGES)]
    if program.language != "js":  # pulsar-flex sends no keys
        assert [message.partition_key() for message in came] == [f"key-{number % 3}" for number in range(MESSAGES)]


@pytest.mark.parametrize("kind", ["Shared", "Key_Shared"])
def test_a_program_receives_what_the_sdk_sends_and_what_it_refused_comes_again(
    program: Program, gateway: Gateway, client: pulsar.Client, unique: Unique, kind: str
) -> None:
    topic = unique()
    client.subscribe(topic, program.language, SHARED).close()  # pulsar-flex says no start position
    producer = client.create_producer(topic)
    for number in range(MESSAGES):
        producer.send(b"%d" % number, partition_key=f"key-{number % 3}", properties={"number": str(number)})
    said = program.run(gateway.address(), "consume", topic, MESSAGES, kind)
    assert sorted(int(line.split()[0]) for line in said) == list(range(MESSAGES))
    if program.language in ("go", "java"):
        assert {line.split()[3] for line in said} == {"1"}, "deliveries are counted"
    backlog = client.subscribe(topic, program.language, SHARED) if program.language != "js" else None  # js unsubscribes
    assert backlog is None or receive_rest(backlog) == [], "what was acknowledged does not come again"


@pytest.fixture
def typed(program: Program) -> Program:
    if program.language not in ("go", "java"):
        pytest.skip(f"the client for {program.language} has no schemas, transactions and table views")
    return program


def test_a_program_reads(program: Program, gateway: Gateway, client: pulsar.Client, unique: Unique) -> None:
    if program.language == "js":
        pytest.skip("pulsar-flex has no readers")
    topic = unique()
    send(client, topic, MESSAGES)
    said = program.run(gateway.address(), "read", topic, MESSAGES)
    assert said[:MESSAGES] == [str(number) for number in range(MESSAGES)]
    assert said[MESSAGES:] in ([], ["more false"])


def test_a_program_has_a_table_view(typed: Program, gateway: Gateway, client: pulsar.Client, unique: Unique) -> None:
    topic = unique()
    producer = client.create_producer(topic)
    for key, value in (("a", b"1"), ("b", b"2"), ("a", b"3")):
        producer.send(value, partition_key=key)
    # Java's client reads what is there only of a topic that is named with its domain.
    assert typed.run(gateway.address(), "view", f"persistent://public/default/{topic}") == ["a 3", "b 2"]


def test_a_program_has_a_schema(typed: Program, gateway: Gateway, client: pulsar.Client, unique: Unique) -> None:
    topic = unique()
    expected = {
        "go": [f"{number}" for number in range(MESSAGES)],
        "java": [f"{number} item-{number} {number}" for number in range(MESSAGES)],
    }
    assert typed.run(gateway.address(), "schema", topic, MESSAGES) == expected[typed.language]
    reader = client.create_reader(topic, pulsar.MessageId.earliest, schema=pulsar.schema.AutoConsumeSchema())
    assert [reader.read_next(60_000).value()["number"] for _ in range(MESSAGES)] == list(range(MESSAGES))


@pytest.mark.parametrize("outcome", ["commit", "abort"])
def test_a_programs_transaction_is_seen_whole_or_not_at_all(
    typed: Program, gateway: Gateway, client: pulsar.Client, unique: Unique, outcome: str
) -> None:
    topic = unique()
    client.create_producer(topic).send(b"one")
    out = client.subscribe(f"{topic}-out", "s", initial_position=EARLIEST)
    assert typed.run(gateway.address(), "transaction", topic, outcome) == [f"{outcome} one"]
    left = client.subscribe(topic, typed.language)
    found = payloads(receive_rest(out)), payloads(receive_rest(left))
    assert found == ((["one"], []) if outcome == "commit" else ([], ["one"]))


@pytest.fixture
def in_java(program: Program) -> Program:
    if program.language != "java":
        pytest.skip("written for Java alone")
    return program


def test_java_and_python_share_a_subscription(
    in_java: Program, gateway: Gateway, client: pulsar.Client, unique: Unique
) -> None:
    """What one of them holds or acknowledged does not come to the other one."""
    topic = unique()
    ours = client.subscribe(topic, "java", SHARED, initial_position=EARLIEST, receiver_queue_size=1)
    send(client, topic, MESSAGES)
    held = payloads(receive(ours, 5))
    theirs = [line.split()[0] for line in in_java.run(gateway.address(), "consume", topic, MESSAGES // 2, "Shared")]
    assert not set(held) & set(theirs)
    ours.close()
    rest = payloads(receive_rest(client.subscribe(topic, "java", SHARED)))
    assert sorted(map(int, theirs + rest)) == list(range(MESSAGES))
