"""A process that is killed or stopped between any two writes of a transaction leaves all of it or nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.chaos.bank import BankStage
from tests.chaos.transaction_cuts import STEPS
from tests.steps import Unique

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]

_MESSAGES = 6
_AT_ONCE = 8
"""No more than there are coordinators, so that each process serves some."""
_KILLED = (
    "after ADD_PARTITION", "before send 2", "after ack", "before COMMITTING", "after COMMITTING", "after marker",
    "after END", "after ABORTING",
)  # fmt: skip
_STOPPED = ("before COMMITTING", "before marker", "before COMMITTED")
_ALL = [f"{when} {step}" for step in STEPS for when in ("before", "after")]


@pytest.fixture
def stage(service_url: str, tmp_path: Path, unique: Unique) -> Iterator[BankStage]:
    with BankStage(service_url, tmp_path, unique) as made:
        yield made


def _kill(stage: BankStage, all_cuts: Sequence[str]) -> None:
    for first in range(0, len(all_cuts), _AT_ONCE):
        cuts = all_cuts[first : first + _AT_ONCE]
        sources = [stage.fill(_MESSAGES) for _ in cuts]
        workers = [stage.start_one(source, cut=cut) for source, cut in zip(sources, cuts, strict=True)]
        for worker in workers:
            worker.until_cut()
    stage.finish()
    stage.judge()


def _stop(stage: BankStage, cuts: Sequence[str]) -> None:
    sources = [stage.fill(_MESSAGES) for _ in cuts]
    workers = [
        stage.start_one(source, cut=cut, signal_name="SIGSTOP") for source, cut in zip(sources, cuts, strict=True)
    ]
    for worker in workers:
        worker.until_cut()
    stage.finish()  # by others, who take the coordinators and the subscriptions over
    before = stage.outcomes()
    for worker in workers:
        worker.go_on()
    for worker in workers:
        worker.until_it_went_on()
    stage.judge()
    assert stage.outcomes().keys() >= before.keys()


def test_killed_at_steps_of_a_transaction(stage: BankStage) -> None:
    _kill(stage, _KILLED)


def test_stopped_past_its_session(stage: BankStage) -> None:
    _stop(stage, _STOPPED)


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_killed_before_and_after_every_step(stage: BankStage) -> None:
    _kill(stage, _ALL)
    print(f"\n    {len(stage.workers)} processes killed, {stage.tally()}")


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("cuts", [_ALL[first : first + _AT_ONCE] for first in range(0, len(_ALL), _AT_ONCE)])
def test_stopped_before_and_after_every_step(stage: BankStage, cuts: list[str]) -> None:
    _stop(stage, cuts)
    print(f"\n    {len(stage.workers)} processes stopped, {stage.tally()}")
