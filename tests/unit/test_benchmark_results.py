"""Results of benchmarks: kept by group, put together, judged."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest

from benchmarks import report
from benchmarks.__main__ import whole_pages, with_topics
from benchmarks.kept import GroupResult, Sitting, keep, kept
from benchmarks.many_plan import MANY_WORKERS
from benchmarks.model import Group
from benchmarks.plan import GROUPS, PAGES, REQUIREMENTS
from benchmarks.resident import Resident
from benchmarks.session import SDKS, Outcome
from benchmarks.verdict import judge
from benchmarks.worker import WorkerFailed

DOCS = Path(__file__).resolve().parents[2] / "docs"
NOT_MEASURED_YET = {"many"}
"""The groups whose page waits for a first full run on a quiet machine."""


def measured(group: Group, began: str, figure: float) -> GroupResult:
    metrics = {each.metric for each in REQUIREMENTS if each.ours.partition("/")[0] == group.name}
    rounds = [{"messages": 10, "cores_busy": 0.5, **dict.fromkeys(metrics, figure)}]
    return GroupResult(
        Sitting(began, "abc1234", 0.5),
        {"producer": {"linger.ms": 1}},
        {f"{group.name}/{cell.name}": Outcome(rounds) for cell in group.cells},
    )


def test_what_is_compared_is_measured_in_one_group() -> None:
    for requirement in REQUIREMENTS:
        if requirement.beside is not None:
            assert requirement.beside.partition("/")[0] == requirement.ours.partition("/")[0], requirement.text


@pytest.mark.parametrize("module", sorted(set(SDKS.values())))
def test_the_sdks_that_workers_import_have_a_client(module: str) -> None:
    assert callable(importlib.import_module(module).Client)


def test_the_newest_result_of_each_group_is_kept(tmp_path: Path) -> None:
    first, second = GROUPS[0], GROUPS[1]
    keep(first.name, measured(first, "2026-01-01 10:00", 1.0), tmp_path)
    keep(second.name, measured(second, "2026-01-01 10:10", 2.0), tmp_path)
    keep(first.name, measured(first, "2026-01-02 10:00", 3.0), tmp_path)
    found = kept(tmp_path)
    assert list(found) == [first.name, second.name]
    assert [result.sitting.began for result in found.values()] == ["2026-01-02 10:00", "2026-01-01 10:10"]


def test_a_group_whose_cells_have_changed_is_to_be_measured_again(tmp_path: Path) -> None:
    group = GROUPS[0]
    keep(group.name, measured(group, "2026-01-01 10:00", 1.0), tmp_path)
    file = tmp_path / f"{group.name}.json"
    content = json.loads(file.read_text(encoding="utf-8"))
    content["outcomes"].popitem()
    file.write_text(json.dumps(content), encoding="utf-8")
    assert kept(tmp_path) == {}


def test_topics_of_many_are_given_on_the_command_line() -> None:
    several = with_topics([cell for group in GROUPS for cell in group.cells], 50)
    assert [cell.name for cell in several[:2]] == ["gateway-1000", "pulsar-1000"]
    assert {cell.messages for cell in several} == {50}
    assert {cell.worker for cell in several} == MANY_WORKERS


def test_the_report_says_of_each_group_when_it_was_measured() -> None:
    results = {
        group.name: measured(group, f"2026-01-0{number % 9 + 1} 10:00", 5.0) for number, group in enumerate(GROUPS)
    }
    outcomes = {name: each for result in results.values() for name, each in result.outcomes.items()}
    verdicts = [judge(requirement, outcomes) for requirement in REQUIREMENTS]
    assert all(verdict.met is not None for verdict in verdicts)
    text = report.render({"cores": "2"}, results, verdicts, [])
    for group in GROUPS:
        assert f"### {group.title}\n\n{results[group.name].sitting}." in text
    assert "2026-01-01 10:00 UTC, commit abc1234, load 0.50 before." in text


def test_a_page_is_written_when_all_of_its_groups_are_known_and_one_was_measured_now() -> None:
    groups = {group.name: group for group in GROUPS}
    known = {name: measured(groups[name], "2026-01-01 10:00", 1.0) for name in ("overview", "maintenance", "deletions")}
    written = {page.path: set(found) for page, found in whole_pages(known, [groups["overview"], groups["deletions"]])}
    assert written == {"docs/benchmarks/overview.md": {"overview"}}
    known["serve-idle"] = measured(groups["serve-idle"], "2026-01-01 10:00", 1.0)
    ((page, found),) = whole_pages(known, [groups["serve-idle"]])
    assert (page.path, set(found)) == ("docs/benchmarks/service.md", {"maintenance", "deletions", "serve-idle"})


def test_every_page_of_the_plan_has_groups_and_says_which() -> None:
    for page in PAGES:
        assert any(map(page.has, GROUPS)), page
        if page.part in NOT_MEASURED_YET:
            assert not (DOCS.parent / page.path).exists(), page
            continue
        text = (DOCS.parent / page.path).read_text(encoding="utf-8")
        assert f"**Part of the plan: `{page.part}`.**" in text


@pytest.mark.parametrize(("busy", "met"), [(0.95, None), (0.85, False)])
def test_a_fleet_need_not_grow_where_cores_end(busy: float, met: bool | None) -> None:
    requirement = next(each for each in REQUIREMENTS if each.until_cores_end)
    assert requirement.beside is not None
    outcomes = {
        name: Outcome([{requirement.metric: per_s, "cores_busy": busy}])
        for name, per_s in ((requirement.ours, 600.0), (requirement.beside, 900.0))
    }
    verdict = judge(requirement, outcomes)
    assert (verdict.met, verdict.figure) == (met, pytest.approx(2 / 3))
    assert ("95% busy" in verdict.note) == (met is None)


def test_a_process_that_stays_answers_call_after_call() -> None:
    with Resident("verdict", 60) as resident:
        with pytest.raises(WorkerFailed, match=r"AttributeError: .*no attribute 'nothing'"):
            resident.call("nothing", {})
        with pytest.raises(WorkerFailed, match="TypeError: judge"):
            resident.call("judge", {"requirement": None})
