"""The registry of clusters: what it takes, and that it never holds a secret."""

from __future__ import annotations

import pytest

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.clock import SystemClock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.metadata.clusters import REGISTRY_KEYS, Clusters, check_replication_clusters
from pulsar_on_kafka.broker.metadata.entities import Entities
from pulsar_on_kafka.broker.metadata.policies import REPLICATION_CLUSTERS, applied, with_policy
from pulsar_on_kafka_mapping.errors import CorruptRecord
from pulsar_on_kafka_mapping.state.clusters.cluster_registry import (
    ClusterAddress,
    ClusterRegistry,
    decode_clusters,
    encode_clusters,
)
from pulsar_on_kafka_mapping.state.state_topics import NAMESPACES
from tests.memory_log import MemoryStateLog

US = ClusterAddress("kafka://us:9092", {"client.rack": "a"})


@pytest.fixture
def soon() -> Deadline:
    return Deadline.after(10)


@pytest.fixture
def clusters() -> Clusters:
    return Clusters(Entities(MemoryStateLog(), NAMESPACES, REGISTRY_KEYS, SystemClock()))


def test_clusters_are_made_changed_and_forgotten(clusters: Clusters, soon: Deadline) -> None:
    assert clusters.registry(soon) == ClusterRegistry()
    for _ in range(2):
        clusters.create("us", US, soon)
    with pytest.raises(errors.AlreadyExists, match="us exists already, at kafka://us:9092"):
        clusters.create("us", ClusterAddress("kafka://other:9092"), soon)
    moved = ClusterAddress("kafka://other:9092")
    clusters.update("us", moved, soon)
    assert clusters.registry(soon).clusters == {"us": moved}
    with pytest.raises(errors.NoSuchCluster, match="no cluster 'asia'; there are: us"):
        clusters.update("asia", US, soon)
    with pytest.raises(errors.NoSuchCluster, match="no cluster 'asia'"):
        clusters.delete("asia", soon)
    clusters.delete("us", soon)
    assert not clusters.registry(soon).clusters


def test_the_local_name_is_given_once(clusters: Clusters, soon: Deadline) -> None:
    clusters.create("eu", US, soon)
    assert clusters.registry(soon).remote("eu") == US
    clusters.name_local("eu", soon)
    clusters.name_local("eu", soon)
    assert clusters.registry(soon).remote("eu") is None
    with pytest.raises(errors.Refused, match="called eu, and cannot become us"):
        clusters.name_local("us", soon)


@pytest.mark.parametrize(
    "option",
    ["sasl.password", "ssl.key.password", "ssl.key.pem", "sasl.oauthbearer.client.secret", "sasl.oauthbearer.config"],
)
def test_a_secret_is_refused_by_name_and_not_shown(clusters: Clusters, soon: Deadline, option: str) -> None:
    with pytest.raises(errors.InvalidOption, match=option) as refused:
        clusters.create("us", ClusterAddress("kafka://us:9092", {option: "hush"}), soon)
    assert "hush" not in str(refused.value)


@pytest.mark.parametrize("name", ["", "a b", "a/b", "ä", "a" * 101])
def test_names(clusters: Clusters, soon: Deadline, name: str) -> None:
    with pytest.raises(errors.InvalidOption, match="a cluster is named by"):
        clusters.create(name, US, soon)


def test_what_cannot_be_read_is_corrupt() -> None:
    registry = ClusterRegistry("eu", {"us": US, "asia": ClusterAddress("kafka://asia:9092", instance="acme")})
    assert decode_clusters(encode_clusters(registry)) == registry
    wrong = ClusterRegistry("eu", {"us": ClusterAddress("kafka://us:9092", instance="A")})
    for value in (encode_clusters(wrong), b"x", b"[]", b'{"v":2}', b'{"v":1,"local":"a","clusters":{"b":{}}}'):
        with pytest.raises(CorruptRecord):
            decode_clusters(value)


def test_an_address_that_was_written_before_there_were_instances_has_none() -> None:
    old = b'{"v":1,"local":"eu","clusters":{"us":{"service_url":"kafka://us:9092","kafka_config":{"client.rack":"a"}}}}'
    assert decode_clusters(old) == ClusterRegistry("eu", {"us": US})


def test_the_policy_names_registered_clusters() -> None:
    known = ClusterRegistry("eu", {"us": US})
    check_replication_clusters(["eu", "us"], known)
    with pytest.raises(errors.InvalidOption, match="names asia, which is not registered"):
        check_replication_clusters(["us", "asia"], known)
    with pytest.raises(errors.InvalidOption, match="no name yet"):
        check_replication_clusters(["us"], ClusterRegistry("", {"us": US}))


def test_the_policy_is_a_list_of_names() -> None:
    assert REPLICATION_CLUSTERS.parse("eu, us,eu") == ["eu", "us"]
    assert REPLICATION_CLUSTERS.parse("") == []
    assert with_policy({}, "replication_clusters", ("eu", "us")) == {"replication_clusters": ["eu", "us"]}
    for wrong in ("eu", [1], [""], None):
        with pytest.raises(errors.InvalidOption, match="takes names between ','"):
            with_policy({}, "replication_clusters", wrong)
    own: dict[str, object] = {"replication_clusters": []}
    assert applied(REPLICATION_CLUSTERS, own, {"replication_clusters": ["us"]}) == []
    assert applied(REPLICATION_CLUSTERS, {}, {"replication_clusters": ["us"]}) == ["us"]
