"""The schema policies of a topic: its own ones, its namespace's and the defaults, merged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.metadata.policies import (
    IS_ALLOW_AUTO_UPDATE_SCHEMA,
    SCHEMA_COMPATIBILITY_STRATEGY,
    SCHEMA_VALIDATION_ENFORCED,
    applied,
)
from pulsar_on_kafka.metadata.topics import Topic
from pulsar_on_kafka.registry.model import SchemaPolicies
from pulsar_on_kafka.schema_compat import CompatibilityStrategy


def policies_when_opened(topic: Topic) -> SchemaPolicies | None:
    """The policies that counted when the topic was opened, at no further cost; None when its namespace was not read
    then.

    Raises: as `schema_policies`.
    """
    return None if topic.namespace_policies is None else schema_policies(topic.policies, topic.namespace_policies)


def schema_policies(
    topic: Mapping[str, Any],
    namespace: Mapping[str, Any],
    cluster_default: CompatibilityStrategy = CompatibilityStrategy.UNDEFINED,
) -> SchemaPolicies:
    """The policies that count for a topic with these in a namespace with those.

    Args:
        cluster_default: counts where neither names a strategy; UNDEFINED for Pulsar's own default, FULL.
    Raises:
        Corrupt: somebody wrote a strategy that there is not.
    """
    defaults = {SCHEMA_COMPATIBILITY_STRATEGY.name: cluster_default.name}
    own = SCHEMA_COMPATIBILITY_STRATEGY.undefined
    stated = namespace if namespace.get(SCHEMA_COMPATIBILITY_STRATEGY.name, own) != own else defaults
    name = applied(SCHEMA_COMPATIBILITY_STRATEGY, topic, stated)
    if name not in CompatibilityStrategy.__members__:
        raise errors.Corrupt(f"{SCHEMA_COMPATIBILITY_STRATEGY.name} is {name!r:.60}, which is no strategy")
    return SchemaPolicies(
        strategy=CompatibilityStrategy[name],
        validation_enforced=applied(SCHEMA_VALIDATION_ENFORCED, topic, namespace) is True,
        auto_update=applied(IS_ALLOW_AUTO_UPDATE_SCHEMA, topic, namespace) is not False,
    )
