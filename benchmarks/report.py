"""The report as Markdown."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.kept import GroupResult
from benchmarks.model import Group
from benchmarks.plan import GROUPS
from benchmarks.verdict import Judgement, series

_NOT_SHOWN = frozenset({"messages", "took_s"})


def render(
    facts: Mapping[str, str],
    results: Mapping[str, GroupResult],
    verdicts: Sequence[Judgement],
    notes: Sequence[str],
) -> str:
    """`results` by the groups' names."""
    newest = max(results.values(), key=lambda result: (bool(result.settings), result.sitting.began))
    parts = (_head(facts, notes), _requirements(verdicts), _figures(results), _settings(newest.settings))
    return "\n".join(itertools.chain.from_iterable(parts)) + "\n"


def _head(facts: Mapping[str, str], notes: Sequence[str]) -> Iterator[str]:
    yield "# Benchmark tables"
    yield ""
    yield "Written by `python -m benchmarks`; do not edit. The method is in `benchmarks/method.md`."
    yield ""
    yield from (f"**{note}**\n" for note in notes)
    yield "| machine | |"
    yield "|---|---|"
    yield from (f"| {name} | {value} |" for name, value in facts.items())
    yield ""


def _requirements(verdicts: Sequence[Judgement]) -> Iterator[str]:
    yield "## Required"
    yield ""
    yield "| what | ours | beside | ratio or difference | required | met |"
    yield "|---|---:|---:|---:|---|---|"
    for verdict in verdicts:
        required = verdict.requirement.rule.value.format(f"{verdict.requirement.threshold:g}")
        met = {True: "yes", False: "**no**", None: "-"}[verdict.met]
        figures = [_number(figure) for figure in (verdict.ours, verdict.beside, verdict.figure)]
        note = f" ({verdict.note})" if verdict.note else ""
        yield f"| {verdict.requirement.text} | {' | '.join(figures)} | {required} | {met}{note} |"
    yield ""


def _figures(results: Mapping[str, GroupResult]) -> Iterator[str]:
    yield "## Measured"
    for group in GROUPS:
        if group.name in results:
            yield from _group(group, results[group.name])


def _group(group: Group, result: GroupResult) -> Iterator[str]:
    outcomes = result.outcomes
    cells = {cell.name: outcomes[name] for cell in group.cells if (name := f"{group.name}/{cell.name}") in outcomes}
    yield ""
    yield f"### {group.title}"
    yield ""
    yield f"{result.sitting}."
    yield ""
    yield "| cell | messages | figure | median | all rounds |"
    yield "|---|---:|---|---:|---|"
    for cell, outcome in cells.items():
        if outcome.failure is not None:
            yield f"| {group.name}/{cell} | | **failed** | | {outcome.failure} |"
            continue
        head = f"{group.name}/{cell} | {outcome.rounds[0]['messages']:,}"
        for metric in (name for name in outcome.rounds[0] if name not in _NOT_SHOWN):
            readings = series(outcome, metric)
            rounds = ", ".join(_number(reading) for reading in readings)
            yield f"| {head} | {metric} | {_number(statistics.median(readings))} | {rounds} |"
            head = "|"


def _settings(settings: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    if settings:
        yield from ("", "## Settings")
    for kind, config in settings.items():
        shown = (f"{name}={value}" for name, value in sorted(config.items()) if name != "bootstrap.servers")
        yield from ("", f"Raw {kind} settings:", "", "```text", *shown, "```")


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
