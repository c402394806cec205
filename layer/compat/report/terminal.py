"""A report for people: a table of the areas, then each difference with its diff."""

from __future__ import annotations

from typing import Final

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pulsar_on_kafka.compat.compare import Comparison, CompatReport, ScenarioVerdict
from pulsar_on_kafka.compat.scenario import PulsarClient

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
    console.print(Text(f"Pulsar was driven by: {driven or 'nothing'} (scenarios)", style="dim"))
    for line in report.stale:
        console.print(Text(f"stale explanation: {line}", style="yellow"))
    console.print(Text(summary(report), style="green" if report.ok else "bold red"))


def summary(report: CompatReport) -> str:
    """One line."""
    counts = ", ".join(f"{report.count(verdict)} {verdict.value}" for verdict in ScenarioVerdict)
    return f"{len(report.comparisons)} scenarios: {counts} ({report.agreement:.1%} agree) in {report.seconds:.0f} s"


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
