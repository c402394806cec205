"""SDK programs and official clients on the gateway, side by side: keys stay in order whoever writes them, a
subscription is shared, and where it cannot be both hear why."""

from __future__ import annotations

import logging
import signal
import subprocess
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import pulsar_on_kafka as sdk
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.broker.node.node import Node
from pulsar_on_kafka.gateway.server import Gateway
from tests.chaos.gateways.fleet import GatewayProcess
from tests.integration.pending_ack_support import begin
from tests.programs import a_program
from tests.seeds import first_of
from tests.steps import Process, Unique
from tests.waiting import until

pulsar: Any = pytest.importorskip("pulsar", reason="the official client, pulsar-client, is not installed")

pytestmark = pytest.mark.kafka

PARTITIONS = 2
Sharers = Callable[[str, str], tuple[sdk.Consumer, Any]]


@pytest.fixture
def official(gateway: Gateway) -> Iterator[Any]:
    client = pulsar.Client(gateway.address(), logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    yield client
    client.close()


@pytest.fixture
def topic(admin: AdminClient, unique: Unique) -> str:
    name = unique()
    admin.create_partitioned_topic(name, PARTITIONS)
    return name


def single(topic: str) -> list[str]:
    return [f"{topic}-partition-{partition}" for partition in range(PARTITIONS)]


@pytest.fixture
def sharers(process: Process, official: Any, gateway: Gateway) -> Sharers:
    """A consumer of the SDK's and one of the official client's, each of all partitions; every owner knows both."""

    def made(topic: str, kind: str) -> tuple[sdk.Consumer, Any]:
        options: dict[str, Any] = {"consumer_name": "a", "receiver_queue_size": 5}
        theirs = official.subscribe(
            topic, "s", getattr(pulsar.ConsumerType, kind), initial_position=pulsar.InitialPosition.Earliest, **options
        )
        client = process()
        options["consumer_name"] = "b"
        ours = client.subscribe(
            single(topic),
            "s",
            getattr(sdk.ConsumerType, kind),
            initial_position=sdk.InitialPosition.Earliest,
            **options,
        )
        nodes = [gateway._sharing._node, client._session.node()]
        until(lambda: known_to_owners(nodes, topic) == 2 * PARTITIONS, "the owner of each partition to know both")
        return ours, theirs

    return made


def known_to_owners(nodes: list[Node], topic: str) -> int:
    """How many consumers the owners of partitions hand messages to: they know them, and what they take."""
    members = [member for node in nodes for (place, _), member in node.memberships.members().items() if topic in place]
    owners = [member for member in members if member.owned_partitions()]
    return sum(endpoint.permits() > 0 for member in owners for endpoint in list(member._endpoints))


def taken_by_both(ours: sdk.Consumer, theirs: Any, count: int) -> tuple[list[Any], list[Any]]:
    """So many messages, of each consumer in their order."""
    found: tuple[list[Any], list[Any]] = [], []

    def all_there() -> bool:
        for consumer, got, nothing in ((ours, found[0], sdk.Timeout), (theirs, found[1], pulsar.Timeout)):
            try:
                got.append(consumer.receive(20))
            except nothing:
                continue
            consumer.acknowledge(got[-1])
        return len(found[0]) + len(found[1]) >= count

    until(all_there, f"{count} messages to come to one of both")
    return found


def nothing_comes(ours: sdk.Consumer, theirs: Any) -> bool:
    for consumer, nothing in ((ours, sdk.Timeout), (theirs, pulsar.Timeout)):
        try:
            consumer.receive(200)
        except nothing:
            continue
        return False
    return True


# Where keys go --------------------------------------------------------------------------------------------------------


KEYS = [*(f"key-{number}" for number in range(40)), "zoë", "\U0001f600"]


@pytest.mark.parametrize("batching", [False, True])
def test_a_key_has_one_partition_for_the_sdk_and_the_official_client(
    official: Any, client: sdk.Client, admin: AdminClient, unique: Unique, batching: bool
) -> None:
    topic = unique()
    admin.create_partitioned_topic(topic, 7)
    theirs = official.create_producer(topic, batching_enabled=batching)
    ours = client.create_producer(topic, hashing_scheme=sdk.HashingScheme.BoostHash, batching_enabled=batching)
    for key in KEYS:
        assert ours.send(b"x", partition_key=key).partition() == theirs.send(b"x", partition_key=key).partition(), key


@pytest.mark.long
def test_a_key_has_one_partition_for_the_sdk_and_java(
    java: Any, gateway: Gateway, client: sdk.Client, admin: AdminClient, unique: Unique
) -> None:
    topic = unique()
    admin.create_partitioned_topic(topic, 7)
    teller = java.Client(gateway.address())
    theirs = teller.create_producer(topic)
    ours = client.create_producer(topic, hashing_scheme=sdk.HashingScheme.JavaStringHash)
    for key in KEYS:
        assert ours.send(b"x", partition_key=key).partition() == theirs.send(b"x", partition_key=key).partition(), key
    teller.close()


def test_a_topic_knows_what_its_keys_are_routed_by(
    official: Any, process: Process, admin: AdminClient, unique: Unique, caplog: pytest.LogCaptureFixture
) -> None:
    """Of the official client by the keys that come; the next program that routes otherwise is warned."""
    topic = unique()
    admin.create_partitioned_topic(topic, 3)
    theirs = official.create_producer(topic, batching_enabled=False)
    for number in range(90):
        theirs.send_async(b"x", None, partition_key=f"key-{number}")
    theirs.flush()
    until(lambda: admin.topic_stats(topic).hashing_schemes == ("BoostHash",), "the topic to know")
    ours = process().create_producer(topic, hashing_scheme=sdk.HashingScheme.BoostHash)
    ours.send(b"x", partition_key="k")
    ours.close()
    assert not [record for record in caplog.records if topic in record.getMessage()]
    with caplog.at_level(logging.WARNING):
        other = process().create_producer(topic)
        other.send(b"x", partition_key="k")
        words = (topic, "BoostHash", "Crc32Hash")
        until(lambda: any(all(word in said for word in words) for said in caplog.messages), "the warning")
        other.close()
    assert admin.topic_stats(topic).hashing_schemes == ("BoostHash", "Crc32Hash")


# One subscription -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", first_of(0, ["KeyShared", "Shared", "Failover"], later=1))
def test_a_partitioned_topics_subscription_is_shared(
    sharers: Sharers, official: Any, process: Process, admin: AdminClient, topic: str, kind: str
) -> None:
    """By an SDK program that consumes its partitions by their names. Keys that both kinds of producers write come in
    order."""
    ours, theirs = sharers(topic, kind)
    producers = (
        official.create_producer(topic, batching_enabled=False),
        process().create_producer(topic, hashing_scheme=sdk.HashingScheme.BoostHash),
    )
    count, keys = 200, 15
    for number in range(count):
        producers[number % 2].send(str(number).encode(), partition_key=f"k{number % keys}")
    found = taken_by_both(ours, theirs, count)
    assert sorted(int(message.data()) for got in found for message in got) == list(range(count))
    assert all(found), [len(got) for got in found]
    if kind != "Shared":
        holders: dict[str, set[int]] = defaultdict(set)
        for index, got in enumerate(found):
            for key in {message.partition_key() for message in got}:
                holders[key].add(index)
                numbers = [int(message.data()) for message in got if message.partition_key() == key]
                assert numbers == list(range(int(key[1:]), count, keys))
        assert all(len(each) == 1 for each in holders.values()), holders
    ours.flush()
    until(lambda: admin.subscription_stats(topic, "s").backlog == 0, "every acknowledgement to be saved")


def test_a_transactions_outcome_is_seen_by_both(sharers: Sharers, client: sdk.Client, topic: str) -> None:
    ours, theirs = sharers(topic, "Shared")
    producer = client.create_producer(topic, hashing_scheme=sdk.HashingScheme.BoostHash)
    count = 30
    for outcome in ("abort", "commit"):
        txn = begin(client)
        for number in range(count):
            producer.send(f"{outcome} {number}".encode(), partition_key=f"k{number}", txn=txn)
        assert nothing_comes(ours, theirs)
        getattr(txn, outcome)()
    found = taken_by_both(ours, theirs, count)
    assert sorted(message.data() for got in found for message in got) == sorted(
        f"commit {number}".encode() for number in range(count)
    )
    assert all(found), [len(got) for got in found]
    assert nothing_comes(ours, theirs)


def test_what_a_transaction_holds_comes_to_neither(
    sharers: Sharers, client: sdk.Client, admin: AdminClient, topic: str
) -> None:
    """Whoever owns the partition; aborted it comes again, committed it does not."""
    ours, theirs = sharers(topic, "Shared")
    producer = client.create_producer(topic, hashing_scheme=sdk.HashingScheme.BoostHash)
    for number in range(12):
        producer.send(b"%d" % number, partition_key=f"k{number}")
    held = [ours.receive(60_000) for _ in range(4)]
    aborted, committed = begin(client), begin(client)
    for message in held[:2]:
        ours.acknowledge(message, txn=aborted)
    for message in held[2:]:
        ours.acknowledge(message, txn=committed)
    rest = taken_by_both(ours, theirs, 8)
    assert nothing_comes(ours, theirs)
    aborted.abort()
    again = taken_by_both(ours, theirs, 2)
    committed.commit()
    assert sorted(message.data() for got in again for message in got) == sorted(each.data() for each in held[:2])
    assert nothing_comes(ours, theirs)
    assert len({message.data() for got in (*rest, *again, held[2:]) for message in got}) == 12
    ours.flush()
    until(lambda: admin.subscription_stats(topic, "s").backlog == 0, "every acknowledgement to be saved")


_A_HOLDER = """
    client = pulsar.Client(sys.argv[1])
    topics = [f"{sys.argv[2]}-partition-{partition}" for partition in range(int(sys.argv[3]))]
    consumer = client.subscribe(topics, "s", consumer_type=pulsar.ConsumerType.Shared,
                                initial_position=pulsar.InitialPosition.Earliest)
    print("known", flush=True)
    for _ in range(5):
        print(consumer.receive(60_000).data().decode(), flush=True)
    sys.stdin.readline()
"""
_AN_OFFICIAL_HOLDER = """
    import pulsar
    told = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # the client's log goes to standard output, into the middle of a line
    client = pulsar.Client(sys.argv[1])
    consumer = client.subscribe(sys.argv[2], "s", consumer_type=pulsar.ConsumerType.Shared,
                                initial_position=pulsar.InitialPosition.Earliest)
    print("known", file=told)
    for _ in range(5):
        print(consumer.receive(60_000).data().decode(), file=told)
    sys.stdin.readline()
"""


def held_by(program: subprocess.Popen[str], then: Callable[[], None]) -> set[int]:
    """What a holder has got; `then` is done when it consumes."""
    out, errors = program.stdout, program.stderr
    assert out is not None
    assert errors is not None

    def said() -> str:
        return out.readline().strip() or pytest.fail(f"the holder has ended: {errors.read()}")

    assert said() == "known"
    then()
    return {int(said()) for _ in range(5)}


@pytest.fixture
def forty(process: Process, topic: str) -> Callable[[], None]:
    def send() -> None:
        producer = process().create_producer(topic, hashing_scheme=sdk.HashingScheme.BoostHash)
        for number in range(40):
            producer.send(b"%d" % number, partition_key=f"k{number}")

    return send


@pytest.mark.kills
@pytest.mark.parametrize("owner", ["the gateway", "the program"])
def test_what_a_killed_sdk_program_held_comes_to_the_official_client(
    official: Any, forty: Callable[[], None], service_url: str, topic: str, owner: str
) -> None:
    earliest = pulsar.InitialPosition.Earliest
    join = partial(official.subscribe, topic, "s", pulsar.ConsumerType.Shared, initial_position=earliest)
    consumer = join(receiver_queue_size=10) if owner == "the gateway" else None
    with a_program(_A_HOLDER, service_url, topic, str(PARTITIONS)) as program:
        held = held_by(program, forty)
        program.kill()
    consumer = consumer or join()
    got: set[int] = set()
    while len(got) < 40:
        message = consumer.receive(60_000)
        consumer.acknowledge(message)
        got.add(int(message.data()))
    assert held <= got


@pytest.mark.kills
def test_what_a_killed_official_client_held_comes_to_the_sdk(
    gateway: Gateway, process: Process, forty: Callable[[], None], topic: str
) -> None:
    consumer = process().subscribe(
        single(topic), "s", sdk.ConsumerType.Shared, initial_position=sdk.InitialPosition.Earliest
    )
    with a_program(_AN_OFFICIAL_HOLDER, gateway.address(), topic) as program:
        held = held_by(program, forty)
        program.kill()
    got = {int(consumer.receive(60_000).data()) for _ in range(40)}
    assert got == set(range(40))
    assert held <= got


@pytest.mark.kills
def test_the_sdk_goes_on_when_the_gateway_dies(
    process: Process, forty: Callable[[], None], service_url: str, topic: str, unique: Unique, tmp_path: Path
) -> None:
    """With what its client held, and what it owned."""
    dying = GatewayProcess(tmp_path / "log", service_url, unique(), apart=False)
    try:
        with a_program(_AN_OFFICIAL_HOLDER, dying.address, topic) as program:
            consumers: list[sdk.Consumer] = []

            def join_and_send() -> None:
                consumers.append(process().subscribe(single(topic), "s", sdk.ConsumerType.Shared))
                forty()

            held = held_by(program, join_and_send)
            dying.send(signal.SIGKILL)
            got = {int(consumers[0].receive(60_000).data()) for _ in range(40)}
            program.kill()
    finally:
        dying.end()
    assert got == set(range(40))
    assert held <= got


# What stays exclusive -------------------------------------------------------------------------------------------------


def test_consumers_of_the_whole_topic_and_official_clients_exclude_each_other(
    official: Any, process: Process, admin: AdminClient, topic: str
) -> None:
    """On a topic with partitions; whoever comes second hears who is there, and how to share. A consumer of the whole
    topic is there for other processes once it has joined its group, which `subscribe` does not wait for."""
    theirs = official.subscribe(topic, "s", pulsar.ConsumerType.Shared)
    with pytest.raises(sdk.ConsumerBusy, match=r"partition by partition.*by process \S+:\d+;.*by their names"):
        process().subscribe(topic, "s", sdk.ConsumerType.Shared)
    theirs.close()
    ours = process().subscribe(topic, "s", sdk.ConsumerType.Shared)
    until(lambda: admin.subscription_stats(topic, "s").consumers, "ours to have joined the group")
    with pytest.raises(pulsar.ConsumerBusy):
        official.subscribe(topic, "s", pulsar.ConsumerType.Shared)
    ours.close()
    official.subscribe(topic, "s", pulsar.ConsumerType.Shared).close()
