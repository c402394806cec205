"""`pok` on a real broker: every command, what it prints, and what it says when it is refused."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer

from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.broker.metadata.policies import POLICIES
from pulsar_on_kafka.embedded.settings import free_port
from tests.integration.cli.conftest import Pok, running
from tests.steps import Unique

pytestmark = pytest.mark.kafka


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["metrics", "nosuch"], "topic persistent://public/default/nosuch does not exist"),
        (["metrics", "--namespace", "nosuch/x"], "namespace nosuch/x does not exist"),
        (["namespaces", "list", "nosuch"], "there is no tenant 'nosuch'"),
        (["namespaces", "delete", "nosuch/x", "--yes"], "namespace nosuch/x does not exist"),
        (["namespaces", "policy", "get", "nosuch/x"], "namespace nosuch/x does not exist"),
        (["namespaces", "policy", "set", "nosuch/x", "deduplication", "true"], "namespace nosuch/x does not exist"),
        (["namespaces", "policy", "remove", "nosuch/x", "deduplication"], "namespace nosuch/x does not exist"),
        (["topics", "list", "nosuch/x"], "namespace nosuch/x does not exist"),
        (["topics", "partitions", "nosuch"], "nosuch does not exist"),
        (["topics", "partitions", "nosuch", "--grow", "3"], "nosuch does not exist"),
        (["topics", "bind", "nosuch", "nosuch.of.kafka"], "nosuch.of.kafka"),
        (["topics", "policy", "get", "nosuch"], "nosuch does not exist"),
        (["topics", "policy", "remove", "nosuch", "deduplication"], "nosuch does not exist"),
        (["subscriptions", "create", "nosuch", "-s", "s"], "nosuch does not exist"),
        (["subscriptions", "replicate", "nosuch", "-s", "s"], "nosuch does not exist"),
        (["clusters", "get", "nosuch"], "there is no cluster 'nosuch'"),
        (["clusters", "update", "nosuch", "--service-url", "kafka://a:1"], "there is no cluster 'nosuch'"),
        (["clusters", "delete", "nosuch", "--yes"], "there is no cluster 'nosuch'"),
        (["tenants", "get", "nosuch"], "tenant nosuch is on no cluster"),
        (["tenants", "set", "shop", "nosuch"], "there is no cluster 'nosuch'"),
        (["tenants", "remove", "nosuch", "--yes"], "tenant nosuch has no entry"),
        (["migrate", "status", "nosuch"], "nosuch"),
        (["migrate", "plan", "nosuch", "--to", "nosuch"], "nosuch"),
        (["ledgers", "list", "nosuch"], "nosuch does not exist"),
        (["ledgers", "show", "12345678901"], "ledger 12345678901"),
        (["schemas", "get", "nosuch"], "nosuch does not exist"),
        (["schemas", "list", "nosuch"], "nosuch does not exist"),
        (["schemas", "delete", "nosuch", "--yes"], "nosuch does not exist"),
        (["schemas", "get-compatibility", "nosuch/x"], "namespace nosuch/x does not exist"),
        (["transactions", "show", "(0,4242)"], "(0,4242)"),
        (["transactions", "abort", "(0,4242)", "--yes"], "(0,4242)"),
        (["transactions", "buffer", "nosuch"], "nosuch"),
        (["transactions", "pending-acks", "nosuch", "-s", "s"], "nosuch"),
        (["transactions", "verify", "nosuch"], "nosuch"),
    ],
    ids=lambda value: " ".join(value[:3]) if isinstance(value, list) else "",
)
def test_a_name_of_nothing_is_a_failure(refused: Pok, arguments: list[str], said: str) -> None:
    assert said in refused(*arguments).err


def test_metrics_of_the_others_are_told_all_the_same(pok: Pok, done: Pok, unique: Unique) -> None:
    topic = unique()
    done("topics", "create", topic)
    found = pok("metrics", topic, "nosuch")
    assert found.code == 1
    assert any(
        line.startswith("pok_topic_partitions{") and line.endswith(f'topic="persistent://public/default/{topic}"}} 1')
        for line in found.lines
    )


def test_a_tenant_s_entry_is_set_and_removed(done: Pok, refused: Pok, unique: Unique) -> None:
    tenant, first, second = unique(), f"{unique()}-a", f"{unique()}-b"
    for cluster in (first, second):
        done("clusters", "create", cluster, "--service-url", "kafka://nowhere:1")
    try:
        assert done("tenants", "set", tenant, first).out == f"tenant {tenant} is on cluster {first}\n"
        assert done("tenants", "set", tenant, first).out.endswith(", as it was before\n")
        assert done("tenants", "set", tenant, second, "--yes").out.endswith(f"; before it was on cluster {first}\n")
        removed = done("tenants", "remove", tenant, "--yes")
        assert removed.err == f"pok will remove the entry of tenant {tenant}, which is on cluster {second}\n"
        assert removed.out == (
            f"removed the entry of tenant {tenant}, which was on cluster {second}; now it is on no cluster\n"
        )
        assert "has no entry" in refused("tenants", "remove", tenant, "--yes").err
    finally:
        for cluster in (first, second):
            done("clusters", "delete", cluster, "--yes")


def test_one_is_not_told_as_many(done: Pok, unique: Unique) -> None:
    topic = unique()
    assert "(1 partition)" in done("topics", "create", topic, "--partitions", "1").out
    assert done("produce", topic, "-m", "a", "-q").out == "1 message stored\n"
    assert done("produce", topic, "-m", "a", "-m", "b", "-q").out == "2 messages stored\n"
    done("subscriptions", "create", topic, "-s", "s", "--initial", "earliest")
    assert "up to 1 message of each" in done("subscriptions", "skip", topic, "-s", "s", "-n", "1", "--yes").err
    assert "with 3 entries in 1 partition," in done("topics", "delete", topic, "--force", "--yes").err


@pytest.mark.long
def test_an_interruption_ends_with_130(service_url: str, done: Pok, unique: Unique) -> None:
    topic = unique()
    done("produce", topic, "-m", "a", "-q")
    with running(service_url, "consume", topic, "-s", "s", "-n", "2", "--initial", "earliest") as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
        assert (process.returncode, err) == (130, "pok: interrupted; 1 message acknowledged\n")
    with running(service_url, "produce", topic, "-m", "a", "-n", "1000", "--rate", "1") as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
        assert process.returncode == 130
        assert err.startswith("pok: interrupted; ")


# Topics and namespaces ------------------------------------------------------------------------------------------------


def test_a_topic_from_creation_to_deletion(done: Pok, refused: Pok, unique: Unique) -> None:
    topic = unique()
    full = f"persistent://public/default/{topic}"
    assert done("topics", "create", topic, "--partitions", "2", "--entries-per-ledger", "10").lines == [
        f"created {full} (2 partitions)"
    ]
    assert "exists already" in refused("topics", "create", topic).err
    assert full in done("topics", "list").lines
    assert full in done("topics", "list", "public/default", "--output", "json").json
    assert done("topics", "partitions", topic).lines == [f"{full}-partition-0", f"{full}-partition-1"]
    assert len(done("topics", "partitions", topic, "--grow", "3", "--output", "json").json) == 3

    done("produce", topic, "-m", "a", "-n", "6", "-q")
    stats = done("--output", "json", "topics", "stats", topic).json
    assert (stats["topic"], stats["partitions"], stats["entries"], stats["entries_per_ledger"]) == (full, 3, 6, 10)
    table = done("topics", "stats", topic).out
    assert "entries per ledger  10" in table
    assert "partition   start   end   entries" in table

    done("subscriptions", "create", topic, "-s", "audit")
    assert "audit" in refused("topics", "delete", topic, "--yes").err
    unasked = refused("topics", "delete", topic, "--force")
    assert "with 6 entries in 3 partitions, subscription audit (backlog 0)" in unasked.err
    assert "--yes" in unasked.err
    assert done("topics", "delete", topic, "--force", "--yes", "--output", "json").json == {"deleted": full}
    assert full not in done("topics", "list").lines


def test_a_topic_has_properties_is_truncated_and_terminated(done: Pok, refused: Pok, unique: Unique) -> None:
    topic = unique()
    full = f"persistent://public/default/{topic}"
    done("topics", "create", topic, "--partitions", "2", "--property", "a=1", "--property", "b=")
    assert done("topics", "properties", topic, "--output", "json").json == {"a": "1", "b": ""}
    assert done("topics", "properties", topic, "--set", "c=3", "--remove", "a", "--output", "json").json == {
        "b": "",
        "c": "3",
    }
    done("produce", topic, "-m", "a", "-n", "6", "-q")
    assert "delete 6 entries" in refused("topics", "truncate", topic).err
    assert done("topics", "truncate", topic, "--yes").lines == [f"truncated {full}"]
    assert done("--output", "json", "topics", "stats", topic).json["entries"] == 0
    last = done("produce", topic, "-m", "b").lines[0]
    terminated = done("topics", "terminate", topic, "--yes", "--output", "json").json
    assert terminated["terminated"] == full
    assert last in terminated["last"].values()
    assert "terminated" in refused("produce", topic, "-m", "c").err


@pytest.mark.parametrize("partitions", ["0", "-1", "8193"])
def test_bad_numbers_of_partitions(refused: Pok, unique: Unique, partitions: str) -> None:
    assert "8192" in refused("topics", "create", unique(), "--partitions", partitions).err


def test_a_topic_can_only_grow_when_it_is_partitioned(done: Pok, refused: Pok, unique: Unique) -> None:
    topic = unique()
    done("topics", "create", topic)
    assert "not partitioned" in refused("topics", "partitions", topic, "--grow", "2").err


def test_a_partition_cannot_be_deleted_and_takes_nothing_with_it(done: Pok, refused: Pok, unique: Unique) -> None:
    topic = unique()
    done("topics", "create", topic, "--partitions", "2")
    assert "only the whole topic" in refused("topics", "delete", f"{topic}-partition-0", "--force", "--yes").err
    assert len(done("topics", "partitions", topic).lines) == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ["topics", "stats"],
        ["topics", "partitions"],
        ["topics", "delete", "--yes"],
        ["subscriptions", "list"],
        ["subscriptions", "create", "-s", "s"],
        ["subscriptions", "stats", "-s", "s"],
        ["subscriptions", "reset", "-s", "s", "--time", "1h", "--yes"],
        ["subscriptions", "skip", "-s", "s", "-n", "1", "--yes"],
        ["subscriptions", "clear-backlog", "-s", "s", "--yes"],
        ["subscriptions", "unsubscribe", "-s", "s", "--yes"],
    ],
)
def test_an_unknown_topic(refused: Pok, unique: Unique, arguments: list[str]) -> None:
    topic = unique("unknown")
    noun, verb, *options = arguments
    assert f"{topic} does not exist" in refused(noun, verb, topic, *options).err


def test_names_that_no_topic_can_have(refused: Pok) -> None:
    assert "topic name" in refused("topics", "create", "a/b").err
    assert "no/where" in refused("topics", "create", "no/where/t").err
    assert "no/where" in refused("topics", "list", "no/where").err


def test_a_kafka_topic_is_bound(done: Pok, refused: Pok, bootstrap: str, unique: Unique) -> None:
    theirs, ours = unique("theirs"), unique("ours")
    with AdminClient(f"kafka://{bootstrap}") as admin:
        from pulsar_on_kafka.base.deadline import Deadline

        admin.node.admin.create_topic(theirs, 1, {}, Deadline.after(30))
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(theirs, b"plain", key=b"k", headers=[("h", b"v")])
    assert producer.flush(30) == 0
    assert done("topics", "bind", ours, theirs).lines == [f"bound persistent://public/default/{ours} to {theirs}"]
    assert "(bound)" in done("topics", "stats", ours).out
    assert done("consume", ours, "-s", "s", "--initial", "earliest").out.split("\t")[1:] == ["k", "h=v", "plain\n"]
    plan = refused("topics", "delete", ours, "--force").err
    assert f"the Kafka topic {theirs} stays, with its 1 record" in plan
    assert "no Kafka topic" in refused("topics", "bind", unique("more"), unique("nothing")).err


def test_tenants_have_admin_roles_and_permissions_are_granted(done: Pok, refused: Pok, unique: Unique) -> None:
    tenant = unique("tenant")
    assert "Tenant does not exist" in refused("tenants", "info", tenant).err
    assert done("tenants", "create", tenant, "--admin-role", "boss").lines == [f"created tenant {tenant}"]
    assert "Tenant already exist" in refused("tenants", "create", tenant).err
    assert "Clusters do not exist: nosuch" in refused("tenants", "update", tenant, "--cluster", "nosuch").err
    assert done("tenants", "update", tenant, "--admin-role", "boss", "--admin-role", "deputy").lines
    assert done("tenants", "info", tenant).lines[0].split() == ["admin", "roles", "boss,", "deputy"]
    assert done("tenants", "update", tenant, "--no-admin-roles").lines == [f"updated tenant {tenant}"]
    assert done("namespaces", "list", tenant).lines == []
    assert tenant in done("tenants", "list", "--all").out
    assert tenant not in done("tenants", "list").out
    space = f"{tenant}/eu"
    done("namespaces", "create", space)
    assert done("namespaces", "properties", space, "--set", "a=1", "--set", "b=2", "--output", "json").json == {
        "a": "1",
        "b": "2",
    }
    assert done("namespaces", "properties", space, "--remove", "a").lines == ["b  2"]
    assert "The tenant still has active namespaces" in refused("tenants", "delete", tenant, "--yes").err
    granted = done("permissions", "grant", space, "app", "--action", "produce", "--action", "consume")
    assert granted.lines == [f"role app may produce and consume on {space}"]
    done("permissions", "grant", f"{space}/orders", "audit", "--action", "consume")
    done("permissions", "grant-subscription", space, "billing", "app", "audit")
    listed = [line.split() for line in done("permissions", "list", space).lines[2:]]
    assert listed == [
        [space, "app", "produce,", "consume"],
        [f"persistent://{space}/orders", "audit", "consume"],
        ["subscription", "billing", "app", "use"],
        ["subscription", "billing", "audit", "use"],
    ]
    done("permissions", "revoke", space, "app")
    assert "not set at the topic level" in refused("permissions", "revoke", f"{space}/orders", "app").err
    done("permissions", "revoke-subscription", space, "billing", "audit")
    assert done("permissions", "subscription-auth-mode", space, "Prefix").lines == [
        f"subscription auth mode of {space} is Prefix"
    ]
    done("namespaces", "delete", space, "--yes")
    assert done("tenants", "delete", tenant, "--yes").lines == [f"deleted tenant {tenant}"]


def test_a_namespace_from_creation_to_deletion(done: Pok, refused: Pok, unique: Unique) -> None:
    tenant = unique("tenant")
    assert done("namespaces", "create", f"{tenant}/eu").lines == [f"created {tenant}/eu"]
    assert "exists" in refused("namespaces", "create", f"{tenant}/eu").err
    assert "tenant/namespace" in refused("namespaces", "create", tenant).err
    assert done("namespaces", "list", tenant).lines == [f"{tenant}/eu"]
    done("topics", "create", f"{tenant}/eu/t")
    assert done("topics", "list", f"{tenant}/eu").lines == [f"persistent://{tenant}/eu/t"]
    assert "has 1 topics" in refused("namespaces", "delete", f"{tenant}/eu", "--yes").err
    done("topics", "delete", f"{tenant}/eu/t", "--yes")
    assert "--yes" in refused("namespaces", "delete", f"{tenant}/eu").err
    done("namespaces", "delete", f"{tenant}/eu", "--yes")
    assert "there is no tenant" in refused("namespaces", "list", tenant).err


# Doctor, and no cluster at all ----------------------------------------------------------------------------------------


def test_doctor_finds_our_broker_well(done: Pok) -> None:
    findings = {finding["check"]: finding for finding in done("doctor", "--probe", "--output", "json").json}
    assert not [finding for finding in findings.values() if finding["status"] == "fail"]
    for check in (
        "reachable",
        "broker version",
        "offset.metadata.max.bytes",
        "state topics",
        "clock",
        "delete a topic",
    ):
        assert findings[check]["status"] == "ok", findings[check]
    assert not [name for name in done("topics", "list").lines if "pok-doctor" in name]
    lines = done("doctor").lines
    assert all(line.startswith(("ok ", "warn", "fail", "      ")) for line in lines)


@pytest.fixture
def nobody() -> str:
    """An address at which nobody listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"kafka://127.0.0.1:{free.getsockname()[1]}"


@pytest.mark.parametrize(
    "arguments",
    [
        ["topics", "list"],
        ["namespaces", "list", "public"],
        ["subscriptions", "list", "t"],
        ["produce", "t", "-m", "a"],
        ["consume", "t", "-s", "s"],
    ],
)
def test_no_broker_is_one_line_within_seconds(refused: Pok, nobody: str, arguments: list[str]) -> None:
    start = time.monotonic()
    outcome = refused(*arguments, "--url", nobody)
    assert time.monotonic() - start < 60
    assert "no broker answers" in outcome.err
    assert outcome.out == ""


def test_a_listener_that_is_no_kafka_is_one_line_within_seconds(refused: Pok) -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        start = time.monotonic()
        refused("topics", "list", "--url", f"kafka://127.0.0.1:{deaf.getsockname()[1]}")
        assert time.monotonic() - start < 60


def test_doctor_says_that_nobody_is_there(pok: Pok, nobody: str) -> None:
    outcome = pok("doctor", "--url", nobody, "--output", "json")
    assert outcome.code == 1
    assert outcome.json[-1]["check"] == "reachable"
    assert outcome.json[-1]["status"] == "fail"
    assert "standalone" in outcome.json[-1]["advice"]


def test_debug_shows_the_traceback(pok: Pok, unique: Unique) -> None:
    outcome = pok("topics", "stats", unique("unknown"), "--debug")
    assert outcome.code == 1
    assert "Traceback" in outcome.err
    assert outcome.err.splitlines()[-1].startswith("pok: ") or "pok: topic" in outcome.err


def test_an_unknown_librdkafka_option_is_named(refused: Pok) -> None:
    assert "no.such.option" in refused("topics", "list", "--kafka-config", "no.such.option=1").err


# Standalone -----------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_standalone_keeps_its_data_until_it_is_wiped(tmp_path: Path, refused: Pok) -> None:
    port = free_port()
    where = ("--data-dir", str(tmp_path / "data"), "--port", str(port))

    def topics_of_a_run(*arguments: str, then: Callable[[str], None] = lambda url: None) -> list[str]:
        with running("kafka://localhost:1", "standalone", *where, *arguments) as process:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line == f"Kafka is ready: kafka://127.0.0.1:{port}\n", process.stderr and process.stderr.read()
            with AdminClient(f"kafka://127.0.0.1:{port}") as admin:
                found = admin.list_topics()
            then(f"kafka://127.0.0.1:{port}")
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 0
            return found

    def create(url: str) -> None:
        with AdminClient(url) as admin:
            admin.create_topic("kept")
        busy = refused("standalone", *where)
        assert str(port) in busy.err or "data" in busy.err
        refused("standalone", *where, "--wipe", "--yes")

    assert topics_of_a_run(then=create) == []
    assert topics_of_a_run() == ["persistent://public/default/kept"]
    assert topics_of_a_run("--wipe", "--yes") == []


def test_a_topic_by_the_name_of_v5_clients(done: Pok, unique: Unique) -> None:
    namespace = f"public/{unique()}"
    done("namespaces", "create", namespace)
    done("namespaces", "policy", "set", namespace, "v5_default_partitions", "3")
    done("produce", f"topic://{namespace}/t", "-m", "a", "-q")
    assert done("topics", "list", namespace).lines == [f"persistent://{namespace}/t"]
    stats = done("topics", "stats", f"persistent://{namespace}/t", "--output", "json").json
    assert (stats["partitions"], stats["entries"]) == (3, 1)


def test_policies(done: Pok, refused: Pok, unique: Unique) -> None:
    namespace = f"public/{unique()}"
    topic = f"{namespace}/t"
    done("namespaces", "create", namespace)
    done("topics", "create", topic)
    unset = [line.split() for line in done("namespaces", "policy", "get", namespace).lines]
    assert unset == [[name, "-"] for name, policy in POLICIES.items() if not policy.of_cluster]
    set_now = done("namespaces", "policy", "set", namespace, "deduplication", "true")
    assert set_now.lines == [f"policy deduplication of {namespace} is true"]
    assert done("topics", "policy", "get", topic, "deduplication").lines == ["-"]
    assert done("topics", "policy", "get", topic, "deduplication", "--applied").lines == ["true"]
    found = done("topics", "policy", "set", topic, "deduplication", "false", "--output", "json").json
    assert found == {"where": topic, "policy": "deduplication", "value": False}
    assert done(
        "namespaces", "policy", "set", namespace, "schema_compatibility_strategy", "backward-transitive"
    ).lines == [f"policy schema_compatibility_strategy of {namespace} is BACKWARD_TRANSITIVE"]
    assert done("topics", "policy", "get", topic, "--applied", "--output", "json").json == {
        **{name: policy.default for name, policy in POLICIES.items() if not policy.of_cluster},
        "replication_clusters": [],
        "deduplication": False,
        "schema_compatibility_strategy": "BACKWARD_TRANSITIVE",
    }
    sideways = refused("topics", "policy", "set", topic, "schema_compatibility_strategy", "sideways").err
    assert "takes one of UNDEFINED, ALWAYS_INCOMPATIBLE" in sideways
    assert done("topics", "policy", "remove", topic, "deduplication").lines == [
        f"removed policy deduplication of {topic}"
    ]
    assert done("topics", "policy", "get", topic, "deduplication", "--output", "json").json is None
    assert "did you mean deduplication" in refused("topics", "policy", "set", topic, "deduplicate", "true").err
    assert "takes true or false, got 'on'" in refused("topics", "policy", "set", topic, "deduplication", "on").err
    assert "does not exist" in refused("namespaces", "policy", "get", f"{namespace}x").err
