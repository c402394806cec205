"""Replication names the subscription that holds its place, and what it has copied."""

from __future__ import annotations

from typing import Final

PREFIX: Final = "pulsar.repl."
"""Source: Pulsar's `replicatorPrefix`."""


def replicator_subscription(cluster: str) -> str:
    """The subscription on which a topic is copied to `cluster`."""
    return PREFIX + cluster


def cluster_of(subscription: str) -> str | None:
    """The cluster that a replicator's subscription copies to; None for any other subscription."""
    return subscription[len(PREFIX) :] if subscription.startswith(PREFIX) else None


def copied_name(origin: str, incarnation: int) -> str:
    """Under which name the target remembers what it has of one life of a topic of `origin`."""
    return f"{PREFIX}{origin}/{incarnation}"
