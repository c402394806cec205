"""`pok compat`: the same scenarios on a Pulsar cluster and on a Kafka cluster."""

from __future__ import annotations

import importlib.util
import itertools
import json
import urllib.parse
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Console

from pulsar_on_kafka.base.text import counted
from pulsar_on_kafka.cli.shared.command import command
from pulsar_on_kafka.cli.shared.connection import require_listener
from pulsar_on_kafka.cli.shared.output import EXIT_FAILED, CommandFailed, news, show_list, write_json
from pulsar_on_kafka.cli.shared.settings import Settings
from tests.compat.harness.compare import OURS, BadDifferences, CompatReport, read_differences
from tests.compat.harness.driver import Target
from tests.compat.harness.history import Side
from tests.compat.harness.java import known_jars
from tests.compat.harness.report import html_page, json_report, junit_xml, show_report
from tests.compat.harness.runner import JOBS, NoAnswer, Session
from tests.compat.harness.scenario import Scenario, ScenarioError, choose, load
from tests.compat.harness.secured import NOT_GIVEN, BadSecured, SecuredSide, read_secured

app = typer.Typer(no_args_is_help=True)

_WEB_PORT: Final = 8080

_PATTERN = Annotated[
    str | None,
    typer.Option("--scenario", help="Only those whose name matches, as in 'seek.*', or holds this.", metavar="PATTERN"),
]
_FOLDERS = Annotated[
    list[Path] | None,
    typer.Option("--scenarios", help="A folder with scenarios of your own. May be repeated.", metavar="FOLDER"),
]
_FILE: Final[dict[str, Any]] = {"metavar": "FILE", "dir_okay": False, "show_default": False}


@dataclass(frozen=True)
class _Clusters:
    pulsar: Annotated[str, typer.Option("--pulsar", help="A Pulsar cluster: pulsar://host:port.", metavar="URL")]
    pulsar_admin: Annotated[
        str | None,
        typer.Option("--pulsar-admin", help="Its REST API.", metavar="URL", show_default="its host, port 8080"),
    ] = None
    kafka: Annotated[
        str | None,
        typer.Option(
            "--kafka", help="A Kafka cluster: kafka://host:port.", metavar="URL", show_default="that of --url"
        ),
    ] = None
    gateway: Annotated[
        str,
        typer.Option(
            "--gateway",
            help="A gateway to it, pulsar://host:port: official clients play there, in the place of the SDK.",
            metavar="URL",
        ),
    ] = ""

    def targets(self, settings: Settings, namespace: str, *, clean: bool) -> tuple[Target, Target]:
        options: dict[str, Any] = {"kafka_config": dict(settings.kafka_config), "instance": settings.instance}
        return (
            Target(Side.PULSAR, self.pulsar, self.pulsar_admin or _admin_of(self.pulsar), namespace, clean=clean),
            Target(Side.KAFKA, settings.url, "", namespace, options, clean=clean, gateway=self.gateway),
        )


@dataclass(frozen=True)
class _ReportFiles:
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the report as JSON.", **_FILE)] = None
    junit: Annotated[Path | None, typer.Option("--junit", help="Write it as JUnit XML.", **_FILE)] = None
    html: Annotated[Path | None, typer.Option("--html", help="Write it as one HTML file.", **_FILE)] = None

    def write(self, report: CompatReport) -> None:
        if self.json_file is not None:
            text = json.dumps(json_report(report), ensure_ascii=False, indent=1) + "\n"
            self.json_file.write_text(text, encoding="utf-8")
        if self.junit is not None:
            self.junit.write_text(junit_xml(report), encoding="utf-8")
        if self.html is not None:
            self.html.write_text(html_page(report), encoding="utf-8")


@command(app, "list")
def list_scenarios(settings: Settings, scenario: _PATTERN = None, scenarios: _FOLDERS = None) -> None:
    """List the scenarios."""
    chosen, _ = _scenarios(scenario, scenarios)
    fields = ("name", "area", "title", "secured")
    told = [{**{f: getattr(found, f) for f in fields}, "client": found.client.value} for found in chosen]
    rows = [(found.name, found.client.value, found.title) for found in chosen]
    show_list(settings, told, ("name", "client", "title"), rows)


@command(app, "run")
def run(
    settings: Settings,
    *,
    clusters: _Clusters,
    scenario: _PATTERN = None,
    scenarios: _FOLDERS = None,
    namespace: Annotated[str, typer.Option("--namespace", help="Where the topics are made.")] = "public/default",
    differences: Annotated[
        Path | None,
        typer.Option("--differences", help="Explained differences, TOML.", show_default="ours", dir_okay=False),
    ] = None,
    files: _ReportFiles,
    secured: Annotated[
        Path | None,
        typer.Option("--secured", help="Clusters with TLS, tokens and rights, as JSON; see docs/compat.md.", **_FILE),
    ] = None,
    not_secured: Annotated[str, typer.Option("--not-secured", help="Why there are none.", hidden=True)] = NOT_GIVEN,
    pulsar_jars: Annotated[
        Path | None,
        typer.Option(
            "--pulsar-jars",
            help="The `lib` folder of a Pulsar, for scenarios of the Java client.",
            metavar="FOLDER",
            file_okay=False,
            show_default="the cache of `make compat`",
        ),
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", min=1, max=64, help="Worker processes at a time.")] = JOBS,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the topics that were made.")] = False,
) -> None:
    """Play scenarios on both clusters and say where they differ.

    Ends with 1 when something differs that is not explained. Scenarios make topics of their own
    and delete them afterwards, also when Ctrl-C ends the run; nothing else is touched.
    """
    settings = replace(settings, url=clusters.kafka or settings.url)
    if importlib.util.find_spec("pulsar") is None:
        raise CommandFailed("the official client is not installed: pip install 'pulsar-on-kafka[compat]'")
    require_listener(settings.bootstrap)
    chosen, known = _scenarios(scenario, scenarios)
    try:
        explained = read_differences(differences or OURS)
        sides = None if secured is None else read_secured(secured)
    except (BadDifferences, BadSecured) as error:
        raise CommandFailed(str(error)) from error
    if sides is not None and bool(clusters.gateway) is not bool(sides[1].gateway):
        raise CommandFailed(f"{secured}: expected kafka.gateway beside --gateway, and only there")
    with_rights = not_secured if sides is None else _secured_targets(*sides, namespace, clean=not keep)
    targets = clusters.targets(settings, namespace, clean=not keep)
    session = Session(*targets, tuple(scenarios or ()), jobs, with_rights, pulsar_jars or known_jars())
    try:
        session.ask_all()
        version = session.pulsar_version()
    except NoAnswer as silent:
        raise CommandFailed(str(silent)) from silent
    explanations = explained.beside(version, of_gateway=bool(clusters.gateway))
    report = session.run(chosen, known, explanations, _progress(len(chosen)), version)
    files.write(report)
    _show(settings, report)
    if not report.ok:
        raise typer.Exit(EXIT_FAILED)


def _progress(total: int) -> Callable[[object], None]:
    """To be called when a scenario has been played."""
    played = itertools.count(1)

    def progress(found: object) -> None:
        finished = next(played)
        if finished % 20 == 0 or finished == total:
            news(f"{finished} of {counted(total, 'scenario')} played")

    return progress


def _secured_targets(pulsar: SecuredSide, kafka: SecuredSide, namespace: str, *, clean: bool) -> tuple[Target, Target]:
    return (
        Target(Side.PULSAR, pulsar.url, pulsar.admin_url, namespace, clean=clean, logins=pulsar.logins),
        Target(Side.KAFKA, kafka.url, "", namespace, clean=clean, logins=kafka.logins, gateway=kafka.gateway),
    )


def _scenarios(pattern: str | None, folders: list[Path] | None) -> tuple[list[Scenario], Mapping[str, Scenario]]:
    try:
        known = load(folders or ())
        return choose(known.values(), pattern), known
    except ScenarioError as error:
        raise CommandFailed(str(error)) from error


def _admin_of(service_url: str) -> str:
    host = urllib.parse.urlsplit(service_url.partition(",")[0]).hostname
    if not host:
        raise typer.BadParameter(f"expected pulsar://host:port, got {service_url!r}", param_hint="--pulsar")
    return f"http://{host}:{_WEB_PORT}"


def _show(settings: Settings, report: CompatReport) -> None:
    if settings.json:
        write_json(json_report(report))
    else:
        show_report(report, Console(markup=False, highlight=False, emoji=False))
