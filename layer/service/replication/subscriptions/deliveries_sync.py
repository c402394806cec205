"""Tells other clusters what a cursor has on record of deliveries, and lays down here what they say."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.mapping.state.clusters.subscription_progress import DELIVERED
from pulsar_on_kafka.metadata.subscriptions.subscription import Subscription
from pulsar_on_kafka.node.node import Node
from pulsar_on_kafka.replicated.progress import SubscriptionSide
from pulsar_on_kafka.replicated.progress_heads import HeadAt, Subject
from pulsar_on_kafka.replicated.progress_log import ProgressLog
from pulsar_on_kafka.replicated.told_deliveries import deliveries_heard, deliveries_told, with_news
from pulsar_on_kafka.service.replication.subscriptions.progress_words import ProgressWords, subject_of

_log: Final = logging.getLogger(__name__)


class DeliveriesSync:
    """For one thread. Memory: what is told of one partition (`told_deliveries.MOST`)."""

    def __init__(self, node: Node, words: ProgressWords) -> None:
        self._node = node
        self._words = words

    def take_over(
        self,
        subscription: Subscription,
        partition: int,
        side: SubscriptionSide,
        heads: Sequence[tuple[Subject, HeadAt]],
        deadline: Deadline,
    ) -> bool:
        """Lay down what others say for whoever consumes here next. False: somebody consumes, who counts himself; so it
        waits until he has ended.

        Raises:
            LayerError: it cannot be read, or laid down, now.
        """
        found = [self._node.progress.head(subject, at, deadline).deliveries for subject, at in heads]
        if not any(found):
            return True
        now = replace(side, cursor=self._node.memberships.cursors.read(subscription, deadline)[partition].state)
        all_of_them = now.cursor.deliveries
        for each in found:
            news = deliveries_heard(now, each)
            if news is not None:
                all_of_them = with_news(all_of_them, news)
        if all_of_them is None or all_of_them == now.cursor.deliveries:
            return True
        try:
            laid_down = {partition: all_of_them}
            self._node.memberships.live_cursors.lay_down_deliveries(subscription, laid_down, deadline)
        except errors.SubscriptionBusy:
            name = f"{subscription.topic.name}/{subscription.name}"
            _log.debug("subscription=%s[%d] is consumed, others' deliveries wait", name, partition)
            return False
        return True

    def tell(
        self,
        cluster: str,
        log: ProgressLog,
        subscription: Subscription,
        partition: int,
        side: SubscriptionSide,
        deadline: Deadline,
    ) -> None:
        """Nothing is written where none are on record, and none were ever told of.

        Raises:
            LayerError: that cluster cannot be told now.
        """
        mine = subject_of(subscription, partition, side.origin.cluster, DELIVERED)
        found = deliveries_told(side)
        if found or log.heads.ask(mine.topic, lambda heads: heads.newest(mine), deadline) is not None:
            self._words.say(cluster, log, subscription, mine, {}, deadline, found)
