"""A report as a table for people, as JSON for programs, as JUnit XML and as one HTML file that needs nothing else.

JUnit XML has a suite for each area: a difference is a failure, what is not supported or was not played is skipped, an
explained difference passes and says why.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from html import escape
from typing import Any, Final

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pulsar_on_kafka.base.text import counted
from tests.compat.harness.compare import Comparison, CompatReport, ScenarioVerdict
from tests.compat.harness.history import SideResult
from tests.compat.harness.scenario import PulsarClient

_STYLES: Final = {
    ScenarioVerdict.AGREE: "green",
    ScenarioVerdict.DIFFER: "bold red",
    ScenarioVerdict.EXPLAINED: "yellow",
    ScenarioVerdict.NOT_SUPPORTED: "cyan",
    ScenarioVerdict.NOT_PLAYED: "magenta",
}
_DIFF_STYLES: Final = {"+": "green", "-": "red", "@": "dim"}
_FOLDED_WIDTH: Final = 200


def show_report(report: CompatReport, console: Console) -> None:
    if not console.is_terminal:
        console.width = _FOLDED_WIDTH
    for verdict in (ScenarioVerdict.NOT_PLAYED, ScenarioVerdict.NOT_SUPPORTED, ScenarioVerdict.EXPLAINED):
        _show_reasons(report, verdict, console)
    for found in report.comparisons:
        if found.verdict is ScenarioVerdict.DIFFER:
            _show_difference(found, console)
    console.print(_table(report))
    driven = ", ".join(f"{count} {client}" for client, count in report.driven().most_common())
    console.print(Text(f"{_pulsar(report)} was driven by: {driven or 'nothing'} (scenarios)", style="dim"))
    if report.repeated:
        console.print(Text(f"played once more, as they differed: {', '.join(report.repeated)}", style="dim"))
    for line in report.stale:
        console.print(Text(f"stale explanation: {line}", style="yellow"))
    console.print(Text(summary(report), style="green" if report.ok else "bold red"))


def _pulsar(report: CompatReport) -> str:
    return f"Pulsar {report.version}".rstrip()


def summary(report: CompatReport) -> str:
    """One line."""
    counts = ", ".join(f"{report.count(verdict)} {verdict.value}" for verdict in ScenarioVerdict)
    played = counted(len(report.comparisons), "scenario")
    return f"{played}: {counts} ({report.agreement:.1%} agree) in {report.seconds:.0f} s"


def _table(report: CompatReport) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False, show_footer=True)
    table.add_column("area", footer="all")
    for verdict in ScenarioVerdict:
        total = report.count(verdict)
        table.add_column(
            verdict.value, justify="right", footer=Text(str(total), style=_STYLES[verdict] if total else "")
        )
    for area, counts in report.areas().items():
        cells = (Text(str(counts[v] or "·"), style=_STYLES[v] if counts[v] else "dim") for v in ScenarioVerdict)
        table.add_row(area, *cells)
    return table


def _show_reasons(report: CompatReport, verdict: ScenarioVerdict, console: Console) -> None:
    for found in report.comparisons:
        if found.verdict is verdict:
            console.print(
                Text.assemble(
                    (verdict.value, _STYLES[verdict]), f"  {found.scenario.name}: {found.reason}", _driver(found)
                )
            )


def _driver(found: Comparison) -> tuple[str, str]:
    """Beside scenarios that another client than Python's drove."""
    if found.scenario.client is PulsarClient.PYTHON:
        return ("", "")
    return (f"  [{found.scenario.client.value} client]", "dim")


def _show_difference(found: Comparison, console: Console) -> None:
    console.print(
        Text.assemble(
            ("\ndiffers", _STYLES[ScenarioVerdict.DIFFER]),
            f"  {found.scenario.name}: {found.scenario.title}",
            _driver(found),
        )
    )
    for line in found.diff or [found.reason]:
        console.print(Text(f"  {line}", style=_DIFF_STYLES.get(line[:1], "")))
    for name, side in (("Pulsar", found.pulsar), ("Kafka", found.kafka)):
        if side.detail:
            console.print(Text(f"  {name} said:\n    " + side.detail.replace("\n", "\n    "), style="dim"))


def json_report(report: CompatReport) -> dict[str, Any]:
    """`verdict` is agree, differ, explained, not supported or not played; `seconds` are measured.

    `driven_by` says by which client each side was moved, as in `SideResult`; at the top, how many scenarios by which.
    """
    return {
        "pulsar": report.pulsar,
        "pulsar_version": report.version,
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
        "repeated": list(report.repeated),
        "scenarios": [_json_scenario(found) for found in report.comparisons],
    }


def _json_scenario(found: Comparison) -> dict[str, Any]:
    return {
        "name": found.scenario.name,
        "area": found.scenario.area,
        "title": found.scenario.title,
        "verdict": found.verdict.value,
        "reason": found.reason,
        "diff": found.diff if found.verdict is not ScenarioVerdict.AGREE else [],
        "pulsar": _json_side(found.pulsar),
        "kafka": _json_side(found.kafka),
    }


def _json_side(side: SideResult) -> dict[str, Any]:
    return {
        "ending": side.ending.value,
        "reason": side.reason,
        "detail": side.detail,
        "seconds": round(side.seconds, 2),
        "driven_by": list(side.driven_by),
        "history": [{"what": event.what, "value": event.value} for event in side.events],
    }


# XML 1.0 has no way to write these.
_NOT_XML: Final = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit_xml(report: CompatReport) -> str:
    root = ET.Element("testsuites", name="compat", time=f"{report.seconds:.1f}")
    for area, counts in report.areas().items():
        suite = ET.SubElement(
            root,
            "testsuite",
            name=f"compat.{area}",
            tests=str(sum(counts.values())),
            failures=str(counts[ScenarioVerdict.DIFFER]),
            errors="0",
            skipped=str(counts[ScenarioVerdict.NOT_SUPPORTED] + counts[ScenarioVerdict.NOT_PLAYED]),
        )
        properties = ET.SubElement(suite, "properties")
        ET.SubElement(properties, "property", name="pulsar version", value=_clean(report.version))
        for found in report.comparisons:
            if found.scenario.area == area:
                _junit_case(suite, found)
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _junit_case(suite: ET.Element, found: Comparison) -> None:
    case = ET.SubElement(
        suite,
        "testcase",
        classname=f"compat.{found.scenario.area}",
        name=_clean(found.scenario.name.removeprefix(f"{found.scenario.area}.")),
        time=f"{found.kafka.seconds:.2f}",
    )
    if found.pulsar.driven_by:
        properties = ET.SubElement(case, "properties")
        ET.SubElement(properties, "property", name="pulsar driven by", value=" + ".join(found.pulsar.driven_by))
    match found.verdict:
        case ScenarioVerdict.DIFFER:
            failure = ET.SubElement(case, "failure", message=_clean(found.reason))
            failure.text = _clean("\n".join(found.diff))
        case ScenarioVerdict.NOT_SUPPORTED | ScenarioVerdict.NOT_PLAYED:
            ET.SubElement(case, "skipped", message=_clean(found.reason))
        case ScenarioVerdict.EXPLAINED:
            ET.SubElement(case, "system-out").text = _clean(f"explained difference: {found.reason}")
        case ScenarioVerdict.AGREE:
            pass


def _clean(text: str) -> str:
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)


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
            (
                f"<p>{escape(_pulsar(report))}: <code>{escape(report.pulsar)}</code>, "
                f"Kafka: <code>{escape(report.kafka)}</code></p>"
            ),
            *(f"<p>Played once more: {escape(name)}</p>" for name in report.repeated),
            *(f"<p>Stale explanation: {escape(line)}</p>" for line in report.stale),
            _html_table(report),
            *(_html_area(report, area) for area in report.areas()),
            "</body>\n</html>\n",
        ]
    )


def _html_table(report: CompatReport) -> str:
    head = "".join(f"<th>{verdict.value}</th>" for verdict in ScenarioVerdict)
    rows = [
        f'<tr><td><a href="#{escape(area)}">{escape(area)}</a></td>'
        + "".join(_html_count(counts[v]) for v in ScenarioVerdict)
        + "</tr>"
        for area, counts in report.areas().items()
    ]
    total = "".join(f"<th>{report.count(verdict)}</th>" for verdict in ScenarioVerdict)
    return f"<table><tr><th>area</th>{head}</tr>\n" + "\n".join(rows) + f"\n<tr><th>all</th>{total}</tr></table>"


def _html_count(number: int) -> str:
    return f"<td>{number}</td>" if number else '<td class="zero">0</td>'


def _html_area(report: CompatReport, area: str) -> str:
    found = [_html_scenario(comparison) for comparison in report.comparisons if comparison.scenario.area == area]
    return f'<h2 id="{escape(area)}">{escape(area)}</h2>\n' + "\n".join(found)


def _html_scenario(found: Comparison) -> str:
    verdict = found.verdict
    name = escape(found.scenario.name)
    reason = f'<p class="reason">{escape(found.reason)}</p>' if found.reason else ""
    opened = ' open="open"' if verdict is ScenarioVerdict.DIFFER else ""
    return (
        f'<details{opened}><summary><span class="verdict {verdict.value.replace(" ", "-")}">{verdict.value}</span> '
        f"{escape(found.scenario.title)} <code>{name}</code>{_html_driver(found)}</summary>\n"
        f"{reason}{_html_histories(found)}</details>"
    )


def _html_driver(found: Comparison) -> str:
    driven_by = escape(" + ".join(found.pulsar.driven_by))
    return f' <small class="driver">Pulsar by {driven_by}</small>' if driven_by else ""


def _html_histories(found: Comparison) -> str:
    lines = found.diff or found.pulsar.lines()
    shown = "\n".join(_html_line(line) for line in lines)
    details = [
        f"<p>{name} said:</p><pre>{escape(side.detail)}</pre>"
        for name, side in (("Pulsar", found.pulsar), ("Kafka", found.kafka))
        if side.detail
    ]
    return f"<pre>{shown}</pre>" + "".join(details)


def _html_line(line: str) -> str:
    kind = {"+": "added", "-": "removed"}.get(line[:1])
    return f'<span class="{kind}">{escape(line)}</span>' if kind else escape(line)
