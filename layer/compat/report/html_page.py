"""A report as one HTML file that needs nothing else."""

from __future__ import annotations

from html import escape
from typing import Final

from pulsar_on_kafka.compat.compare import Comparison, CompatReport, ScenarioVerdict
from pulsar_on_kafka.compat.report.terminal import summary

_STYLE: Final = """
:root { color-scheme: light dark }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 70em; margin: 2em auto; padding: 0 1em }
table { border-collapse: collapse } td, th { padding: .2em .9em; text-align: right }
td:first-child, th:first-child { text-align: left }
tr { border-bottom: 1px solid #8884 } .zero { opacity: .35 }
.verdict { border-radius: .4em; padding: .1em .5em; font-size: 85%; color: #fff; white-space: nowrap }
.agree { background: #2a7d46 } .differ { background: #b3261e } .explained { background: #8a6d00 }
 .not-supported { background: #3b6ea5 } .not-played { background: #7a4b8f }
details { border-bottom: 1px solid #8884; padding: .3em 0 } summary { cursor: pointer } code { font-size: 90% }
pre { overflow-x: auto; padding: .7em; background: #8882; font-size: 13px; line-height: 1.4 }
.added { color: #2a9d56 } .removed { color: #d6453d } .reason, .driver { opacity: .8 }
"""


def html_page(report: CompatReport) -> str:
    return "\n".join(
        [
            '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8"/>',
            f"<title>Compatibility</title>\n<style>{_STYLE}</style>\n</head>\n<body>",
            "<h1>Compatibility with Pulsar</h1>",
            f"<p>{escape(summary(report))}</p>",
            f"<p>Pulsar: <code>{escape(report.pulsar)}</code>, Kafka: <code>{escape(report.kafka)}</code></p>",
            *(f"<p>Stale explanation: {escape(line)}</p>" for line in report.stale),
            _table(report),
            *(_area(report, area) for area in report.areas()),
            "</body>\n</html>\n",
        ]
    )


def _table(report: CompatReport) -> str:
    head = "".join(f"<th>{verdict.value}</th>" for verdict in ScenarioVerdict)
    rows = [
        f'<tr><td><a href="#{escape(area)}">{escape(area)}</a></td>'
        + "".join(_count(counts[v]) for v in ScenarioVerdict)
        + "</tr>"
        for area, counts in report.areas().items()
    ]
    total = "".join(f"<th>{report.count(verdict)}</th>" for verdict in ScenarioVerdict)
    return f"<table><tr><th>area</th>{head}</tr>\n" + "\n".join(rows) + f"\n<tr><th>all</th>{total}</tr></table>"


def _count(number: int) -> str:
    return f"<td>{number}</td>" if number else '<td class="zero">0</td>'


def _area(report: CompatReport, area: str) -> str:
    found = [_scenario(comparison) for comparison in report.comparisons if comparison.scenario.area == area]
    return f'<h2 id="{escape(area)}">{escape(area)}</h2>\n' + "\n".join(found)


def _scenario(found: Comparison) -> str:
    verdict = found.verdict
    name = escape(found.scenario.name)
    reason = f'<p class="reason">{escape(found.reason)}</p>' if found.reason else ""
    opened = ' open="open"' if verdict is ScenarioVerdict.DIFFER else ""
    return (
        f'<details{opened}><summary><span class="verdict {verdict.value.replace(" ", "-")}">{verdict.value}</span> '
        f"{escape(found.scenario.title)} <code>{name}</code>{_driver(found)}</summary>\n"
        f"{reason}{_histories(found)}</details>"
    )


def _driver(found: Comparison) -> str:
    driven_by = escape(" + ".join(found.pulsar.driven_by))
    return f' <small class="driver">Pulsar by {driven_by}</small>' if driven_by else ""


def _histories(found: Comparison) -> str:
    lines = found.diff or found.pulsar.lines()
    shown = "\n".join(_line(line) for line in lines)
    details = [
        f"<p>{name} said:</p><pre>{escape(side.detail)}</pre>"
        for name, side in (("Pulsar", found.pulsar), ("Kafka", found.kafka))
        if side.detail
    ]
    return f"<pre>{shown}</pre>" + "".join(details)


def _line(line: str) -> str:
    kind = {"+": "added", "-": "removed"}.get(line[:1])
    return f'<span class="{kind}">{escape(line)}</span>' if kind else escape(line)
