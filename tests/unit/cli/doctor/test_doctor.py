"""The doctor judges what it finds."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from pulsar_on_kafka.base.processes import SERVICE, STAND_IN
from pulsar_on_kafka.cli.doctor.cluster import (
    BEGINNING,
    SERVING,
    SETTING_RULES,
    Status,
    advice,
    check_version,
    judge_settings,
    judge_state_topic,
    judge_transactions,
)
from pulsar_on_kafka.cli.doctor.command import check_librdkafka, check_open_files, check_subscriptions, judge_members
from pulsar_on_kafka.cli.doctor.probe import Sent, judge_clock
from pulsar_on_kafka.cli.doctor.state import format_of
from pulsar_on_kafka.embedded.settings import common_properties
from pulsar_on_kafka.kafka.errors import translate
from pulsar_on_kafka.kafka.settings import KafkaSettings
from pulsar_on_kafka_mapping.state.instances import Instance
from pulsar_on_kafka_mapping.state.state_topics import SCHEMAS


@pytest.mark.parametrize(
    ("name", "value", "status"),
    [
        ("group.initial.rebalance.delay.ms", "0", Status.OK),
        ("group.initial.rebalance.delay.ms", "3000", Status.WARN),
        ("group.min.session.timeout.ms", "6000", Status.OK),
        ("group.min.session.timeout.ms", "6001", Status.FAIL),
        ("group.max.session.timeout.ms", "5000", Status.FAIL),
        ("offset.metadata.max.bytes", "4096", Status.OK),
        ("offset.metadata.max.bytes", "4095", Status.FAIL),
        ("offsets.retention.minutes", "10080", Status.OK),
        ("offsets.retention.minutes", "1440", Status.WARN),
        ("message.max.bytes", "1048588", Status.OK),
        ("message.max.bytes", "100000", Status.FAIL),
        ("auto.create.topics.enable", "false", Status.OK),
        ("auto.create.topics.enable", "true", Status.WARN),
        ("message.max.bytes", "lots", Status.WARN),
    ],
)
def test_settings_are_judged(name: str, value: str, status: Status) -> None:
    (finding,) = judge_settings({name: value})
    assert (finding.check, finding.status) == (name, status)
    assert (finding.advice == "") == (status is Status.OK)


def test_a_setting_that_is_not_shown_is_not_judged() -> None:
    assert list(judge_settings({})) == []


def test_our_own_broker_is_well() -> None:
    findings = list(judge_settings(common_properties()))
    assert findings
    assert {finding.status for finding in findings} == {Status.OK}
    assert len({rule.name for rule in SETTING_RULES}) == len(SETTING_RULES)


SCHEMAS_IN_KAFKA = Instance().state_topic(SCHEMAS)


@pytest.mark.parametrize(
    ("configs", "status", "said"),
    [
        ({"cleanup.policy": "compact"}, Status.OK, "8 partitions, compact"),
        ({"cleanup.policy": "compact", "max.message.bytes": "5767168"}, Status.OK, "8 partitions, compact"),
        (
            {"cleanup.policy": "compact", "max.message.bytes": "1048588"},
            Status.WARN,
            "is 1048588, as an earlier version",
        ),
        ({"cleanup.policy": "delete", "max.message.bytes": "1048588"}, Status.FAIL, "is delete, not compact"),
    ],
)
def test_the_state_topic_of_schemas_is_judged(configs: dict[str, str], status: Status, said: str) -> None:
    finding = judge_state_topic(SCHEMAS, SCHEMAS_IN_KAFKA, configs, SCHEMAS.partitions)
    assert (finding.check, finding.status) == ("state topic schemas", status)
    assert said in finding.found
    if status is Status.WARN:
        assert finding.advice.endswith("--topic pulsar.system.schemas --add-config max.message.bytes=5767168")


def test_kafka_3_is_not_what_is_tested() -> None:
    assert check_version({}).status is Status.OK
    assert check_version({"inter.broker.protocol.version": "3.9-IV0"}).status is Status.WARN


def test_few_open_files_are_a_warning() -> None:
    assert check_open_files(1024, 4096).status is Status.WARN
    assert "128 readers" in check_open_files(1024, -1).advice
    assert check_open_files(65_536, -1).status is Status.OK
    assert check_open_files(-1, -1).status is Status.OK


@pytest.mark.parametrize(
    ("version", "status"), [("2.16.0", Status.OK), ("2.15.9", Status.WARN), ("3.0.0rc1", Status.OK)]
)
def test_an_old_librdkafka_is_a_warning(version: str, status: Status) -> None:
    assert check_librdkafka(version).status is status


@pytest.mark.parametrize(
    ("stamped_ms", "status"),
    [
        (1005, Status.OK),  # between sending and answer: nothing is known to be wrong
        (1510, Status.OK),
        (3000, Status.WARN),
        (-3000, Status.WARN),
        (100_000, Status.FAIL),
        (-100_000, Status.FAIL),
    ],
)
def test_the_brokers_clock_is_judged(stamped_ms: int, status: Status) -> None:
    finding = judge_clock(Sent(before_ms=1000, after_ms=1010), stamped_ms)
    assert finding.status is status
    if status is not Status.OK:
        assert ("ahead of" if stamped_ms > 0 else "behind") in finding.found


ALL_RIGHTS = {Instance().state_topic(topic): {"Read", "Write", "Describe"} for topic in {**BEGINNING, **SERVING}}
LOG = "pulsar.system.__transaction_log"
GROUP = "pulsar.system.transaction_coordinator_assign/coordinators"


@pytest.mark.parametrize(
    ("allowed", "on_group", "members", "status", "said"),
    [
        ({}, set(), None, Status.OK, "never used on this cluster"),
        (ALL_RIGHTS, {"Read"}, 2, Status.OK, "begin them and serve coordinators, now served by 2 processes"),
        (ALL_RIGHTS, {"Describe"}, 1, Status.OK, "but not serve coordinators, now served by 1 process"),
        (ALL_RIGHTS, set(), None, Status.OK, "begin them, but not serve coordinators"),
        (ALL_RIGHTS, {"Describe"}, 0, Status.WARN, f"this user may not: missing is Read on group {GROUP}"),
        ({**ALL_RIGHTS, LOG: {"Read"}}, {"Read"}, 0, Status.WARN, f"missing is Write on topic {LOG}"),
        ({**ALL_RIGHTS, LOG: set()}, {"Read"}, 1, Status.WARN, f"cannot use them: missing is Read on topic {LOG}"),
        ({LOG: {"Read", "Write"}}, {"Read"}, 0, Status.OK, "begin them and serve"),
    ],
)  # fmt: skip
def test_the_rights_for_transactions_are_judged(
    allowed: dict[str, set[str]], on_group: set[str], members: int | None, status: Status, said: str
) -> None:
    (finding,) = judge_transactions(Instance(), allowed, on_group, members)
    assert finding.status is status
    assert said in finding.found
    assert (finding.advice != "") == (status is Status.WARN)


def test_who_maintains_the_cluster_is_told() -> None:
    service, client = f"{SERVICE}-0123456789ab@h:1:1", f"{STAND_IN}-0123456789ab@h:1:1"
    told = [judge_members(members).found for members in ([service, client, service], [service], [client], [])]
    assert told[:3] == ["2 services", "1 service", "no service; 1 client in its stead"]
    assert told[3].startswith("none now: run pok serve")


def test_a_state_topic_that_may_be_compacted_at_once_is_told() -> None:
    sound = {**SCHEMAS.configs}
    assert judge_state_topic(SCHEMAS, SCHEMAS_IN_KAFKA, sound, SCHEMAS.partitions).status is Status.OK
    assert (
        judge_state_topic(SCHEMAS, SCHEMAS_IN_KAFKA, {**sound, "min.compaction.lag.ms": "90000"}, 16).status
        is Status.OK
    )
    for wrong in ({"min.compaction.lag.ms": "0"}, {"message.timestamp.type": "CreateTime"}):
        found = judge_state_topic(SCHEMAS, SCHEMAS_IN_KAFKA, {**sound, **wrong}, SCHEMAS.partitions)
        assert found.status is Status.FAIL
        assert f"--add-config {next(iter(wrong))}={SCHEMAS.configs[next(iter(wrong))]}" in (found.advice or "")


def test_a_record_s_format_is_its_first_byte_or_its_v() -> None:
    assert format_of(b"\x02rest") == 2
    assert format_of(b'{"v":1,"name":"x"}') == 1
    assert [format_of(value) for value in (b"", b"{", b"{}", b'{"v":"1"}', b'{"v":true}')] == [-1] * 5


@pytest.mark.parametrize(
    ("code", "advised"),
    [
        (KafkaError.NOT_COORDINATOR, "Kafka is not ready for that yet, as just after its start: retry in a minute"),
        (KafkaError.COORDINATOR_NOT_AVAILABLE, "Kafka is not ready for that yet"),
        (KafkaError.COORDINATOR_LOAD_IN_PROGRESS, "Kafka is not ready for that yet"),
        (KafkaError.LEADER_NOT_AVAILABLE, "Kafka is not ready for that yet"),
        (KafkaError.GROUP_AUTHORIZATION_FAILED, "grant Describe on groups"),
        (KafkaError.INVALID_REQUEST, "the broker's log may contain more"),
    ],
)
def test_rights_are_asked_for_only_where_kafka_says_that_they_are_missing(code: int, advised: str) -> None:
    assert advice(translate(KafkaError(code), "describing a group"), "grant Describe on groups").startswith(advised)


@pytest.mark.parametrize(
    ("options", "named"),
    [({"client.rack": "a"}, "client.rack"), ({"sasl.mechanisms": "GSSAPI", "security.protocol": "SASL_SSL"}, "GSSAPI")],
)
def test_options_by_which_subscriptions_share_nothing_are_named(options: dict[str, str], named: str) -> None:
    assert check_subscriptions(KafkaSettings("127.0.0.1:1")).status is Status.OK
    found = check_subscriptions(KafkaSettings("127.0.0.1:1", options))
    assert found.status is Status.WARN
    assert named in found.found
    assert "librdkafka" in found.found
