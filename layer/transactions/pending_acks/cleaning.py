"""What is on record of a cursor's pending acks and has nobody left to clean it. Pure.

The owner of a cursor tombstones acks and ENDs when the cursor has taken the outcome in. Of a life that is over (its
topic or subscription was deleted, perhaps made anew under the same name) there is no owner any more:

* acks and TAKEOVERs of a dead life mean nothing to anybody, and go at once: acks first, then the TAKEOVERs, so that no
  void ack ever looks valid;
* ENDs name no life, so they are left to the cursor's owner while the subscription lives. Of one that does not they go
  an hour after they were written, when no ack of their transaction is left.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from layer.transactions.pending_acks.log import CursorAcks, CursorName
from mapping.state_keys import PendingAckEndKey, encode_key
from mapping.state_records.pending_acks import CursorLife

KEPT_FOR_MS: Final = 3_600_000


def due(name: CursorName, acks: CursorAcks, dead: Collection[CursorLife], now_ms: int, *, deleted: bool) -> list[bytes]:
    """Keys to tombstone now, in this order; ask again when that was read back.

    `dead`: lives that were on record before it was looked up which one lives, and are not that one (one that is on
    record only now may be newer). `deleted`: there was no such subscription then.
    """
    found: list[bytes] = []
    for life in dead:
        log = acks.life(life)
        found += [key for txn in log.transactions() for key in log.keys_of(txn)] or sorted(log.takeovers)
    if deleted:
        held = {txn for log in acks.lives.values() for txn in log.transactions()}
        for txn, end in acks.ends.items():
            if txn not in held and now_ms - end.timestamp_ms >= KEPT_FOR_MS:
                found.append(encode_key(PendingAckEndKey(*name, *txn)))
    return found
