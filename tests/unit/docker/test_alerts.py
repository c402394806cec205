"""Alerts and the dashboard speak of what is exposed; and alerts fire on what they are for, and on nothing else."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from pulsar_on_kafka.admin.overview.records import Overview
from pulsar_on_kafka.broker.managed_ledger.deletion_topics import DEAD_LETTERS, RETRIES, WORKER
from pulsar_on_kafka.metrics import MetricsCollector
from pulsar_on_kafka.metrics.overview import page_of
from tests.overviews import overview, stuck, subscription
from tests.steps import Missing

_DOCKER = Path(__file__).resolve().parents[3] / "docker"
_ALERTS = _DOCKER / "prometheus" / "alerts.yml"
_DASHBOARD = _DOCKER / "grafana" / "dashboards" / "pok.json"

_METRIC = re.compile(r"\b(?:pok|pulsar_txn)_\w+")
_SELECTOR = re.compile(r"\{([^}]*)\}")
_GROUPING = re.compile(r"\bby \(([^)]*)\)")

_ALL = overview(
    stuck(suspects=1, open_transactions=1, unreadable="gone", dead_letters=1), stuck("pulsar.repl.us"),
    stuck("left", processes=()),
)  # fmt: skip
EVERYTHING = replace(_ALL, topics=tuple(replace(topic, open_transactions=1) for topic in _ALL.topics))


def exposed() -> dict[str, set[str]]:
    """The labels of every metric that `pok serve` exposes."""
    found = {
        f"{family.name}_total" if family.type == "counter" else family.name: set(family._labelnames)
        for family in MetricsCollector().collect()
        if hasattr(family, "_labelnames")
    }
    for family in text_string_to_metric_families(page_of(EVERYTHING).text.decode()):
        for sample in family.samples:
            found[sample.name] = set(sample.labels)
    return found


def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(_ALERTS.read_text(encoding="utf-8"))["groups"]
    return list(group["rules"])


def queries() -> Iterator[tuple[str, str]]:
    """Where, and what."""
    for rule in rules():
        yield rule["alert"], rule["expr"]
    board = json.loads(_DASHBOARD.read_text(encoding="utf-8"))
    for panel in board["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"]
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["name"], variable["definition"]


def missing_from(expression: str, known: dict[str, set[str]]) -> list[str]:
    """Metrics and labels that an expression names and nobody exposes."""
    names = _METRIC.findall(expression)
    wrong = [name for name in names if name not in known]
    labels = {label for name in names for label in known.get(name, ())}
    said = [part.partition("=")[0].strip("~!") for inner in _SELECTOR.findall(expression) for part in _parts(inner)]
    said += [label.strip() for inner in _GROUPING.findall(expression) for label in inner.split(",")]
    return wrong + [label for label in said if label not in labels] + ([] if names else ["no metric"])


def _parts(selector: str) -> list[str]:
    return re.findall(r'(\w+(?:=|!=|=~|!~))"', selector)


@pytest.mark.parametrize(("where", "expression"), list(queries()))
def test_what_is_asked_for_is_exposed(where: str, expression: str) -> None:
    assert missing_from(expression, exposed()) == [], where


def test_what_is_not_exposed_is_found() -> None:
    known = exposed()
    assert missing_from("max by (tenant) (pok_subscription_holes)", known) == ["tenant"]
    assert missing_from('sum(pok_subscription_hole{cluster="c"})', known) == ["pok_subscription_hole", "cluster"]
    assert missing_from('pok_replication_lag_seconds{subscription=~"a"}', known) == ["subscription"]
    assert missing_from("up > 1", known) == ["no metric"]


def test_labels_in_words_are_those_of_the_expression() -> None:
    for rule in rules():
        words = " ".join(rule["annotations"].values())
        grouped = {label.strip() for inner in _GROUPING.findall(rule["expr"]) for label in inner.split(",")}
        assert set(re.findall(r"\$labels\.(\w+)", words)) <= grouped, rule["alert"]


def test_every_alert_is_on_the_page_about_operating() -> None:
    page = (_DOCKER.parent / "docs" / "operating.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `(Pok\w+)` \|", page, re.MULTILINE) == [rule["alert"] for rule in rules()]


# What fires -----------------------------------------------------------------------------------------------------------

WELL = overview(stuck("busy", 500, seconds=20, dead_letters=3), subscription("pulsar.repl.us"))
"""A backlog that is worked at, old dead letters, a replicator that is up to date."""
ROLES = {'pok_duty_partitions{cluster="c-1",duty="maintenance"}': (16, 16)}

Series = dict[str, tuple[float, float]]
"""Values before and after the middle of the time that passes."""


def series(before: Overview, after: Overview | None = None) -> Series:
    """What is scraped; `after`, something happens."""
    first, last = _lines(before), _lines(after or before)
    return {name: (first.get(name, float("nan")), value) for name, value in last.items()} | ROLES


def _lines(seen: Overview) -> dict[str, float]:
    """Gathered just now, in a test where time begins at 0: of how old it is only `PokOverviewOld` asks."""
    found = {}
    for line in page_of(seen).text.decode().splitlines():
        if not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            found[name] = float(value)
    return found


FAULTS: dict[str, Callable[[], Series]] = {
    "PokSubscriptionStuck": lambda: series(overview(stuck(seconds=1_000))),
    "PokSubscriptionUnconsumed": lambda: series(overview(stuck(seconds=1_000, processes=()))),
    "PokOldestUnacknowledged": lambda: series(
        overview(subscription(backlog=1, oldest_ms=_ALL.gathered_ms - 4_000_000, idle_since_ms=_ALL.gathered_ms))
    ),
    "PokDeadLettersGrow": lambda: series(overview(subscription()), overview(subscription(dead_letters=2))),
    "PokCursorUnreadable": lambda: series(overview(subscription(unreadable="gone"))),
    "PokLedgerDeletionsGivenUp": lambda: series(overview(stuck("operator", 1, 20, topic=DEAD_LETTERS))),
    "PokLedgerDeletionsWait": lambda: series(overview(stuck(WORKER, 1, 20, topic=RETRIES))),
    "PokRoleWithoutOwner": lambda: series(WELL) | dict.fromkeys(ROLES, (16, 0)),
    "PokReplicationLag": lambda: series(overview(stuck("pulsar.repl.us", seconds=600))),
    "PokOverviewOld": lambda: series(WELL) | {'pok_overview_gathered_seconds{cluster="c-1"}': (0, 0)},
    "PokOverviewMissing": lambda: dict(ROLES),
}


def test_every_alert_has_its_fault() -> None:
    assert set(FAULTS) == {rule["alert"] for rule in rules()}


@pytest.fixture(scope="module")
def promtool(request: pytest.FixtureRequest) -> str:
    found = shutil.which("promtool")
    if found is None:
        missing: Missing = request.getfixturevalue("missing")
        missing("promtool", "there is no promtool on the PATH (Debian's package prometheus has it)")
        raise AssertionError
    return found


def _constant(value: float, more: int) -> str:
    return f"_x{more + 1}" if value != value else f"{value:g}x{more}"


def fired(promtool: str, folder: Path, scraped: Series) -> set[str]:
    """The alerts that fire, some minutes after something happened. `promtool` says of a wish that is not met what it
    got."""
    values = {
        name: f"{before:g}x29 {after:g}x30".replace("nanx29", "_x30") for name, (before, after) in scraped.items()
    }
    test = {
        "rule_files": [str(_ALERTS)],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": name, "values": text} for name, text in values.items()],
                "promql_expr_test": [
                    {
                        "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
                        "eval_time": "40m",
                        "exp_samples": [{"labels": '{nobody="expects this"}', "value": 1}],
                    }
                ],
            }
        ],
    }
    file = folder / "test.yml"
    file.write_text(yaml.safe_dump(test), encoding="utf-8")
    ran = subprocess.run([promtool, "test", "rules", str(file)], capture_output=True, text=True, check=False)
    told = ran.stdout + ran.stderr
    assert "got:" in told, told
    return set(re.findall(r'alertname="(\w+)"', told.partition("got:")[2]))


def test_nothing_fires_where_all_is_well(promtool: str, tmp_path: Path) -> None:
    assert fired(promtool, tmp_path, series(WELL)) == set()


@pytest.mark.parametrize("alert", FAULTS)
def test_an_alert_fires_on_what_it_is_for(promtool: str, tmp_path: Path, alert: str) -> None:
    found = fired(promtool, tmp_path, FAULTS[alert]())
    assert alert in found
    assert found <= {alert, *BESIDE.get(alert, ())}, "and nothing else"


BESIDE: dict[str, tuple[str, ...]] = {}
"""What is wrong at the same time, by its nature."""


def test_the_rules_are_such_as_prometheus_takes(promtool: str) -> None:
    files = [str(_ALERTS), str(_ALERTS.with_name("rules.yml"))]
    subprocess.run([promtool, "check", "rules", *files], check=True, capture_output=True)
