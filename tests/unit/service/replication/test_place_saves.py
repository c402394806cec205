"""A place that the group did not take is saved again, whether it said so or not."""

from __future__ import annotations

from pulsar_on_kafka.service.replication.partition_copier import ANSWER_S, PlaceSaves
from tests.clocks import SetClock


def test_one_save_is_under_way_and_what_was_accepted_is_not_saved_again() -> None:
    saves = PlaceSaves(SetClock())
    saves.kept({0: 10, 1: 20})
    assert saves.due({0: 10, 1: 25}) == {1: 25}
    saves.sent({1: 25})
    assert saves.due({0: 11, 1: 26}) == {}
    saves.answered(accepted=True)
    assert saves.due({0: 11, 1: 25}) == {0: 11}


def test_a_refused_place_is_due_again_without_anything_new() -> None:
    saves = PlaceSaves(SetClock())
    saves.sent({0: 10})
    saves.answered(accepted=False)
    assert saves.due({0: 10}) == {0: 10}


def test_an_answer_that_never_comes_is_not_waited_for_for_ever() -> None:
    clock = SetClock()
    saves = PlaceSaves(clock)
    assert not saves.is_unanswered()
    saves.sent({0: 10})
    clock.seconds += ANSWER_S - 1
    assert not saves.is_unanswered()
    assert saves.due({0: 12}) == {}
    clock.seconds += 1
    assert saves.is_unanswered()
    assert not saves.is_unanswered()  # said once
    assert saves.due({0: 10}) == {0: 10}


def test_an_answer_says_nothing_of_a_partition_that_was_lost_meanwhile() -> None:
    saves = PlaceSaves(SetClock())
    saves.sent({0: 10, 1: 20})
    saves.forget([0])
    saves.kept({0: 3})  # it came back, and was taken over at a former place
    saves.answered(accepted=True)
    assert saves.due({0: 5, 1: 20}) == {0: 5}
