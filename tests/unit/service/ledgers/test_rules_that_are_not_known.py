"""The rules of retention have to be known before anything goes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import NoSuchNamespace, NotAuthorized
from pulsar_on_kafka.broker.managed_ledger.ledger_list_update import LogRange
from pulsar_on_kafka.broker.managed_ledger.owner import TopicLogs
from pulsar_on_kafka.broker.metadata.policies import Policy
from pulsar_on_kafka.service.ledgers.log_use import KafkaLogUse
from pulsar_on_kafka_mapping.ids.ledger_ids import LedgerLayout
from pulsar_on_kafka_mapping.names.topic_name import TopicName

NEVER = Deadline.never()


def _use(policies: Any) -> KafkaLogUse:
    def applied_to(topics: dict[TopicName, TopicLogs], policy: Policy, _deadline: Deadline) -> dict[TopicName, int]:
        return dict.fromkeys(topics, policy.default)

    services: Any = SimpleNamespace(namespaces=SimpleNamespace(policies=policies), applied_to=applied_to)
    return KafkaLogUse(services, lambda *_: {})


def _topic(name: str, *, bound: bool = False) -> TopicLogs:
    return TopicLogs(f"persistent://{name}", name, LedgerLayout(1), {0: LogRange(0, 7)}, bound)


def test_nothing_goes_while_the_policies_of_namespaces_may_not_be_read() -> None:
    def forbidden(namespace: str, _deadline: Deadline) -> None:
        raise NotAuthorized(f"Read on {namespace}")

    with pytest.raises(NotAuthorized):
        _use(forbidden).rules([_topic("a/b/c")], NEVER)


def test_what_is_bound_or_of_no_namespace_is_left_alone() -> None:
    def policies(namespace: str, _deadline: Deadline) -> dict[str, Any]:
        if namespace == "gone/away":
            raise NoSuchNamespace(namespace)
        return {}

    found = _use(policies).rules([_topic("a/b/c"), _topic("gone/away/c"), _topic("a/b/d", bound=True)], NEVER)
    assert list(found) == ["persistent://a/b/c"]
    assert found["persistent://a/b/c"][0].first_young == 7
