"""`pok doctor`: one line for each check, and exit code 1 when one fails."""

from __future__ import annotations

import platform
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from importlib import metadata
from typing import Annotated, Final

import typer

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.processes import is_over, stands_in
from pulsar_on_kafka.base.text import counted
from pulsar_on_kafka.broker.managed_ledger.deletion_topics import maintenance_group
from pulsar_on_kafka.broker.subscriptions.member.pooled import MemberClients
from pulsar_on_kafka.cli.doctor.cluster import (
    ANSWER_S,
    DoctorFinding,
    Status,
    advice,
    check_reachable,
    check_settings,
    check_state_topics,
    check_transactions,
    judge,
    ok,
    warn,
)
from pulsar_on_kafka.cli.doctor.data_topics import check_data_topics
from pulsar_on_kafka.cli.doctor.probe import probe
from pulsar_on_kafka.cli.doctor.state import check_state
from pulsar_on_kafka.cli.shared.output import (
    EXIT_FAILED,
    YesOption,
    is_coloured,
    news,
    one_line,
    write_json,
    write_line,
)
from pulsar_on_kafka.cli.shared.settings import Settings
from pulsar_on_kafka.client.values.texts import printable
from pulsar_on_kafka.embedded.errors import EmbeddedBrokerError
from pulsar_on_kafka.embedded.java import find_java
from pulsar_on_kafka.kafka.admin import KafkaAdmin
from pulsar_on_kafka.kafka.settings import KafkaSettings
from pulsar_on_kafka.kafka.wire.client import WireClient
from pulsar_on_kafka_mapping.state.instances import Instance

_COLOURS: Final = {Status.OK: typer.colors.GREEN, Status.WARN: typer.colors.YELLOW, Status.FAIL: typer.colors.RED}
OLDEST_LIBRDKAFKA: Final = (2, 16)
FILES_PER_READER: Final = 8  # measured: those that one consumer of librdkafka holds open
FEW_FILES: Final = 4096
_CLOSE_S: Final = 1.0
_TESTED_JAVA: Final = (17, 21)


def doctor(
    settings: Settings,
    try_it: Annotated[
        bool, typer.Option("--probe", help="Also try rights and clock out, on a topic that is deleted again.")
    ] = False,
    state: Annotated[bool, typer.Option("--state", help="Also read the state topics for what cannot be read.")] = False,
    tombstone: Annotated[
        bool, typer.Option("--tombstone", help="With --state: delete unreadable records. Requires --yes.")
    ] = False,
    yes: YesOption = False,
) -> None:
    """Examine this machine, this cluster and these rights: ok, warn or fail, and advice.

    Exit code 1 when a check fails.
    """
    if tombstone and not state:
        raise typer.BadParameter("it goes with --state", param_hint="--tombstone")
    if tombstone and not yes:
        raise typer.BadParameter("unreadable records are lost for good: use --yes", param_hint="--tombstone")
    findings = list(_examine(settings, try_it, state=state, tombstone=tombstone))
    if settings.json:
        write_json([asdict(finding) for finding in findings])
    else:
        _show(findings)
    if not try_it:
        news("rights and clocks are tried out with --probe only")
    if any(finding.status is Status.FAIL for finding in findings):
        raise typer.Exit(EXIT_FAILED)


def _show(findings: Sequence[DoctorFinding]) -> None:
    width = max(len(finding.check) for finding in findings)
    for finding in findings:
        status = f"{finding.status.value:<4}"
        if sys.stdout.isatty() and is_coloured():
            status = typer.style(status, fg=_COLOURS[finding.status], bold=True)
        write_line(f"{status}  {finding.check:<{width}}  {printable(finding.found)}")
        if finding.advice:
            write_line(f"{'':<{width + 6}}  -> {printable(finding.advice)}")


def _examine(settings: Settings, try_it: bool, *, state: bool, tombstone: bool) -> Iterator[DoctorFinding]:
    yield from check_machine()
    kafka = settings.kafka()
    yield check_subscriptions(kafka)
    admin = KafkaAdmin(kafka.common())
    try:
        reachable = check_reachable(admin, kafka.bootstrap)
        yield reachable
        if reachable.status is Status.FAIL:
            return
        yield from check_settings(admin)
        yield from check_state_topics(admin, kafka.instance)
        yield from check_data_topics(kafka, admin)
        yield from check_transactions(admin, kafka.instance)
        yield check_service(admin, kafka.instance)
        if state:
            yield from check_state(kafka, admin, tombstone=tombstone)
        if try_it:
            yield from probe(kafka, admin)
    finally:
        admin.close()


def check_subscriptions(kafka: KafkaSettings) -> DoctorFinding:
    """Whether subscriptions of a process share threads and connections, which some options and logins exclude."""
    wire = WireClient(kafka.common())
    try:
        MemberClients.check(kafka, wire)
    except errors.NotSupportedYet as failure:
        found = f"each takes a consumer of librdkafka, with five threads: {one_line(failure)}"
        return warn("subscriptions", found, "remove the option, or give each process fewer subscriptions")
    finally:
        wire.close(Deadline.after(_CLOSE_S))
    return ok("subscriptions", "share threads and connections")


def check_service(admin: KafkaAdmin, instance: Instance) -> DoctorFinding:
    """Reports the processes of the cluster's roles: a service, or clients in its stead."""
    group = maintenance_group(instance)
    try:
        members = admin.describe_group(group, Deadline.after(ANSWER_S)).members
    except errors.LayerError as failure:
        return warn("maintenance", one_line(failure), advice(failure, f"grant Describe on group {group}"))
    return judge_members(member.client_id for member in members if not is_over(member.client_id))


def judge_members(client_ids: Iterable[str]) -> DoctorFinding:
    """Judge the members that maintain the cluster, by their client ids."""
    there = list(client_ids)
    clients = sum(map(stands_in, there))
    services = len(there) - clients
    if services:
        return ok("maintenance", counted(services, "service"))
    if clients:
        return ok("maintenance", f"no service; {counted(clients, 'client')} in its stead")
    return ok("maintenance", "none now: run pok serve, or clients that live for minutes")


def check_machine() -> Iterator[DoctorFinding]:
    yield ok("python", f"{platform.python_version()} on {platform.system()} {platform.machine()}")
    yield check_librdkafka(metadata.version("confluent-kafka"))
    yield check_java()
    if sys.platform != "win32":
        import resource

        yield check_open_files(*resource.getrlimit(resource.RLIMIT_NOFILE))


def check_librdkafka(version: str) -> DoctorFinding:
    """`version` is confluent-kafka's, which is that of the librdkafka it brings."""
    numbers = tuple(int(number) for number in re.findall(r"\d+", version)[:2])
    return judge("librdkafka", numbers >= OLDEST_LIBRDKAFKA, version, "pip install -U 'confluent-kafka>=2.16,<3'")


def check_java() -> DoctorFinding:
    try:
        java = find_java()
    except EmbeddedBrokerError as error:
        found, _, advice = str(error).partition(": ")
        return warn("java", found, f"only `pok standalone` needs it: {advice}")
    major = int(java.version.partition(".")[0]) if java.version.partition(".")[0].isdigit() else 0
    return judge("java", major in _TESTED_JAVA, f"{java.version} at {java.executable}", "tested are 17 and 21")


def check_open_files(soft: int, hard: int) -> DoctorFinding:
    """Limits of the process; -1 is none."""
    if soft < 0:
        return ok("open files", "no limit")
    return judge(
        "open files",
        soft >= FEW_FILES,
        f"{soft:,} (hard limit {'none' if hard < 0 else f'{hard:,}'})",
        f"room for about {soft // FILES_PER_READER:,} readers a process: ulimit -n 65536",
    )
