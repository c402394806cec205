"""The real `MemberServing` and its `StepTimer` under random histories, on a virtual clock (see `members`).

Consumers of each subscription type receive, hang, acknowledge, refuse, close and join. Saves and reads fail, partitions
move, and retention deletes. No step comes late: a step that nothing causes has no effect that its due time did not
allow. No member spins, and in the end all messages are acknowledged, all is saved, and the member rests.
"""

from __future__ import annotations

from collections import Counter

import pytest

from pulsar_on_kafka.broker.metadata.subscriptions.subscription import SubscriptionType
from tests.seeds import in_three
from tests.simulation.members import play


@pytest.mark.parametrize("seeds", in_three(25, range(1000)), ids=str)
@pytest.mark.parametrize("kind", SubscriptionType)
def test_a_member_is_neither_late_nor_restless(kind: SubscriptionType, seeds: range) -> None:
    probed: Counter[str] = Counter()
    for seed in seeds:
        probed.update(play(seed, kind).probed)
    assert probed["acknowledged"], "no step that nothing caused has found any work"
