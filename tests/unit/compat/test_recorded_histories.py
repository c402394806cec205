"""Recorded histories: their files, and that each scenario has one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.compat.harness.compare import OURS, ScenarioVerdict, compare, read_differences
from tests.compat.harness.history import Ending, Event, SideResult
from tests.compat.harness.recorded import (
    OF_PULSAR_5,
    BadHistories,
    read_histories,
    unmatched,
    write_differing,
    write_histories,
)
from tests.compat.harness.scenario import built_in
from tests.compat.replay import long_ones, soak_ones
from tests.unit.compat.histories import a_scenario, did

MADE_BY = {"pulsar": "4.0.7"}
KNOWN = {name: a_scenario(name) for name in ("acks.single", "acks.none", "seek: far.end")}


def test_each_scenario_has_a_recorded_history_and_each_history_a_scenario() -> None:
    assert unmatched(read_histories(), built_in()) == []


def test_the_histories_of_pulsar_5_are_those_that_differ() -> None:
    whole, of_5 = read_histories(), read_histories(OF_PULSAR_5)
    assert of_5.keys() <= whole.keys()
    assert [name for name, found in of_5.items() if found.lines() == whole[name].lines()] == []


def test_a_difference_beside_one_release_is_of_a_scenario_in_which_the_releases_differ() -> None:
    tables = read_differences(OURS).tables
    of_one = {name for title, table in tables.items() if title.startswith("pulsar-") for name in table}
    assert of_one <= read_histories(OF_PULSAR_5).keys()


@pytest.mark.parametrize("side", ["sdk", "gateway"])
def test_what_is_left_to_make_chaos_are_scenarios(side: str) -> None:
    assert set(long_ones(side)) <= set(built_in())


def test_make_chaos_plays_each_long_scenario_on_one_side_at_least() -> None:
    sides = {side: {name for name in long_ones(side) if name not in soak_ones(side)} for side in ("sdk", "gateway")}
    assert sides["sdk"] | sides["gateway"] == {*long_ones("sdk"), *long_ones("gateway")}


def test_what_is_missing_says_how_to_record_it() -> None:
    lines = unmatched({"acks.single": did("a"), "old.one": did("a")}, KNOWN)
    assert [line.partition(":")[0] for line in lines] == [
        "acks.none has no recorded history",
        "seek",
        "old.one has a recorded history and is no scenario",
    ]
    assert all("make compat ARGS=\"--record --scenario '" in line for line in lines)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    events = (Event("texts", ["ä", "\n", None]), Event("maps", {"b": 1, "a": {"c": [1.5, True]}}))
    result = SideResult(Ending.DONE, events, driven_by=("java", "rest"))
    write_histories({"acks.single": result, "acks.none": SideResult(Ending.DONE)}, KNOWN, MADE_BY, tmp_path)
    found = read_histories(tmp_path)
    assert found["acks.single"] == result
    assert found["acks.single"].lines() == result.lines()
    assert found["acks.none"].events == ()
    text = (tmp_path / "acks.json").read_text(encoding="utf-8")
    write_histories({"acks.single": result}, KNOWN, MADE_BY, tmp_path)
    assert (tmp_path / "acks.json").read_text(encoding="utf-8") == text


def test_a_changed_fact_is_a_changed_line_and_differs(tmp_path: Path) -> None:
    write_histories({"acks.single": did("a", "b", "c")}, KNOWN, MADE_BY, tmp_path)
    file = tmp_path / "acks.json"
    file.write_text(file.read_text(encoding="utf-8").replace('["b", 1]', '["b", 2]'), encoding="utf-8")
    altered = read_histories(tmp_path)["acks.single"]
    found = compare(KNOWN["acks.single"], altered, did("a", "b", "c"))
    assert found.verdict is ScenarioVerdict.DIFFER
    assert [line for line in found.diff if line[:1] in "+-"][2:] == ["-b: 2", "+b: 1"]


def test_other_histories_stay_and_those_of_no_scenario_go(tmp_path: Path) -> None:
    write_histories({"acks.single": did("a"), "seek: far.end": did("b")}, KNOWN, MADE_BY, tmp_path)
    write_histories({"acks.none": did("c")}, {k: v for k, v in KNOWN.items() if k[:4] == "acks"}, MADE_BY, tmp_path)
    assert sorted(read_histories(tmp_path)) == ["acks.none", "acks.single"]
    assert [file.name for file in tmp_path.iterdir()] == ["acks.json"]


@pytest.mark.parametrize(
    ("results", "made_by", "words"),
    [
        (
            {"acks.none": did("a", ending=Ending.TIMED_OUT, reason="late")},
            MADE_BY,
            "acks.none cannot be recorded.*late",
        ),
        ({"acks.none": did("a")}, {"pulsar": "5.0.1"}, "acks.single was recorded with .*4.0.7.*all of 'acks' anew"),
    ],
)
def test_what_is_not_recorded(
    results: dict[str, SideResult], made_by: dict[str, str], words: str, tmp_path: Path
) -> None:
    write_histories({"acks.single": did("a")}, KNOWN, MADE_BY, tmp_path)
    before = read_histories(tmp_path)
    with pytest.raises(BadHistories, match=words):
        write_histories(results, KNOWN, made_by, tmp_path)
    assert read_histories(tmp_path) == before


def test_of_a_later_release_only_what_differs_is_written(tmp_path: Path) -> None:
    whole, later = tmp_path / "whole", tmp_path / "later"
    before = {"acks.single": did("a"), "acks.none": did("b"), "seek: far.end": did("c")}
    write_histories(before, KNOWN, MADE_BY, whole)
    made_by = {"pulsar": "5.0.1"}
    changed = {"acks.single": did("a", "more"), "acks.none": did("other")}
    assert write_differing({**before, **changed}, KNOWN, made_by, later, whole) == ["acks.none", "acks.single"]
    assert {name: found.lines() for name, found in read_histories(later).items()} == {
        "acks.single": ["a: 0", "more: 1"],
        "acks.none": ["other: 0"],
    }
    assert write_differing({"acks.none": did("b")}, KNOWN, made_by, later, whole) == []
    assert sorted(read_histories(later)) == ["acks.single"]


def test_areas_of_one_file_name_are_refused(tmp_path: Path) -> None:
    known = {name: a_scenario(name) for name in ("key shared.a", "key_shared.b")}
    with pytest.raises(BadHistories, match="has the file of another one"):
        write_histories(dict.fromkeys(known, did("a")), known, MADE_BY, tmp_path)


def test_a_file_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "acks.json").write_text("{}", encoding="utf-8")
    with pytest.raises(BadHistories, match=r"acks\.json holds no recorded histories"):
        read_histories(tmp_path)
