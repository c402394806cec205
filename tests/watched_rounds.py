"""Roles of a service whose rounds a test waits for."""

from __future__ import annotations

from collections.abc import Callable

from pulsar_on_kafka.base.deadline import Deadline, wait_until
from pulsar_on_kafka.broker.node.shared_role import SharedRole
from pulsar_on_kafka.service.ledgers.maintenance import Maintenance, Round
from pulsar_on_kafka.service.replication.subscriptions.progress_records import SyncRound
from pulsar_on_kafka.service.replication.subscriptions.replicated_subscriptions import ReplicatedSubscriptions


def _wait_for(role: SharedRole, counted: Callable[[], int], deadline: Deadline) -> bool:
    """Whether two more rounds are counted in time (one may be under way); they begin at once."""
    wanted = counted() + 2

    def enough() -> bool:
        role._worker.wake()
        return counted() >= wanted

    return wait_until(enough, deadline)


class WatchedMaintenance(Maintenance):
    rounds = 0
    """How many over all of this process's partitions, one at least, ended well."""
    listed = 0
    """Those of them that left no ledger to be measured."""

    def wait_for_round(self, deadline: Deadline) -> bool:
        """Whether one that begins after this call ended well in time."""
        return _wait_for(self, lambda: self.rounds, deadline)

    def wait_until_listed(self, deadline: Deadline) -> bool:
        return _wait_for(self, lambda: self.listed, deadline)

    def _round(self, deadline: Deadline) -> Round:
        done = super()._round(deadline)
        if done.partitions and done.partitions == len(self.owned()):
            self.rounds += 1
            self.listed += not done.more
        return done


class WatchedSubscriptions(ReplicatedSubscriptions):
    rounds = 0
    """How many over at least one partition of the state topic left nothing to do."""

    def wait_for_round(self, deadline: Deadline) -> bool:
        return _wait_for(self, lambda: self.rounds, deadline)

    def _round(self) -> SyncRound:
        owns = bool(self.owned())
        done = super()._round()
        self.rounds += owns and not done.behind
        return done
