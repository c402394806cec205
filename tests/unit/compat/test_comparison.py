"""Verdicts about two histories."""

from __future__ import annotations

import json

import pytest

from tests.compat.harness.compare import ScenarioVerdict, compare, stale_explanations
from tests.compat.harness.history import Ending, Event, SideResult, read_result
from tests.unit.compat.histories import a_scenario, did, every_verdict


def test_equal_histories_agree() -> None:
    found = compare(a_scenario(), did("a", "b"), did("a", "b"))
    assert (found.verdict, found.reason, found.diff) == (ScenarioVerdict.AGREE, "", [])


def test_the_order_of_events_counts() -> None:
    assert compare(a_scenario(), did("a", "b"), did("b", "a")).verdict is ScenarioVerdict.DIFFER


def test_the_order_of_a_dict_does_not() -> None:
    one = SideResult(Ending.DONE, (Event("x", {"a": 1, "b": 2}),))
    other = SideResult(Ending.DONE, (Event("x", {"b": 2, "a": 1}),))
    assert compare(a_scenario(), one, other).verdict is ScenarioVerdict.AGREE


def test_the_first_difference_is_named_and_the_diff_shows_both() -> None:
    found = compare(a_scenario(), did("a", "theirs"), did("a", "ours"))
    assert found.reason == "Pulsar theirs: 1 | Kafka ours: 1"
    assert "-theirs: 1" in found.diff
    assert "+ours: 1" in found.diff


def test_what_only_one_side_has_is_named() -> None:
    assert compare(a_scenario(), did("a", "b"), did("a")).reason == "only on Pulsar: b: 1"
    assert compare(a_scenario(), did("a"), did("a", "b")).reason == "only on Kafka: b: 1"


def test_a_history_of_nothing_shows_nothing() -> None:
    assert compare(a_scenario(), did(), did()).verdict is ScenarioVerdict.DIFFER


@pytest.mark.parametrize("ending", [Ending.FAILED, Ending.CRASHED, Ending.TIMED_OUT])
def test_sides_that_fail_alike_do_not_agree(ending: Ending) -> None:
    broken = did("a", ending=ending, reason="same words")
    found = compare(a_scenario(), broken, broken, "explained")
    assert (found.verdict, found.reason) == (ScenarioVerdict.DIFFER, f"{ending.value} on Pulsar: same words")


def test_what_we_do_not_have_is_no_difference() -> None:
    found = compare(a_scenario(), did("a"), did(ending=Ending.NOT_SUPPORTED, reason="readers"))
    assert (found.verdict, found.reason) == (ScenarioVerdict.NOT_SUPPORTED, "readers")


def test_an_explained_difference_keeps_its_diff() -> None:
    found = compare(a_scenario(), did("a"), did("b"), "because")
    assert (found.verdict, found.reason) == (ScenarioVerdict.EXPLAINED, "because")
    assert found.diff


def test_explanations_of_nothing_are_stale() -> None:
    played = [compare(a_scenario(name), did("a"), did(end)) for name, end in (("x.same", "a"), ("x.other", "b"))]
    explanations = {"x.same": "r", "x.other": "r", "x.unknown": "r", "x.not_played": "r"}
    known = ["x.same", "x.other", "x.not_played"]
    assert stale_explanations(explanations, known, played) == (
        "x.unknown: there is no such scenario",
        "x.same: differs no longer",
    )


def test_a_report_counts() -> None:
    report = every_verdict()
    assert [report.count(verdict) for verdict in ScenarioVerdict] == [1, 2, 1, 1, 1]
    assert report.agreement == 1 / 6
    assert not report.ok
    assert list(report.areas()) == ["acks", "seek"]


def test_a_result_that_was_cut_off_keeps_its_events() -> None:
    whole = json.dumps({"what": "a", "value": 1})
    assert read_result([whole, '{"what": "b", "va']) == ((Event("a", 1),), None)
    assert read_result([whole, '{"ending": "done"}']) == ((Event("a", 1),), {"ending": "done"})
