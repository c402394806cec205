"""A cursor's next owner would find these acknowledgements of transactions; for those who look without owning the
cursor. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from pulsar_on_kafka.cursor.cursor_machine import CursorState
from pulsar_on_kafka.mapping.state.transactions.pending_acks import CursorIncarnation, TxnOutcome
from pulsar_on_kafka.transactions.pending_acks.holdings import Holdings, apply_to
from pulsar_on_kafka.transactions.pending_acks.log import CursorAcks


def held_by_open(
    acks: CursorAcks, low_waters: Mapping[int, int], life: CursorIncarnation, cursor: CursorState
) -> Holdings:
    """Acks that open transactions hold. Those of committed ones are acknowledged in `cursor`, which may have them
    already.

    As an owner that takes over: an ack without END at or below its coordinator's low-water mark was left over, and
    counts as aborted.

    Raises:
        StoreError: what the cursor knows is out of memory and cannot be read back.
    """
    held = Holdings()
    for txn in acks.life(life).transactions():
        end = acks.ends.get(txn)
        if end is None and txn.least_bits <= low_waters.get(txn.coordinator, -1):
            continue
        for ack in acks.counted(life, txn):
            if end is None:
                held.hold(txn, ack)
            elif end.outcome is TxnOutcome.COMMITTED:
                apply_to(cursor, ack)
    return held
