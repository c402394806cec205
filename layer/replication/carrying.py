"""Has a subscription in another cluster go on where one here is, at once: for tenants that move."""

from __future__ import annotations

from layer.deadline import Deadline
from layer.deliveries.acks_by_readers import acknowledge_ledgers
from layer.metadata.subscription import Subscription
from layer.replication.acks import Acks
from layer.replication.progress import Side, said, take_over, without_acknowledged, without_message
from layer.replication.side_reading import SideReading


def carry_over(
    here: SideReading, mine: Subscription, there: SideReading, theirs: Subscription, deadline: Deadline
) -> None:
    """Acknowledge with `theirs` every message, and message of a batch entry, that `mine` has acknowledged, and that was
    copied, whichever way. What is acknowledged there stays so; a second call does nothing new.

    Raises:
        Refused: one of the clusters has no name.
        DeadlineExceeded, StoreError: one side cannot be read or changed in time; some of it may be done.
    Memory: both sides', and the acknowledgements of all partitions once more.
    """
    ours, others = here.sides(mine, deadline), there.sides(theirs, deadline)
    acks = {p: _missing(ours[p], side).blocks() for p, side in others.items() if p in ours}
    acknowledge_ledgers(there.node.memberships.live_cursors, there.node.admin, theirs, acks, deadline)


def _missing(ours: Side, side: Side) -> Acks:
    """Of what `ours` says, what `side` has not acknowledged, and what is no message there."""
    left = without_acknowledged(take_over(side, said(ours), {}), side.cursor)
    left.join(without_message(side))
    return left
