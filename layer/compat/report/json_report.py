"""A report for programs."""

from __future__ import annotations

from typing import Any

from pulsar_on_kafka.compat.compare import Comparison, CompatReport, ScenarioVerdict
from pulsar_on_kafka.compat.history import SideResult


def json_report(report: CompatReport) -> dict[str, Any]:
    """`verdict` is agree, differ, explained, not supported or not played; `seconds` are measured.

    `driven_by` says by which client each side was moved, as in `SideResult`; at the top, how many scenarios by which.
    """
    return {
        "pulsar": report.pulsar,
        "kafka": report.kafka,
        "seconds": round(report.seconds, 1),
        "ok": report.ok,
        "agreement": round(report.agreement, 4),
        "counts": {verdict.value: report.count(verdict) for verdict in ScenarioVerdict},
        "areas": {
            area: {verdict.value: counts[verdict] for verdict in ScenarioVerdict}
            for area, counts in report.areas().items()
        },
        "driven_by": dict(sorted(report.driven().items())),
        "stale": list(report.stale),
        "scenarios": [_scenario(found) for found in report.comparisons],
    }


def _scenario(found: Comparison) -> dict[str, Any]:
    return {
        "name": found.scenario.name,
        "area": found.scenario.area,
        "title": found.scenario.title,
        "verdict": found.verdict.value,
        "reason": found.reason,
        "diff": found.diff if found.verdict is not ScenarioVerdict.AGREE else [],
        "pulsar": _side(found.pulsar),
        "kafka": _side(found.kafka),
    }


def _side(side: SideResult) -> dict[str, Any]:
    return {
        "ending": side.ending.value,
        "reason": side.reason,
        "detail": side.detail,
        "seconds": round(side.seconds, 2),
        "driven_by": list(side.driven_by),
        "history": [{"what": event.what, "value": event.value} for event in side.events],
    }
