"""Two ways to resolve the broker's jars into a directory: Maven, and the Apache Ivy that pyspark ships."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from pulsar_on_kafka.embedded.errors import DownloadFailed
from pulsar_on_kafka.embedded.java import find_java

KAFKA_VERSION: Final = "4.3.1"
LOG4J_VERSION: Final = "2.24.3"
COORDINATES: Final = (
    ("org.apache.kafka", "kafka_2.13", KAFKA_VERSION),
    ("org.apache.logging.log4j", "log4j-slf4j-impl", LOG4J_VERSION),
    ("org.apache.logging.log4j", "log4j-core", LOG4J_VERSION),
)
TOOLS: Final = ("org.apache.kafka", "kafka-tools", KAFKA_VERSION)
"""Kafka's own command-line tools, without their dependencies: what the ones for topics and groups need is there."""
_TIMEOUT_S: Final = 900.0
_LINES_OF_OUTPUT: Final = 5

Fetch: TypeAlias = Callable[[Path, Path], None]


@dataclass(frozen=True, slots=True)
class Downloader:
    """`fetch(libs, work)` puts all jars into `libs` and what it needs besides into `work`.

    Raises `DownloadFailed` with the last lines of the tool's output.
    """

    name: str
    fetch: Fetch


def available() -> Iterator[Downloader]:
    """The downloaders that this machine has, the faster one first."""
    mvn = shutil.which("mvn")
    if mvn:
        yield Downloader("Maven", lambda libs, work: _with_maven(mvn, libs, work))
    ivy = _ivy_jar()
    if ivy:
        yield Downloader("Ivy", lambda libs, work: _with_ivy(ivy, libs, work))


def _ivy_jar() -> Path | None:
    """The Ivy inside an installed pyspark, found without importing it."""
    package = importlib.util.find_spec("pyspark")
    if package is None or package.origin is None:
        return None
    return next(iter(sorted((Path(package.origin).parent / "jars").glob("ivy-*.jar"))), None)


def _with_maven(mvn: str, libs: Path, work: Path) -> None:
    pom = work / "pom.xml"
    pom.write_text(_pom(), encoding="utf-8")
    goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={libs}"]
    _run("Maven", [mvn, "-q", "-B", "-f", str(pom), *goal], work)


def _pom() -> str:
    alone = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version>{more}"
        "</dependency>"
        for (group, name, version), more in [*((each, "") for each in COORDINATES), (TOOLS, alone)]
    )
    return (
        "<project><modelVersion>4.0.0</modelVersion><groupId>local</groupId><artifactId>broker</artifactId>"
        f"<version>1</version><packaging>pom</packaging><dependencies>{dependencies}</dependencies></project>"
    )


def _with_ivy(ivy: Path, libs: Path, work: Path) -> None:
    module = work / "ivy.xml"
    module.write_text(_ivy_module(), encoding="utf-8")
    # Its own cache: one that another tool left half filled makes Ivy fail.
    where = ["-ivy", str(module), "-cache", str(work / "ivy-cache")]
    what = ["-confs", "default", "-types", "jar", "bundle", "-retrieve", f"{libs}/[artifact]-[revision].[ext]"]
    _run("Ivy", [find_java().executable, "-jar", str(ivy), *where, *what], work)


def _ivy_module() -> str:
    dependencies = "".join(
        f'<dependency org="{group}" name="{name}" rev="{version}" conf="default" transitive="{transitive}"/>'
        for (group, name, version), transitive in [*((each, "true") for each in COORDINATES), (TOOLS, "false")]
    )
    return (
        '<ivy-module version="2.0"><info organisation="local" module="broker" revision="1"/>'
        '<configurations><conf name="default"/></configurations>'
        f"<dependencies>{dependencies}</dependencies></ivy-module>"
    )


def _run(tool: str, command: list[str], work: Path) -> None:
    output = work / "output.txt"
    with output.open("wb") as sink:
        # A session of its own: a time-out ends whatever the tool started as well.
        process = subprocess.Popen(
            command, cwd=work, stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            status = process.wait(_TIMEOUT_S)
        except BaseException:  # no process is left behind, also when it is interrupted
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
    if status != 0:
        raise DownloadFailed(f"{tool} ended with {status}: {last_lines(output, _LINES_OF_OUTPUT)}")


def last_lines(file: Path, count: int) -> str:
    """The last lines that say something, joined into one, without a Java stack's frames; "" without such a file."""
    if not file.exists():
        return ""
    lines = [line.strip() for line in file.read_text(encoding="utf-8", errors="replace").splitlines()]
    return " | ".join([line for line in lines if line and not line.startswith(("at ", "... "))][-count:])
