"""This cluster: its reachability and latency, its settings and state topics, and this user's rights for
transactions."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.text import counted
from pulsar_on_kafka.broker.transactions.serving.coordinators import coordinators_group
from pulsar_on_kafka.cli.shared.connection import require_listener
from pulsar_on_kafka.cli.shared.output import CommandFailed, one_line
from pulsar_on_kafka.kafka.admin import KafkaAdmin
from pulsar_on_kafka.kafka.groups.membership import MAX_COMMIT_BYTES
from pulsar_on_kafka.kafka.settings import SESSION_TIMEOUT_MS
from pulsar_on_kafka.statelog.kafka_log import keeps
from pulsar_on_kafka_mapping.state.cursors.cursor_state import MAX_METADATA_CHARS
from pulsar_on_kafka_mapping.state.instances import Instance
from pulsar_on_kafka_mapping.state.state_topics import (
    ALL,
    TRANSACTION_BUFFER_SNAPSHOT,
    TRANSACTION_COORDINATOR_ASSIGN,
    TRANSACTION_LOG,
    TRANSACTION_PENDING_ACK,
    TRANSACTION_REQUESTS,
    StateTopic,
)


class Status(str, Enum):
    """`warn` costs speed or comfort, or could not be looked at; with `fail` something will not work."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class DoctorFinding:
    """One line of the doctor's report. `advice` is '' where nothing is to be done."""

    check: str
    status: Status
    found: str
    advice: str = ""


def ok(check: str, found: str) -> DoctorFinding:
    return DoctorFinding(check, Status.OK, found)


def warn(check: str, found: str, advice: str) -> DoctorFinding:
    return DoctorFinding(check, Status.WARN, found, advice)


def fail(check: str, found: str, advice: str) -> DoctorFinding:
    return DoctorFinding(check, Status.FAIL, found, advice)


def judge(check: str, good: bool, found: str, advice: str, otherwise: Status = Status.WARN) -> DoctorFinding:
    """`ok` when it is good; else `otherwise`, with the advice."""
    return ok(check, found) if good else DoctorFinding(check, otherwise, found, advice)


def advice(failure: errors.LayerError, grant: str) -> str:
    """The advice for a failed request: `grant` where Kafka reported a missing right."""
    if isinstance(failure, errors.NotAuthorized):
        return grant
    if isinstance(failure, (errors.NoCoordinatorNow, errors.NoLeaderNow, errors.DeadlineExceeded)):
        return "Kafka is not ready for that yet, as just after its start: retry in a minute"
    return "the broker's log may contain more"


CONNECT_S: Final = 5.0
ANSWER_S: Final = 10.0
WEEK_MINUTES: Final = 7 * 24 * 60
KAFKA_DEFAULT_MESSAGE_BYTES: Final = 1_048_588
_SLOW_MS: Final = 50.0
_ROUND_TRIPS: Final = 5


@dataclass(frozen=True, slots=True)
class SettingRule:
    """Rule for a broker's setting: its good values, and the advice for others. An absent setting is not judged."""

    name: str
    good: Callable[[str], bool]
    advice: str
    otherwise: Status = Status.WARN


SETTING_RULES: Final = (
    SettingRule(
        "group.initial.rebalance.delay.ms",
        lambda value: int(value) == 0,
        "the first consumer of each subscription waits so long: set it to 0",
    ),
    SettingRule(
        "group.min.session.timeout.ms",
        lambda value: int(value) <= SESSION_TIMEOUT_MS,
        f"consumers request {SESSION_TIMEOUT_MS} and are refused: set it to {SESSION_TIMEOUT_MS} at most",
        Status.FAIL,
    ),
    SettingRule(
        "group.max.session.timeout.ms",
        lambda value: int(value) >= SESSION_TIMEOUT_MS,
        f"consumers request {SESSION_TIMEOUT_MS} and are refused: set it to {SESSION_TIMEOUT_MS} at least",
        Status.FAIL,
    ),
    SettingRule(
        "offset.metadata.max.bytes",
        lambda value: int(value) > MAX_METADATA_CHARS,
        "commits that carry acknowledged holes are refused: set it to 4096 at least",
        Status.FAIL,
    ),
    SettingRule(
        "offsets.retention.minutes",
        lambda value: int(value) >= WEEK_MINUTES,
        "idle subscriptions go back to their last checkpoint after so long: set it to 2147483647",
    ),
    SettingRule(
        "message.max.bytes",
        lambda value: int(value) >= MAX_COMMIT_BYTES + 65_536,
        f"commits of up to {MAX_COMMIT_BYTES:,} bytes are refused: set it to {KAFKA_DEFAULT_MESSAGE_BYTES} at least",
        Status.FAIL,
    ),
    SettingRule(
        "auto.create.topics.enable",
        lambda value: value.lower() == "false",
        "a mistyped name of a Kafka topic makes one, which then stays: set it to false",
    ),
)


def check_reachable(admin: KafkaAdmin, bootstrap: str) -> DoctorFinding:
    """Whether the cluster replies, and how long one request takes."""
    try:
        require_listener(bootstrap)
        cluster_id = admin.cluster_id(Deadline.after(CONNECT_S))
        took_ms = min(_timed_ms(admin) for _ in range(_ROUND_TRIPS))
    except CommandFailed as refused:
        return fail("reachable", *str(refused).split("; ", 1))
    except errors.NotAuthenticated as refused:
        return fail("reachable", one_line(refused), "name the credentials with --kafka-config")
    except errors.LayerError as failure:
        return fail(
            "reachable",
            f"{bootstrap} takes connections, but: {one_line(failure)}",
            "is it a Kafka listener, does it require TLS or a login (--kafka-config security.protocol=...), is the "
            "password right?",
        )
    return judge(
        "reachable",
        took_ms <= _SLOW_MS,
        f"{bootstrap}, cluster {cluster_id}, {took_ms:.1f} ms a round trip",
        "every synchronous send and every admin call waits for some: run nearer to the cluster",
    )


def check_settings(admin: KafkaAdmin) -> Iterator[DoctorFinding]:
    """The broker's version and settings, as far as this user may read them."""
    try:
        configs = admin.broker_configs(Deadline.after(ANSWER_S))
    except errors.DeadlineExceeded as late:
        yield fail(
            "broker settings", one_line(late), "the address that the broker advertises must be reachable from here"
        )
        return
    except errors.LayerError as failure:
        yield warn("broker settings", one_line(failure), advice(failure, "grant DescribeConfigs on the cluster"))
        return
    yield check_version(configs)
    yield from judge_settings(configs)


def check_version(configs: Mapping[str, str]) -> DoctorFinding:
    protocol = configs.get("inter.broker.protocol.version")  # Kafka 4 has none any more
    if protocol is None:
        return ok("broker version", "4.0 or later")
    return warn("broker version", protocol, "tested is Kafka 4: update")


def judge_settings(configs: Mapping[str, str]) -> Iterator[DoctorFinding]:
    """One line for each rule whose setting is there."""
    for rule in SETTING_RULES:
        value = configs.get(rule.name)
        if value is None:
            continue
        try:
            yield judge(rule.name, rule.good(value), value, rule.advice, rule.otherwise)
        except ValueError:
            yield warn(rule.name, f"{value} is no number", "contact the cluster's operator")


def check_state_topics(admin: KafkaAdmin, instance: Instance) -> Iterator[DoctorFinding]:
    """Partitions and clean-up of every state topic; one line for all that are well or not there yet."""
    try:
        there = admin.list_topics(Deadline.after(ANSWER_S))
    except errors.LayerError as failure:
        yield warn("state topics", one_line(failure), advice(failure, f"grant Describe on topics {instance.prefix}*"))
        return
    names = {topic: instance.state_topic(topic) for topic in ALL}
    present = {topic: name for topic, name in names.items() if name in there}
    unseen = [name for name in names.values() if name not in there]
    if unseen and (hidden := _hidden(admin, unseen[0])):
        yield fail("state topics", hidden, f"grant Create, Describe, Read and Write on topics {instance.prefix}*")
        return
    findings = [_check_state_topic(admin, topic, name, there[name]) for topic, name in present.items()]
    yield from (finding for finding in findings if finding.status is not Status.OK)
    sound = sum(finding.status is Status.OK for finding in findings)
    yield ok("state topics", f"{sound} as they should be, {len(unseen)} that first use will make")


def _hidden(admin: KafkaAdmin, kafka_name: str) -> str:
    """Why a topic that no listing shows may be there all the same; '' when it is not there."""
    try:
        admin.describe_topic(kafka_name, Deadline.after(ANSWER_S))
    except errors.LayerError as failure:
        return one_line(failure)
    return ""


def _check_state_topic(admin: KafkaAdmin, topic: StateTopic, kafka_name: str, partitions: int) -> DoctorFinding:
    check = f"state topic {topic.name}"
    if not topic.partitions <= partitions <= topic.max_partitions:
        return fail(
            check,
            f"{kafka_name} has {counted(partitions, 'partition')}, not {topic.partitions}",
            "ids are made from the number: restore the topic as it was",
        )
    try:
        configs = admin.topic_configs(kafka_name, Deadline.after(ANSWER_S))
    except errors.LayerError as failure:
        return warn(check, one_line(failure), advice(failure, f"grant DescribeConfigs on topic {kafka_name}"))
    return judge_state_topic(topic, kafka_name, configs, partitions)


def judge_state_topic(topic: StateTopic, kafka_name: str, configs: Mapping[str, str], partitions: int) -> DoctorFinding:
    """The finding about the configuration that Kafka shows; a hidden option is not judged, except `cleanup.policy`."""
    check = f"state topic {topic.name}"
    cleanup = configs.get("cleanup.policy", "")
    if cleanup != topic.cleanup.value:
        return fail(
            check,
            f"cleanup.policy of {kafka_name} is {cleanup}, not {topic.cleanup.value}",
            _alter(kafka_name, "cleanup.policy", topic.cleanup.value),
        )
    largest, requested = configs.get("max.message.bytes", ""), topic.configs["max.message.bytes"]
    if largest.isdigit() and int(largest) < int(requested):
        return warn(
            check,
            f"max.message.bytes of {kafka_name} is {largest}, as an earlier version made it, not {requested}",
            _alter(kafka_name, "max.message.bytes", requested),
        )
    for option, why in _PROMISES.items():
        value, needed = configs.get(option), topic.configs.get(option)
        if value is not None and needed is not None and not keeps(needed, value):
            return fail(
                check, f"{option} of {kafka_name} is {value}, not {needed}: {why}", _alter(kafka_name, option, needed)
            )
    return ok(check, f"{counted(partitions, 'partition')}, {cleanup}")


_PROMISES: Final = {
    "min.compaction.lag.ms": "who reads while it compacts may take a loser for the winner",
    "message.timestamp.type": "a process whose clock is wrong decides how old its records are",
}


def _alter(kafka_name: str, option: str, value: str) -> str:
    return f"kafka-configs --alter --topic {kafka_name} --add-config {option}={value}"


def _timed_ms(admin: KafkaAdmin) -> float:
    start = time.perf_counter()
    admin.cluster_id(Deadline.after(CONNECT_S))
    return (time.perf_counter() - start) * 1000


BEGINNING: Final[Mapping[StateTopic, frozenset[str]]] = {
    TRANSACTION_REQUESTS: frozenset({"Read", "Write"}),
    TRANSACTION_LOG: frozenset({"Read"}),
    TRANSACTION_BUFFER_SNAPSHOT: frozenset({"Read", "Write"}),
    TRANSACTION_PENDING_ACK: frozenset({"Read", "Write"}),
}
"""Rights of a program with transactions that serves no coordinator (docs/acls.md)."""

SERVING: Final[Mapping[StateTopic, frozenset[str]]] = {
    TRANSACTION_COORDINATOR_ASSIGN: frozenset({"Read"}),
    TRANSACTION_LOG: frozenset({"Write"}),
}
"""Additional rights for serving coordinators, besides Read on their group."""


def check_transactions(admin: KafkaAdmin, instance: Instance) -> Iterator[DoctorFinding]:
    """One line for beginning them, one for serving."""
    group = coordinators_group(instance)
    try:
        names = [instance.state_topic(topic) for topic in {**BEGINNING, **SERVING}]
        allowed = admin.access.allowed_on_topics(names, Deadline.after(ANSWER_S))
        on_group = admin.access.allowed_on_group(group, Deadline.after(ANSWER_S))
        members = len(admin.describe_group(group, Deadline.after(ANSWER_S)).members) if on_group else None
    except errors.LayerError as failure:
        yield warn("transactions", one_line(failure), advice(failure, f"grant Describe on topics {instance.prefix}*"))
        return
    yield from judge_transactions(instance, allowed, on_group, members)


def judge_transactions(
    instance: Instance, allowed: Mapping[str, Collection[str]], on_group: Collection[str], members: int | None
) -> Iterator[DoctorFinding]:
    """`allowed`: what may be done with the state topics that are there; `members`: processes that serve coordinators,
    None where that may not be seen."""
    if not allowed:
        yield ok("transactions", "never used on this cluster: the first program with transactions makes their topics")
        return
    missing = _missing(instance, BEGINNING, allowed)
    if missing:
        yield warn("transactions", f"programs of this user cannot use them: missing is {', '.join(missing)}", _GRANT)
        return
    missing = _missing(instance, SERVING, allowed)
    if "Read" not in on_group:
        missing.append(f"Read on group {coordinators_group(instance)}")
    served = "" if members is None else f", now served by {counted(members, 'process', 'processes')}"
    if not missing:
        yield ok("transactions", f"this user may begin them and serve coordinators{served}")
    elif members == 0:
        found = f"no process serves coordinators, and this user may not: missing is {', '.join(missing)}"
        yield warn("transactions", found, _GRANT)
    else:
        yield ok("transactions", f"this user may begin them, but not serve coordinators{served}")


_GRANT: Final = "see docs/acls.md, Transactions"


def _missing(
    instance: Instance, needed: Mapping[StateTopic, frozenset[str]], allowed: Mapping[str, Collection[str]]
) -> list[str]:
    return [
        f"{operation} on topic {kafka_name}"
        for kafka_name, operations in ((instance.state_topic(topic), requested) for topic, requested in needed.items())
        for operation in sorted(operations)
        if kafka_name in allowed and operation not in allowed[kafka_name]
    ]
