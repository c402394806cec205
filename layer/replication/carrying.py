"""Has a subscription in another cluster go on where one here is, at once: for tenants that move."""

from __future__ import annotations

from layer.deadline import Deadline
from layer.deliveries.acks_by_readers import acknowledge_ledgers
from layer.metadata.subscription import Subscription
from layer.replication.acks import Acks
from layer.replication.carried_deliveries import carried, joined
from layer.replication.progress import Side, said, take_over, without_acknowledged, without_message
from layer.replication.side_reading import SideReading
from mapping.state_records.deliveries import Deliveries


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


def carry_deliveries(
    here: SideReading, mine: Subscription, there: SideReading, theirs: Subscription, deadline: Deadline
) -> None:
    """Have `theirs` know what is on record of deliveries with `mine`: counts, what is put off and until when, what a
    dead process held. Of a message that both know of the higher count and the later time stay; a second call does
    nothing new. Nobody may consume on either side.

    Raises:
        SubscriptionBusy: somebody does.
        Refused, DeadlineExceeded, StoreError: as `carry_over`.
    """
    ours = here.sides(mine, deadline)
    if all(side.cursor.deliveries is None for side in ours.values()):
        return
    others = there.sides(theirs, deadline)
    found: dict[int, Deliveries] = {}
    for partition, side in others.items():
        known = side.cursor.deliveries
        both = joined(known, carried(ours[partition], side)) if partition in ours else known
        if both is not None and both != known:
            found[partition] = both
    if found:
        there.node.memberships.live_cursors.lay_down_deliveries(theirs, found, deadline)


def _missing(ours: Side, side: Side) -> Acks:
    """Of what `ours` says, what `side` has not acknowledged, and what is no message there."""
    left = without_acknowledged(take_over(side, said(ours), {}), side.cursor)
    left.join(without_message(side))
    return left
