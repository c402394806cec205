"""Processes race for a subscription, and never two that exclude each other are served."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.broker.node.node import Node
from tests.chaos.processes import WorkerProcess
from tests.chaos.stage import Stage
from tests.waiting import until

pytestmark = pytest.mark.kafka

MakeStage = Callable[..., Stage]


def race(workers: Sequence[WorkerProcess]) -> None:
    """All subscribe at the same moment; returns when each was answered."""
    answers = [worker.count("s") + worker.count("b") for worker in workers]
    for worker in workers:
        worker.try_to_subscribe()
    for worker, before in zip(workers, answers, strict=True):
        worker.until(lambda w=worker, n=before: w.count("s") + w.count("b") > n, "answered")  # type: ignore[misc]


def holders(workers: Sequence[WorkerProcess]) -> list[WorkerProcess]:
    return [worker for worker in workers if (last := worker.look().last("sbcf")) is not None and last.kind == "s"]


def test_one_of_many_exclusive_subscribers_wins(stage: MakeStage) -> None:
    on = stage(2)
    publisher = on.publish(pace_ms=1)
    exclusive = on.subscription("Exclusive")
    workers = [exclusive.worker(flush_every=37) for _ in range(4)]
    exclusive.warm(*workers)
    for _ in range(8):
        before = {worker.name: worker.received() for worker in workers}
        race(workers)
        winners = holders(workers)
        assert len(winners) == 1, f"{len(winners)} won at once"
        winner = winners[0]
        winner.until(lambda: winner.received() > before[winner.name], "served")  # noqa: B023
        for loser in workers:
            assert loser is winner or loser.received() == before[loser.name], "a loser was served"
            said = loser.look().last("b")
            refused = said is not None and ("held exclusively" in said.text or "live" in said.text)
            assert loser is winner or refused
        winner.close()
    publisher.stop()
    race(workers)
    exclusive.until_worked_off()
    found = exclusive.verdict()
    assert not found.broken
    assert found.duplicates.keys() <= {"holder closed"}, "delivered twice although every owner left in order"


def test_exclusive_and_shared_are_never_both_served(stage: MakeStage) -> None:
    """They race for a subscription that was Shared, and has been left, with more than one partition to share out."""
    on = stage(4)
    publisher = on.publish(pace_ms=1)
    stand = on.subscription("Shared")
    sharers = [stand.worker(flush_every=37) for _ in range(2)]
    exclusives = [stand.worker(type="Exclusive", flush_every=37) for _ in range(2)]
    workers = sharers + exclusives
    stand.warm(*workers)
    moment = random.Random(7)
    both = []
    for turn in range(12):
        before = {worker.name: worker.received() for worker in workers}
        order = list(workers)
        moment.shuffle(order)
        race(order)
        until(lambda: any(w.received() > before[w.name] + 20 for w in workers), "somebody is served")  # noqa: B023
        served = {w.orders.type for w in workers if w.received() > before[w.name]}
        if len(served) > 1:
            both.append((turn, sorted(served)))
        for worker in holders(workers):
            worker.close()
    publisher.stop()
    assert not both, f"served at the same time: {both}"
    stand.join(flush_every=37)
    stand.until_worked_off()
    assert not stand.verdict().broken


def test_a_shared_consumer_that_slips_in_before_the_claim_stands_is_seen(
    stage: MakeStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The claimant looks at the group, finds it empty, and is slow: meanwhile a Shared consumer joins and is served."""
    on = stage(2)
    publisher = on.publish(pace_ms=1)
    stand = on.subscription("Shared")
    sharer = stand.join(flush_every=37)
    sharer.close()
    sharer.subscribe()  # from now on its subscribing writes no version that would make the claimant look again
    sharer.close()
    with SlowLook(on, monkeypatch) as claimant:
        sharer.subscribe()
        before = sharer.received()
        sharer.until(lambda: sharer.received() > before, "served")
        outcome = claimant.finish()
    assert isinstance(outcome, pulsar.ConsumerBusy), outcome
    before = sharer.received()
    sharer.until(lambda: sharer.received() > before + 20, "still served")
    assert sharer.owned() == {0, 1}
    publisher.stop()
    stand.until_worked_off()
    assert not stand.verdict().broken


class SlowLook:
    """Subscribes as Exclusive in this process, and is held up between its look at the group and its claim."""

    def __init__(self, on: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
        self._on = on
        self._looked = threading.Event()
        self._go_on = threading.Event()
        self._outcome: list[object] = []
        self._thread = threading.Thread(target=self._subscribe)
        self._client = pulsar.Client(on.url, connection_timeout_ms=9_999)
        node: Node = self._client._session.node()
        look = node.admin.describe_group

        def slow(*args: Any) -> Any:
            found = look(*args)
            self._looked.set()
            assert self._go_on.wait(30)
            return found

        monkeypatch.setattr(node.admin, "describe_group", slow)

    def _subscribe(self) -> None:
        try:
            self._outcome.append(self._client.subscribe(self._on.topic, "sub"))
        except pulsar.PulsarException as refused:
            self._outcome.append(refused)

    def __enter__(self) -> SlowLook:
        self._thread.start()
        assert self._looked.wait(10)
        return self

    def finish(self) -> object:
        self._go_on.set()
        self._thread.join(30)
        return self._outcome[0]

    def __exit__(self, *_: object) -> None:
        self.finish()
        self._client.close()
