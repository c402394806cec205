"""Chunk rules say what becomes of chunked messages that stay incomplete."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class ChunkRules(NamedTuple):
    """The rules of consumers for incomplete messages.

    `max_pending`: how many keep their payload (0: any number). `auto_ack_oldest`: those beyond that are acknowledged
    and lost. `expire_s`: how long after its last chunk one is given up, that is acknowledged. Source: the official
    ConsumerConfiguration, whose expiry the Python client leaves at 60 s.
    """

    max_pending: int = 10
    auto_ack_oldest: bool = False
    expire_s: float = 60.0


def joint_rules(rules: Iterable[ChunkRules]) -> ChunkRules:
    """What several consumers of one partition want together: nothing is lost unless all of them say so."""
    every = list(rules)
    if not every:
        return ChunkRules()
    limits = [each.max_pending for each in every]
    return ChunkRules(
        0 if 0 in limits else sum(limits),
        all(each.auto_ack_oldest for each in every),
        max(each.expire_s for each in every),
    )
