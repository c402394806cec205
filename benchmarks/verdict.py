"""Outcomes against requirements. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from benchmarks.model import Requirement, Rule
from benchmarks.session import Outcome

CORES_END: Final = 0.9
"""Above this share of the machine's cores nothing grows any more: they wait for one another."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """`met` is None for what was not part of this run."""

    requirement: Requirement
    ours: float | None
    beside: float | None
    figure: float | None
    met: bool | None
    note: str = ""


def judge(requirement: Requirement, outcomes: Mapping[str, Outcome]) -> Judgement:
    wanted = [requirement.ours, *([requirement.beside] if requirement.beside else [])]
    if any(name not in outcomes for name in wanted):
        return Judgement(requirement, None, None, None, None, "not part of this run")
    failures = [f"{name}: {outcomes[name].failure}" for name in wanted if outcomes[name].failure]
    if failures:
        return Judgement(requirement, None, None, None, False, "; ".join(failures))
    metrics = [requirement.metric, *(["cores_busy"] if requirement.until_cores_end else [])]
    if any(metric not in result for name in wanted for result in outcomes[name].rounds for metric in metrics):
        return Judgement(requirement, None, None, None, None, "measured before this figure was")
    readings = series(outcomes[requirement.ours], requirement.metric)
    ours = max(readings) if requirement.rule is Rule.BELOW else statistics.median(readings)
    if requirement.beside is None:
        return Judgement(requirement, ours, None, ours, ours < requirement.threshold)
    beside = statistics.median(series(outcomes[requirement.beside], requirement.metric))
    if requirement.until_cores_end:
        busy = statistics.median(series(outcomes[requirement.ours], "cores_busy"))
        if busy >= CORES_END and ours < requirement.threshold * beside:
            return Judgement(
                requirement, ours, beside, ours / beside, None, f"the machine's cores ended: {busy:.0%} busy"
            )
    if requirement.rule is Rule.RATIO_AT_LEAST:
        return Judgement(requirement, ours, beside, ours / beside, ours / beside >= requirement.threshold)
    if requirement.rule is Rule.RATIO_AT_MOST:
        return Judgement(requirement, ours, beside, ours / beside, ours / beside <= requirement.threshold)
    return Judgement(requirement, ours, beside, ours - beside, ours - beside <= requirement.threshold)


def series(outcome: Outcome, metric: str) -> Sequence[float]:
    return [float(result[metric]) for result in outcome.rounds]
