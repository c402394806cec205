"""The metadata of triggers, and the backlog that they select."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pulsar_on_kafka.base.errors import InvalidOption, NoLeaderNow
from pulsar_on_kafka.scaler.backlog import Backlogs, MeasuredBacklog, may_wait, measured
from pulsar_on_kafka.scaler.trigger import Trigger, parse_trigger
from tests.overviews import PARTITION, TOPIC, overview, stuck, subscription


def test_a_trigger_has_defaults_and_full_names() -> None:
    assert parse_trigger({"topic": "orders", "subscription": "billing"}) == Trigger("billing", TOPIC)


def test_kedas_own_metadata_and_values_of_the_environment_are_taken() -> None:
    given = {"scalerAddress": "scaler:9467", "enableTLS": "true", "topicFromEnv": "orders", "subscription": "billing"}
    assert parse_trigger(given).topic == TOPIC


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({}, "metadata has none of topic, namespace and topicsPattern, expected one of topic, namespace and"),
        ({"topic": "a", "namespace": "b/c"}, "metadata has topic and namespace, expected one of"),
        ({"topic": "a", "topicFromEnv": "b"}, "metadata has topic and topicFromEnv, expected one of them"),
        ({"topic": "a"}, "metadata subscription is 'missing', expected a name"),
        ({"topic": "a", "subscription": " "}, "metadata subscription is '', expected a name"),
        ({"topic": "a/b"}, "metadata topic is 'a/b', expected the name of a topic: "),
        ({"topic": "a-partition-1"}, "metadata topic is 'a-partition-1', expected the whole topic, persistent://publ"),
        (
            {"topic": "non-persistent://a/b/c"},
            "metadata topic is 'non-persistent://a/b/c', expected a persistent topic",
        ),
        ({"namespace": "acme"}, "metadata namespace is 'acme', expected tenant/namespace"),
        (
            {"namespace": "persistent://acme/sales"},
            "metadata namespace is 'persistent://acme/sales', expected tenant/n",
        ),
        ({"topicsPattern": "acme/sales/(a|b)"}, r"metadata topicsPattern is 'acme/sales/\(a|b\)', expected a pattern"),
        ({"topicsPattern": "orders-.*"}, "metadata topicsPattern is 'orders-.*', expected a pattern such as public/de"),
        ({"backlogPerReplica": "0"}, "metadata backlogPerReplica is '0', expected a whole number from 1 to 1,000,000,"),
        ({"backlogPerReplica": "1e3"}, "metadata backlogPerReplica is '1e3', expected a whole number from 1 to"),
        ({"backlogPerReplica": "9" * 400}, "metadata backlogPerReplica is '9{90,99}, expected a whole number"),
        ({"activationBacklog": "-1"}, "metadata activationBacklog is '-1', expected a whole number from 0 to"),
        ({"includeDelayed": ""}, "metadata includeDelayed is '', expected true or false"),
        ({"maxByPartitions": "yes"}, "metadata maxByPartitions is 'yes', expected true or false"),
        ({"backlogPerReplika": "1"}, "unknown metadata 'backlogPerReplika'; did you mean backlogPerReplica?"),
        ({"lagThreshold": "1"}, "unknown metadata 'lagThreshold'; there are: topic, namespace, topicsPattern, subsc"),
    ],
)
def test_what_is_wrong_is_named_with_its_value(given: dict[str, str], reason: str) -> None:
    place = (
        {} if not given or any(each in given for each in ("topic", "namespace", "topicsPattern")) else {"topic": "a"}
    )
    name = {} if given == {"topic": "a"} else {"subscription": "billing"}
    with pytest.raises(InvalidOption, match=reason):
        parse_trigger({**place, **name, **given})


def test_partitions_limit_what_is_reported_but_not_whether_it_is_active() -> None:
    trigger = replace(parse_trigger({"topic": "orders", "subscription": "billing"}), max_by_partitions=True)
    measured = MeasuredBacklog(entries=1000, partitions=3)
    assert measured.reported(trigger) == 30
    assert measured.reported(replace(trigger, max_by_partitions=False)) == 1000
    assert measured.is_active(replace(trigger, activation=999))
    assert not measured.is_active(replace(trigger, activation=1000))


@pytest.mark.parametrize(
    ("row", "more"),
    [
        (subscription(missing_partitions=1), {}),
        (replace(subscription(), partitions=(PARTITION, replace(PARTITION, seen_ms=PARTITION.seen_ms - 1))), {}),
        (subscription("other"), {"metadata_failures": ("pulsar.system.topics: its end is not known now",)}),
    ],
)
def test_no_number_is_reported_that_could_be_too_small(row: Any, more: dict[str, Any]) -> None:
    trigger = parse_trigger({"topic": "orders", "subscription": "billing"})
    with pytest.raises(NoLeaderNow, match="known"):
        Backlogs(overview(row, **more)).selected(trigger)
    assert measured(Backlogs(overview(stuck(backlog=7))).selected(trigger), {}) == MeasuredBacklog(7, 1)


def test_delayed_messages_wait_on_shared_subscriptions_alone() -> None:
    assert may_wait(stuck(type="Key_Shared"))
    assert not may_wait(stuck(type="Failover"))
    assert not may_wait(subscription())
    assert measured([stuck(backlog=7), stuck(topic=f"{TOPIC}-2", backlog=5)], {TOPIC: 3}) == MeasuredBacklog(8, 2)
