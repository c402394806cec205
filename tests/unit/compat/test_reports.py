"""Reports: valid, complete, and honest about what is nasty."""

from __future__ import annotations

import io
import json
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path

import pytest
from rich.console import Console

from tests.compat.harness.compare import OURS, BadDifferences, CompatReport, compare, read_differences
from tests.compat.harness.report import html_page, json_report, junit_xml, show_report
from tests.compat.harness.scenario import ScenarioError, choose, load
from tests.unit.compat.histories import a_scenario, did, every_verdict


def test_junit_is_xml_with_a_case_for_each_scenario() -> None:
    root = ET.fromstring(junit_xml(every_verdict()))  # noqa: S314 - ours
    cases = {case.get("name"): [child.tag for child in case] for case in root.iter("testcase")}
    assert cases == {
        "agrees": ["properties"],
        "differs": ["properties", "failure"],
        "explained": ["properties", "system-out"],
        "missing": ["properties", "skipped"],
        "fails": ["properties", "failure"],
        "absent": ["skipped"],
    }
    suites = {suite.get("name"): suite for suite in root}
    assert suites["compat.seek"].get("tests") == "4"
    assert suites["compat.seek"].get("failures") == "1"
    assert suites["compat.seek"].get("skipped") == "2"
    assert [found.get("value") for found in root.findall("./testsuite/properties/property")] == ["5.0.1", "5.0.1"]


class _Balance(HTMLParser):
    """Every tag is closed by its own; nothing is fetched."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert not {"src", "onclick"} & {name for name, _ in attrs}
        assert all((value or "").startswith("#") for name, value in attrs if name == "href")
        self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_html_is_balanced_and_escaped_and_needs_nothing_else() -> None:
    page = html_page(every_verdict())
    parser = _Balance()
    parser.feed(page.replace("<!DOCTYPE html>", ""))
    parser.close()
    assert parser.open == []
    assert "Traceback <x>" in parser.text
    assert "readers" in parser.text
    assert "Played once more: seek.fails" in parser.text
    assert "stale" in page.lower()
    assert "Pulsar by java + rest" in parser.text
    assert "Pulsar 5.0.1: pulsar://p" in parser.text


def test_json_holds_histories_and_counts() -> None:
    found = json.loads(json.dumps(json_report(every_verdict())))
    assert found["counts"] == {"agree": 1, "differ": 2, "explained": 1, "not supported": 1, "not played": 1}
    assert (found["pulsar"], found["pulsar_version"]) == ("pulsar://p", "5.0.1")
    assert found["driven_by"] == {"java + rest": 5}
    assert found["scenarios"][0]["pulsar"]["driven_by"] == ["java", "rest"]
    assert found["scenarios"][0]["kafka"]["history"] == [{"what": "a", "value": 0}]
    assert found["scenarios"][1]["diff"]
    assert found["repeated"] == ["seek.fails"]
    assert found["ok"] is False


def test_the_table_shows_areas_differences_and_the_sum() -> None:
    # The lone surrogate of `every_verdict` is for XML; terminals have their own way with it.
    report = CompatReport(
        (compare(a_scenario("acks.same"), did("a"), did("a")), compare(a_scenario("acks.other"), did("a"), did("b"))),
    )
    sink = io.StringIO()
    show_report(report, Console(file=sink, markup=False, highlight=False))
    text = sink.getvalue()
    assert "differs  acks.other: What acks.other shows" in text
    assert "-a: 0" in text
    assert "2 scenarios: 1 agree, 1 differ, 0 explained, 0 not supported, 0 not played (50.0% agree)" in text


def test_explanations_are_read_and_checked(tmp_path: Path) -> None:
    file = tmp_path / "differences.toml"
    file.write_text('"acks.single" = "because"\n', encoding="utf-8")
    assert read_differences(file).beside("4.0.7") == {"acks.single": "because"}
    assert read_differences(file).beside("5.0.1", of_gateway=True) == {}
    everywhere = '"acks.single" = "because"\n[gateway]\n"seek.end" = "there"\n'
    file.write_text(
        everywhere + '[pulsar-5]\n"acks.new" = "of 5"\n[pulsar-5.gateway]\n"seek.end" = "there, of 5"\n',
        encoding="utf-8",
    )
    found = read_differences(file)
    assert found.beside("4.0.7") == {"acks.single": "because"}
    assert found.beside("4.0.7", of_gateway=True) == {"seek.end": "there"}
    assert found.beside("5.1.0") == {"acks.single": "because", "acks.new": "of 5"}
    assert found.beside("5.0.1", of_gateway=True) == {"seek.end": "there, of 5"}
    for bad in ('"a" = 3', '"a" = " "', "no toml", "gateway = 3", "[gateway]\na = 3", "[pulsar-5]\na = 3", "[other]"):
        file.write_text(bad, encoding="utf-8")
        with pytest.raises(BadDifferences, match=r"differences\.toml"):
            read_differences(file)
    with pytest.raises(BadDifferences, match="cannot be read"):
        read_differences(tmp_path / "missing")


def test_our_explanations_are_of_scenarios_that_exist() -> None:
    assert {name for table in read_differences(OURS).tables.values() for name in table} <= set(load())


def test_scenarios_of_a_folder_come_beside_the_built_in_ones(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from tests.compat.harness import ScenarioRun, scenario\n\n"
        "@scenario(area='mine_alone', title='Mine')\n"
        "def works(run: ScenarioRun) -> None:\n    run.record('x')\n",
        encoding="utf-8",
    )
    found = load([tmp_path])
    assert found["mine_alone.works"].title == "Mine"
    assert [one.name for one in choose(found.values(), "mine_*")] == ["mine_alone.works"]
    assert choose(found.values(), None) == list(found.values())
    exact = choose(found.values(), "deduplication.repeated_with")  # there is a repeated_without
    assert [one.name for one in exact] == ["deduplication.repeated_with"]
    with pytest.raises(ScenarioError, match="no scenario matches"):
        choose(found.values(), "nothing-like-it")


def test_a_folder_that_cannot_be_used_is_said_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="is not a folder"):
        load([tmp_path / "missing"])
    (tmp_path / "broken.py").write_text("import no_such_module_at_all\n", encoding="utf-8")
    with pytest.raises(ScenarioError, match=r"broken\.py cannot be imported: ModuleNotFoundError"):
        load([tmp_path])


def test_every_built_in_scenario_says_what_it_shows() -> None:
    for found in load().values():
        assert found.title
        assert found.time_limit_s <= 200  # after a minute, brokers look for idle subscriptions once a minute
