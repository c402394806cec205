"""`pok serve --with scaler` as people start it, and KEDA's requests."""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Final

import grpc
import pytest

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.admin.overview.gathering import Gatherer
from pulsar_on_kafka.admin.overview.records import Overview
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import InvalidOption
from pulsar_on_kafka.embedded import EmbeddedBroker
from pulsar_on_kafka.scaler import server
from pulsar_on_kafka.scaler.gathering import BacklogGatherer
from pulsar_on_kafka.scaler.server import ScalerServer, ScalerTls
from tests.certificates import Authority
from tests.programs import run_program
from tests.scalers import Keda, a_scaler, keda_at
from tests.services import NO_ROLE, a_service
from tests.steps import EARLIEST, FAILOVER, SHARED, Unique, receive, send
from tests.waiting import patience, until

_SERVE: Final = (
    *("serve", "--port", "0", *NO_ROLE, "--with", "scaler"),
    *("--scaler-port", "0", "--scaler-interval", "0.4"),
)
_ADDRESS: Final = r"scaler for KEDA on (\S+)"


@contextmanager
def refused(status: grpc.StatusCode, text: str) -> Iterator[None]:
    """The call inside fails with this status, and a message that matches."""
    with pytest.raises(grpc.RpcError) as failed:
        yield
    found: grpc.Call = failed.value
    assert (found.code(), bool(re.search(text, found.details() or ""))) == (status, True), found.details()


def lag(admin: AdminClient, topic: str, subscription: str) -> int:
    """What Kafka's tools show: the distance from the group's committed offset to the log's end."""
    stats = admin.subscription_stats(topic, subscription)
    found = admin.topic_stats(topic)
    numbers = sorted(found.end_offsets)
    commits = admin.node.admin.committed(stats.group, found.kafka_topic, numbers, patience())
    return sum(found.end_offsets[number] - commits[number].kafka_offset for number in numbers)


@pytest.mark.kafka
def test_keda_is_told_the_true_backlog_where_kafkas_lag_is_another_number(
    admin: AdminClient, client: pulsar.Client, service_url: str, unique: Unique, tmp_path: Path
) -> None:
    topic, log = unique("orders"), tmp_path / "log"
    admin.create_topic(topic)
    trigger = {"topic": topic, "subscription": "billing"}
    with a_service(log, service_url, _ADDRESS, *_SERVE) as address, keda_at(address) as keda:
        port = re.search(r"metrics and health on port (\d+)", log.read_text())
        assert port is not None
        with urllib.request.urlopen(f"http://127.0.0.1:{port[1]}/health/live", timeout=60) as live:
            assert json.load(live)["duties"]["scaler"]["dead_threads"] == []
        consumer = client.subscribe(topic, "billing", SHARED, initial_position=EARLIEST)
        send(client, topic, 40)
        held = receive(consumer, 40)
        until(lambda: knows(keda, trigger, 40), "the subscription with its messages")
        assert keda.target(**trigger) == 10
        assert keda.target(**trigger, backlogPerReplica="4") == 4
        for message in (*held[:5], *held[20:35]):
            consumer.acknowledge(message)
        until(lambda: knows(keda, trigger, 20), lambda: f"half of the messages, not {keda.backlog(**trigger)}")
        assert lag(admin, topic, "billing") == 35
        assert keda.is_active(**trigger)
        assert not keda.is_active(**trigger, activationBacklog="20")
        assert keda.is_active(**trigger, activationBacklog="19")
        assert keda.backlog(**trigger, maxByPartitions="true") == 10
        for message in (*held[5:20], *held[35:]):
            consumer.acknowledge(message)
        until(lambda: knows(keda, trigger, 0), "nothing left")
        assert not keda.is_active(**trigger)


def knows(keda: Keda, trigger: dict[str, str], backlog: int) -> bool:
    """Whether the scaler reports this backlog now."""
    try:
        return keda.backlog(**trigger) == backlog
    except grpc.RpcError as failed:
        if failed.code() not in (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.UNAVAILABLE):
            raise
        return False


@pytest.mark.kafka
def test_several_topics_are_one_backlog_and_what_is_not_there_is_named(
    admin: AdminClient, client: pulsar.Client, unique: Unique
) -> None:
    namespace = f"public/{unique('sales')}"
    admin.create_namespace(namespace)
    for name, count in (("orders-eu", 3), ("orders-us", 4), ("bills", 5)):
        admin.create_partitioned_topic(f"{namespace}/{name}", 2)
        admin.create_subscription(f"{namespace}/{name}", "billing")
        send(client, f"{namespace}/{name}", count)
    admin.create_subscription(f"{namespace}/bills", "audit")
    with a_scaler(admin) as address, keda_at(address) as keda:
        until(lambda: knows(keda, {"namespace": namespace, "subscription": "billing"}, 12), "all of the namespace")
        pattern = {"topicsPattern": f"{namespace}/orders-.*", "subscription": "billing"}
        assert keda.backlog(**pattern) == 7
        assert keda.backlog(**pattern, maxByPartitions="true", backlogPerReplica="1") == 4
        for missing, reason in (
            ({"topic": f"{namespace}/nothing"}, f"topic persistent://{namespace}/nothing does not exist"),
            ({"topic": f"{namespace}/bills"}, "bills has no subscription mailing; there are: audit, billing"),
            ({"namespace": f"{namespace}-x"}, f"namespace {namespace}-x does not exist"),
            ({"namespace": namespace}, "no topic of namespace .* has the subscription mailing; there are: audit, bil"),
            ({"topicsPattern": f"{namespace}/.*s"}, "no topic of pattern .* has the subscription mailing"),
        ):
            with refused(grpc.StatusCode.NOT_FOUND, reason):
                keda.backlog(**missing, subscription="mailing")
        with refused(grpc.StatusCode.INVALID_ARGUMENT, "metricName is 's0-lag', expected 'pok-backlog'"):
            keda.backlog("s0-lag", **pattern)
        with refused(grpc.StatusCode.INVALID_ARGUMENT, "unknown metadata 'topik'; did you mean topic?"):
            keda.target(topik="orders")


@pytest.mark.kafka
def test_delayed_messages_count_when_they_are_due_if_the_trigger_says_so(
    admin: AdminClient, client: pulsar.Client, unique: Unique
) -> None:
    topic = unique("orders")
    admin.create_partitioned_topic(topic, 2)
    for name, kind in (("billing", SHARED), ("audit", FAILOVER)):
        client.subscribe(topic, name, kind).close()
    send(client, topic, 4)
    producer = client.create_producer(topic)
    ids = [producer.send(b"later", deliver_after=timedelta(hours=1)) for _ in range(6)]
    with a_scaler(admin) as address, keda_at(address) as keda:
        trigger = {"topic": topic, "subscription": "billing"}
        due = {**trigger, "includeDelayed": "false"}
        until(lambda: knows(keda, trigger, 10), "all messages")
        until(lambda: knows(keda, due, 4), lambda: f"those that are due, not {keda.backlog(**due)}")
        assert not keda.is_active(**due, activationBacklog="4")
        assert keda.is_active(**trigger, activationBacklog="4")
        assert keda.backlog(topic=topic, subscription="audit", includeDelayed="false") == 10, "Failover does not wait"
        assert admin.cancel_messages(topic, subscription="billing", message_ids=ids[:2]) == {"billing": 2}
        until(lambda: knows(keda, trigger, 8), "without the cancelled ones")
        until(lambda: knows(keda, due, 4), lambda: f"the same, not {keda.backlog(**due)}")
        producer.send(b"soon", deliver_after=timedelta(seconds=2))
        until(lambda: knows(keda, trigger, 9), "the new one, which is delayed")
        until(lambda: knows(keda, due, 5), lambda: f"the one that has become due, not {keda.backlog(**due)}")
        admin.reset_cursor(topic, "billing", message_id=pulsar.MessageId.earliest)
        until(lambda: knows(keda, trigger, 11), "the cancelled ones again")
        until(lambda: knows(keda, due, 5), lambda: f"after a seek, not {keda.backlog(**due)}")


@pytest.mark.kafka
def test_a_stream_tells_each_change_and_ends_with_the_subscription(
    admin: AdminClient, client: pulsar.Client, unique: Unique
) -> None:
    topic = unique("orders")
    admin.create_topic(topic)
    consumer = client.subscribe(topic, "billing", SHARED, initial_position=EARLIEST)
    with a_scaler(admin) as address, keda_at(address) as keda:
        until(lambda: knows(keda, {"topic": topic, "subscription": "billing"}, 0), "the subscription")
        stream = keda.stream(topic=topic, subscription="billing", activationBacklog="1")
        assert not next(stream).result
        send(client, topic, 3)
        assert next(stream).result
        for message in receive(consumer, 3):
            consumer.acknowledge(message)
        assert not next(stream).result
        consumer.unsubscribe()
        with refused(grpc.StatusCode.NOT_FOUND, "has no subscription billing"):
            next(stream)


@pytest.mark.kafka
def test_many_triggers_share_a_pass(admin: AdminClient, unique: Unique) -> None:
    passes = []

    class CountedGatherer(Gatherer):
        def gather(self, deadline: Deadline, *, requesting: int = 1) -> Overview:
            passes.append(deadline)
            return super().gather(deadline, requesting=requesting)

    topics = [unique(f"orders{number}") for number in range(3)]
    for topic in topics:
        admin.create_topic(topic)
        admin.create_subscription(topic, "billing")
    with a_scaler(admin, interval_s=600, make=CountedGatherer) as address, keda_at(address) as keda:
        with ThreadPoolExecutor(20) as threads:
            asked = [threads.submit(keda.backlog, topic=topic, subscription="billing") for topic in topics * 20]
        assert [each.result() for each in asked] == [0] * 60
        assert len(passes) == 1


@pytest.mark.kafka
def test_streams_are_bounded(admin: AdminClient, unique: Unique, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MAX_STREAMS", 2)
    trigger = {"topic": unique("orders"), "subscription": "billing"}
    admin.create_topic(trigger["topic"])
    admin.create_subscription(trigger["topic"], "billing")
    with a_scaler(admin) as address, keda_at(address) as keda:
        streams = [keda.stream(**trigger) for _ in range(2)]
        assert [next(each).result for each in streams] == [False, False]
        with refused(grpc.StatusCode.RESOURCE_EXHAUSTED, "2 streams are open"):
            next(keda.stream(**trigger))
        streams[0].cancel()

        def has_room() -> bool:
            try:
                return not next(keda.stream(**trigger)).result
            except grpc.RpcError as failed:
                if failed.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED:
                    raise
                return False

        until(has_room, "the place of the one that ended")


@pytest.mark.kafka
@pytest.mark.kills
def test_no_number_is_reported_while_kafka_is_away(own_broker: EmbeddedBroker) -> None:
    with AdminClient(f"kafka://{own_broker.bootstrap}") as admin, a_scaler(admin) as address, keda_at(address) as keda:
        admin.create_topic("orders")
        admin.create_subscription("orders", "billing")
        trigger = {"topic": "orders", "subscription": "billing"}
        until(lambda: knows(keda, trigger, 0), "the subscription")
        stream = keda.stream(**trigger)
        assert not next(stream).result
        own_broker.pause()

        def is_away() -> bool:
            try:
                return keda.is_active(**trigger)
            except grpc.RpcError as failed:
                return failed.code() is grpc.StatusCode.UNAVAILABLE

        until(is_away, "the status that keeps KEDA from scaling")
        assert keda.target(**trigger) == 10, "targets need no cluster"
        own_broker.resume()
        until(lambda: knows(keda, trigger, 0), "numbers again")
        client = pulsar.Client(f"kafka://{own_broker.bootstrap}")
        send(client, "orders", 1)
        assert next(stream).result, "the stream outlives the absence"
        client.close()


def test_a_cluster_that_was_never_reached_is_unavailable_at_once() -> None:
    with a_scaler() as address, keda_at(address) as keda:
        for call in (keda.is_active, keda.backlog, lambda **trigger: next(keda.stream(**trigger))):
            with refused(grpc.StatusCode.UNAVAILABLE, "not connected yet"):
                call(topic="orders", subscription="billing")


def test_a_client_is_required_to_have_a_certificate_of_the_authority(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    scaler, keda = authority.issue("scaler", address="127.0.0.1"), authority.issue("keda")
    stranger = Authority(tmp_path, "another authority").issue("stranger")
    root = authority.file.read_bytes()
    trigger = {"topic": "orders", "subscription": "billing"}
    for tls in (
        ScalerTls(str(scaler.both), "", str(authority.file)),
        ScalerTls(str(scaler.certificate), str(scaler.key), str(authority.file)),
    ):
        with a_scaler(tls=tls) as address:
            allowed = grpc.ssl_channel_credentials(root, keda.key.read_bytes(), keda.certificate.read_bytes())
            with keda_at(address, allowed) as client:
                assert client.target(**trigger) == 10
            foreign = grpc.ssl_channel_credentials(root, stranger.key.read_bytes(), stranger.certificate.read_bytes())
            for credentials in (foreign, grpc.ssl_channel_credentials(root)):
                with keda_at(address, credentials) as client, refused(grpc.StatusCode.UNAVAILABLE, ""):
                    client.target(**trigger)
    plain = grpc.ssl_channel_credentials(root)
    with a_scaler(tls=ScalerTls(str(scaler.both))) as address, keda_at(address, plain) as client:
        assert client.target(**trigger) == 10


def test_a_port_that_is_taken_is_named() -> None:
    with a_scaler() as address:
        port = int(address.rpartition(":")[2])
        with pytest.raises(InvalidOption, match=r"name another one with --scaler-port \(0: a free"):
            ScalerServer("127.0.0.1", port, BacklogGatherer(), ScalerTls())


def test_what_is_missing_is_named_with_its_extra() -> None:
    status, _, told = run_program(
        """
        sys.modules["grpc"] = None
        from pulsar_on_kafka.cli.main import app
        app(["serve", "--with", "scaler", "--port", "0"])
        """
    )
    assert status == 1
    assert told.splitlines()[-1] == "pok: --with scaler needs grpc: pip install 'pulsar-on-kafka[scaler]'"


def test_nobody_else_imports_its_libraries() -> None:
    status, out, told = run_program(
        """
        import pulsar_on_kafka.cli.processes.serve
        print(sorted({"grpc", "google"} & {name.partition(".")[0] for name in sys.modules}))
        """
    )
    assert (status, out.strip()) == (0, "[]"), told
