"""One gatherer for all in a process that show overviews."""

from __future__ import annotations

from typing import cast

import pytest

from pulsar_on_kafka.admin.overview.gathering import Gatherer
from pulsar_on_kafka.admin.overview.records import Overview
from pulsar_on_kafka.admin.overview.shared import SharedGatherer
from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.node.services import Services
from tests.overviews import overview

IN_TIME = Deadline.after(60)


class Passes:
    """Counts passes, and fails on wish."""

    def __init__(self) -> None:
        self.made = self.passes = self.closed = 0
        self.now_s = 0.0
        self.away = False

    def __call__(self, _: Services) -> Gatherer:
        self.made += 1
        return cast("Gatherer", self)

    def gather(self, _: Deadline) -> Overview:
        if self.away:
            raise errors.ConnectFailed("nobody")
        self.passes += 1
        return overview()

    def close(self) -> None:
        self.closed += 1


def shared(passes: Passes) -> SharedGatherer:
    return SharedGatherer(cast("Services", None), make=passes, monotonic=lambda: passes.now_s)


def test_a_pass_serves_all_as_long_as_it_is_new_enough() -> None:
    passes = Passes()
    gatherer = shared(passes)
    first = gatherer.latest("metrics", IN_TIME, within_s=15)
    passes.now_s = 14
    assert gatherer.latest("metrics", IN_TIME, within_s=15) is first
    assert gatherer.latest("console", IN_TIME, within_s=5) is not first
    passes.now_s = 28
    gatherer.latest("metrics", IN_TIME, within_s=15)
    assert (passes.made, passes.passes) == (1, 2)


def test_the_last_one_that_lets_go_ends_it_and_the_next_one_begins_anew() -> None:
    passes = Passes()
    gatherer = shared(passes)
    gatherer.latest("metrics", IN_TIME, within_s=15)
    gatherer.latest("console", IN_TIME, within_s=15)
    gatherer.let_go("metrics", IN_TIME)
    gatherer.let_go("somebody who never asked", IN_TIME)
    assert passes.closed == 0
    gatherer.let_go("console", IN_TIME)
    gatherer.let_go("console", IN_TIME)
    assert passes.closed == 1
    gatherer.latest("console", IN_TIME, within_s=15)
    assert (passes.made, passes.passes) == (2, 2)


def test_a_pass_that_fails_is_told_and_the_next_one_tries_again() -> None:
    passes = Passes()
    gatherer = shared(passes)
    passes.away = True
    with pytest.raises(errors.ConnectFailed):
        gatherer.latest("console", IN_TIME, within_s=15)
    passes.away = False
    gatherer.latest("console", IN_TIME, within_s=15)
    assert (passes.made, passes.passes) == (1, 1)
