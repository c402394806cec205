"""Cleaning finds those records of a cursor's pending acks that nobody else has a reason to clean. Pure.

The owner of a cursor tombstones acks and ENDs when the cursor has taken the outcome in, and looks at the log only while
it holds something. So these are left over:

* Of a life that is over (its topic or subscription was deleted, perhaps made anew under the same name) there is no
  owner any more. Its acks and TAKEOVERs mean nothing to anybody, and go at once: acks first, then the TAKEOVERs, so
  that no void ack ever looks valid.
* Void acks of the life that lives: a former owner woke up and wrote them. They go at once.
* ENDs without acks: of transactions whose acks were refused, or written once more by a coordinator that went on where
  another one had ended. They name no life; they go an hour after they were written, when no ack of their transaction is
  left.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from pulsar_on_kafka.mapping.state.state_keys import PendingAckEndKey, encode_key
from pulsar_on_kafka.mapping.state.transactions.pending_acks import CursorIncarnation
from pulsar_on_kafka.transactions.pending_acks.log import CursorAcks, CursorName

KEPT_FOR_MS: Final = 3_600_000


def due(name: CursorName, acks: CursorAcks, dead: Collection[CursorIncarnation], now_ms: int) -> list[bytes]:
    """Keys to tombstone now, in this order; ask again when that was read back.

    `dead`: lives that were on record before it was looked up which one lives, and are not that one (one that is on
    record only now may be newer).
    """
    found: list[bytes] = []
    for life in dead:
        log = acks.life(life)
        found += [key for txn in log.transactions() for key in log.keys_of(txn)] or sorted(log.takeovers)
    for life, log in acks.lives.items():
        if life not in dead:
            found += log.fence.void_keys()
    on_record = {txn for log in acks.lives.values() for txn in log.transactions()}
    for txn, end in acks.ends.items():
        if txn not in on_record and now_ms - end.timestamp_ms >= KEPT_FOR_MS:
            found.append(encode_key(PendingAckEndKey(*name, *txn)))
    return found
