"""A read tells Spark's Kafka source how to reach the cluster."""

from __future__ import annotations

import pytest

from pulsar_on_kafka_mapping.state.instances import INSTANCE_VARIABLE
from pulsar_on_kafka_spark.base.errors import InvalidReadOption
from pulsar_on_kafka_spark.options.read_options import parse_options
from pulsar_on_kafka_spark.reading.connection import executor_options, node_of


def test_executors_get_the_cluster_and_their_own_options() -> None:
    options = parse_options({"service.url": "kafka://a:1,b:2", "topic": "t", "kafka.max.poll.records": 10})
    assert executor_options(options) == {
        "kafka.bootstrap.servers": "a:1,b:2",
        "kafka.max.poll.records": "10",
        "kafka.max.partition.fetch.bytes": "4194304",
        "kafka.fetch.max.wait.ms": "10",
    }


def test_tls_has_to_be_said_to_executors_in_their_own_words() -> None:
    options = parse_options({"service.url": "kafka+ssl://a:1", "topic": "t"})
    with pytest.raises(InvalidReadOption, match=r"expected kafka\.security\.protocol"):
        executor_options(options)


@pytest.mark.parametrize(
    ("url", "driver", "said"),
    [
        ("pulsar://a:6650", {}, "this client speaks to Kafka"),
        ("kafka://a:1", {"driver.group.id": "x"}, "may not set group.id"),
        ("kafka://a:1", {"POK_INSTANCE": "A"}, "POK_INSTANCE: instance is 'A', expected 1 to 40"),
    ],
)
def test_what_no_node_can_be_made_of_is_refused_before_anything_is_asked(
    url: str, driver: dict[str, str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if INSTANCE_VARIABLE in driver:
        monkeypatch.setenv(INSTANCE_VARIABLE, driver.pop(INSTANCE_VARIABLE))
    options = parse_options({"service.url": url, "topic": "t", **driver})
    with pytest.raises(InvalidReadOption, match=said), node_of(options):
        pass
