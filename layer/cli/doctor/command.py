"""`pok doctor`: one line for each check, and exit code 1 when one fails."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Annotated, Final

import typer

from pulsar_on_kafka.cli.doctor.cluster import check_reachable, check_settings, check_state_topics
from pulsar_on_kafka.cli.doctor.machine import check_machine
from pulsar_on_kafka.cli.doctor.probe import probe
from pulsar_on_kafka.cli.doctor.report import Finding, Status
from pulsar_on_kafka.cli.doctor.service import check_service
from pulsar_on_kafka.cli.doctor.state import check_state
from pulsar_on_kafka.cli.doctor.transactions import check_transactions
from pulsar_on_kafka.cli.shared.command import command
from pulsar_on_kafka.cli.shared.failure import EXIT_FAILED
from pulsar_on_kafka.cli.shared.output import news, write_json, write_line
from pulsar_on_kafka.cli.shared.settings import Settings
from pulsar_on_kafka.cli.shared.values import printable
from pulsar_on_kafka.kafka.admin import KafkaAdmin

_COLOURS: Final = {Status.OK: typer.colors.GREEN, Status.WARN: typer.colors.YELLOW, Status.FAIL: typer.colors.RED}


def register(app: typer.Typer) -> None:
    command(app, "doctor")(doctor)


def doctor(
    settings: Settings,
    try_it: Annotated[
        bool, typer.Option("--probe", help="Also try rights and clock out, on a topic that is deleted again.")
    ] = False,
    state: Annotated[bool, typer.Option("--state", help="Also read the state topics for what cannot be read.")] = False,
    tombstone: Annotated[
        bool, typer.Option("--tombstone", help="With --state: take away what cannot be read. Wants --yes.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do it without asking.")] = False,
) -> None:
    """Examine this machine, this cluster and these rights: ok, warn or fail, and advice.

    Exit code 1 when a check fails.
    """
    if tombstone and not state:
        raise typer.BadParameter("it goes with --state", param_hint="--tombstone")
    if tombstone and not yes:
        raise typer.BadParameter("unreadable records are lost for good: say --yes", param_hint="--tombstone")
    findings = list(_examine(settings, try_it, state=state, tombstone=tombstone))
    if settings.json:
        write_json([asdict(finding) for finding in findings])
    else:
        _show(findings)
    if not try_it:
        news("rights and clocks are tried out with --probe only")
    if any(finding.status is Status.FAIL for finding in findings):
        raise typer.Exit(EXIT_FAILED)


def _show(findings: Sequence[Finding]) -> None:
    width = max(len(finding.check) for finding in findings)
    for finding in findings:
        status = f"{finding.status.value:<4}"
        if sys.stdout.isatty():
            status = typer.style(status, fg=_COLOURS[finding.status], bold=True)
        write_line(f"{status}  {finding.check:<{width}}  {printable(finding.found)}")
        if finding.advice:
            write_line(f"{'':<{width + 6}}  -> {printable(finding.advice)}")


def _examine(settings: Settings, try_it: bool, *, state: bool, tombstone: bool) -> Iterator[Finding]:
    yield from check_machine()
    kafka = settings.kafka()
    admin = KafkaAdmin(kafka.common())
    try:
        reachable = check_reachable(admin, kafka.bootstrap)
        yield reachable
        if reachable.status is Status.FAIL:
            return
        yield from check_settings(admin)
        yield from check_state_topics(admin, kafka.instance)
        yield from check_transactions(admin, kafka.instance)
        yield check_service(admin, kafka.instance)
        if state:
            yield from check_state(kafka, admin, tombstone=tombstone)
        if try_it:
            yield from probe(kafka, admin)
    finally:
        admin.close()
