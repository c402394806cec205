"""The Java side: Pulsar's jar of tests, our base classes in front of it, and a JVM for each class."""

from __future__ import annotations

import json
import os
import re
import subprocess
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pulsar_on_kafka.embedded.jar_cache import JarSet, cached
from pulsar_on_kafka.embedded.java import find_java
from tests.builds import built
from tests.compat.broker_tests.suite import Seen, merged
from tests.compat.pulsar_standalone.jars import pulsar_jars
from tests.compat.pulsar_standalone.releases import PULSAR_4
from tests.compat.pulsar_standalone.standalone import OPENED

_PACKAGE: Final = "org.apache.pulsar."
_SOURCES: Final = Path(__file__).with_name("java")
_TESTS: Final = f"pulsar-broker-{PULSAR_4.version}-tests.jar"
_MOCKITO: Final = "5.19.0"
_OF_CLIENTS: Final = re.compile(r"org/apache/pulsar/(client/(?:api|impl)/\w+Test)\.class")
_METHOD_S: Final = 90.0
"""Of a test that has no limit of its own: some wait for the minute after which a refused message comes again."""
_CLASS_S: Final = 1200.0
_LOG_END: Final = 3000


class ClassDidNotEnd(Exception):
    """A class that was not run to its end; the message ends in what its JVM said last."""


@dataclass(frozen=True, slots=True)
class JavaSide:
    class_path: str
    agent: Path
    folder: Path
    """Where tests find `src/test/resources`."""
    running: set[subprocess.Popen[bytes]] = field(default_factory=set)

    def play(self, name: str, service_url: str, web_url: str) -> list[Seen]:
        """Run a class on a gateway, whose namespaces are all deleted.

        Raises:
            ClassDidNotEnd: it took too long, or its JVM ended by itself. Nothing is known of what it had not begun.
        """
        outcome, log = self.folder / f"{name}.jsonl", self.folder / f"{name}.log"
        command = [
            find_java().executable,
            *("-ea", "-Xmx1g", "-XX:MaxDirectMemorySize=1g", *OPENED),
            *("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"),  # it is over before more would pay
            f"-javaagent:{self.agent}",
            "-Dio.netty.tryReflectionSetAccessible=true",
            "-Dlog4j2.level=WARN",
            f"-Dpok.service={service_url}",
            f"-Dpok.web={web_url}",
            *("-cp", self.class_path, "pok.RunTests"),
            *(_PACKAGE + name, str(outcome), str(round(_METHOD_S * 1000))),
        ]
        with log.open("wb") as sink:
            running = subprocess.Popen(command, cwd=self.folder, stdout=sink, stderr=subprocess.STDOUT)
            self.running.add(running)
            try:
                how = f"ended with {running.wait(_CLASS_S)}"
            except subprocess.TimeoutExpired:
                how = f"did not end in {_CLASS_S:.0f} s"
            finally:
                running.kill()
                running.wait()
                self.running.discard(running)
        if running.returncode != 0:
            raise ClassDidNotEnd(f"{name} {how}: {log.read_text(encoding='utf-8', errors='replace')[-_LOG_END:]}")
        return merged(map(json.loads, outcome.read_text(encoding="utf-8").splitlines()))

    def stop(self) -> None:
        """End the classes that run."""
        for each in list(self.running):
            each.kill()


def classes_of_clients() -> Iterator[str]:
    """The names of all test classes of Pulsar's packages `client.api` and `client.impl`."""
    with zipfile.ZipFile(_test_jars() / _TESTS) as jar:
        for file in jar.namelist():
            found = _OF_CLIENTS.fullmatch(file)
            if found:
                yield found[1].replace("/", ".")


def java_side(folder: Path) -> JavaSide:
    """Fetched and compiled, if that was not done before.

    Raises:
        EmbeddedBrokerError, Missing: jars, a Java or its compiler are not to be had.
    """
    tests, pulsar = _test_jars(), pulsar_jars()
    jars = f"{tests}/*{os.pathsep}{pulsar}/*"

    def command(out: Path) -> list[str]:
        sources = map(str, sorted(out.rglob("*.java")))
        return ["javac", "-nowarn", "-encoding", "UTF-8", "-d", str(out / "classes"), "-cp", jars, *sources]

    classes = built(f"broker-tests-{PULSAR_4.version}", _SOURCES, ("javac",), command) / "classes"
    resources = folder / "src" / "test" / "resources"
    with zipfile.ZipFile(tests / _TESTS) as jar:
        jar.extractall(resources, [each for each in jar.namelist() if not each.endswith((".class", "/"))])
    class_path = os.pathsep.join((str(classes), str(resources), jars))
    return JavaSide(class_path, tests / f"mockito-core-{_MOCKITO}.jar", folder)


def _test_jars() -> Path:
    """What tests need besides Pulsar's own jars, as its POM of this version says."""
    coordinates = (
        f"org.apache.pulsar:pulsar-broker:jar:tests:{PULSAR_4.version}",
        f"org.apache.pulsar:buildtools:{PULSAR_4.version}",
        f"org.apache.pulsar:testmocks:{PULSAR_4.version}",
        "org.testng:testng:7.7.1",
        f"org.mockito:mockito-core:{_MOCKITO}",
        "net.bytebuddy:byte-buddy-agent:1.17.7",
        "org.objenesis:objenesis:3.3",
        "org.assertj:assertj-core:3.27.5",
        "org.awaitility:awaitility:4.2.0",
        "org.hamcrest:hamcrest:2.2",
        "io.opentelemetry:opentelemetry-sdk-testing:1.45.0",
    )
    jars = JarSet(
        name=f"pulsar-broker-tests-{PULSAR_4.version}",
        title=f"the tests of Apache Pulsar {PULSAR_4.version}",
        size_mb=11,
        alone=coordinates,
        fewest=len(coordinates),
        needed=(_TESTS,),
    )
    return cached(jars) / "libs"
