"""Transactions: may this user begin them and serve their coordinators, and does anybody serve them now?"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.cli.doctor.cluster import ANSWER_S
from pulsar_on_kafka.cli.doctor.report import Finding, ok, warn
from pulsar_on_kafka.cli.shared.failure import one_line
from pulsar_on_kafka.kafka.admin import KafkaAdmin
from pulsar_on_kafka.mapping.state.instances import Instance
from pulsar_on_kafka.mapping.state.state_topics import (
    TRANSACTION_BUFFER_SNAPSHOT,
    TRANSACTION_COORDINATOR_ASSIGN,
    TRANSACTION_LOG,
    TRANSACTION_PENDING_ACK,
    TRANSACTION_REQUESTS,
    StateTopic,
)
from pulsar_on_kafka.transactions.serving.coordinators import coordinators_group

BEGINNING: Final[Mapping[StateTopic, frozenset[str]]] = {
    TRANSACTION_REQUESTS: frozenset({"Read", "Write"}),
    TRANSACTION_LOG: frozenset({"Read"}),
    TRANSACTION_BUFFER_SNAPSHOT: frozenset({"Read", "Write"}),
    TRANSACTION_PENDING_ACK: frozenset({"Read", "Write"}),
}
"""What a program with transactions needs that serves no coordinator (docs/acls.md)."""

SERVING: Final[Mapping[StateTopic, frozenset[str]]] = {
    TRANSACTION_COORDINATOR_ASSIGN: frozenset({"Read"}),
    TRANSACTION_LOG: frozenset({"Write"}),
}
"""What it needs besides to serve coordinators; and Read on their group."""


def check_transactions(admin: KafkaAdmin, instance: Instance) -> Iterator[Finding]:
    """One line for beginning them, one for serving."""
    group = coordinators_group(instance)
    try:
        names = [instance.state_topic(topic) for topic in {**BEGINNING, **SERVING}]
        allowed = admin.allowed_on_topics(names, Deadline.after(ANSWER_S))
        on_group = admin.allowed_on_group(group, Deadline.after(ANSWER_S))
        members = len(admin.describe_group(group, Deadline.after(ANSWER_S)).members) if on_group else None
    except errors.LayerError as failure:
        yield warn("transactions", one_line(failure), f"grant Describe on topics {instance.prefix}*")
        return
    yield from judge_transactions(instance, allowed, on_group, members)


def judge_transactions(
    instance: Instance, allowed: Mapping[str, Collection[str]], on_group: Collection[str], members: int | None
) -> Iterator[Finding]:
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
    served = "" if members is None else f", now served by {members} process{'' if members == 1 else 'es'}"
    if not missing:
        yield ok("transactions", f"this user may begin them and serve coordinators{served}")
    elif members == 0:
        found = f"nobody serves coordinators, and this user may not: missing is {', '.join(missing)}"
        yield warn("transactions", found, _GRANT)
    else:
        yield ok("transactions", f"this user may begin them, but not serve coordinators{served}")


_GRANT: Final = "see docs/acls.md, Transactions"


def _missing(
    instance: Instance, needed: Mapping[StateTopic, frozenset[str]], allowed: Mapping[str, Collection[str]]
) -> list[str]:
    """Rights that are missing in topics that are there."""
    return [
        f"{operation} on topic {kafka_name}"
        for kafka_name, operations in ((instance.state_topic(topic), wanted) for topic, wanted in needed.items())
        for operation in sorted(operations)
        if kafka_name in allowed and operation not in allowed[kafka_name]
    ]
