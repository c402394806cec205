"""Rates that the policies of a topic set: of publishing, and of dispatching. Pure.

A level that limits nothing is passed over, as in Pulsar: a topic with -1 has the rate of its namespace. Source:
`PublishRate.normalize` and `DispatchRateImpl.normalize` of Pulsar 4.0.7.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from pulsar_on_kafka.broker.metadata.policies import (
    PUBLISH_THROTTLING_RATE_IN_BYTE,
    PUBLISH_THROTTLING_RATE_IN_MSG,
    DispatchRatePolicies,
    applied,
)

PUBLISH_PERIOD_S = 1.0
"""The period of publish rates."""


class PublishRate(NamedTuple):
    """Messages and bytes a second to one partition; 0 or less sets no limit to one of them."""

    messages: int
    size_bytes: int


class DispatchRate(NamedTuple):
    """Messages and bytes of one partition in each period; 0 or less sets no limit to one of them."""

    messages: int
    size_bytes: int
    period_s: int
    relative: bool
    """The rates come on top of the publish rate."""


def publish_rate(*levels: Mapping[str, Any]) -> PublishRate | None:
    """The rate where these policies are set: a topic's own, then the inherited ones. None: no limit."""
    for own in levels:
        found = PublishRate(applied(PUBLISH_THROTTLING_RATE_IN_MSG, own), applied(PUBLISH_THROTTLING_RATE_IN_BYTE, own))
        if found.messages > 0 or found.size_bytes > 0:
            return found
    return None


def dispatch_rate(policies: DispatchRatePolicies, *levels: Mapping[str, Any]) -> DispatchRate | None:
    """The same for a dispatch rate."""
    for own in levels:
        found = DispatchRate(*(applied(policy, own) for policy in policies))
        if found.messages > 0 or found.size_bytes > 0:
            return found
    return None
