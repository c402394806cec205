"""The broker's jars: of a version that is fetched once per user, or of an unpacked Kafka distribution.

<user cache>/pulsar-on-kafka/
    kafka-4.4.0-with-tools/
        libs/*.jar, manifest.json                     (see `jar_cache`)
        formatted/, classes-<java>.jsa                by-products that make later starts quick
    kafka-4.4.0-of-<hash>/                            by-products alone, of a distribution
"""

from __future__ import annotations

import os
import re
import secrets
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

from pulsar_on_kafka.embedded.errors import EmbeddedBrokerError
from pulsar_on_kafka.embedded.jar_cache import Fetch, JarSet, cached, default_cache_dir
from pulsar_on_kafka.embedded.java import Java
from pulsar_on_kafka.embedded.settings import VERSION_VARIABLE, Progress, kafka_version, to_stderr

HOME_VARIABLE: Final = "POK_KAFKA_HOME"
"""The directory of an unpacked Kafka distribution, whose jars are used then."""
FEWEST_JARS: Final = 40  # 46 of Kafka 4.4.0
_LOG4J_VERSION: Final = "2.24.3"
_SLF4J_VERSION: Final = "1.7.36"


def jars_of(version: str) -> JarSet:
    """Kafka's server with its command-line tools, and the log4j that it logs by (version 1 before Kafka 4)."""
    new = int(version.partition(".")[0]) >= 4
    logging = (
        [f"org.apache.logging.log4j:{name}:{_LOG4J_VERSION}" for name in ("log4j-slf4j-impl", "log4j-core")]
        if new
        else [f"org.slf4j:slf4j-reload4j:{_SLF4J_VERSION}"]
    )
    exact = (f"{name}-{version}.jar" for name in ("kafka_2.13", "kafka-clients", "kafka-tools"))
    return JarSet(
        name=f"kafka-{version}-with-tools",
        title=f"Apache Kafka {version}",
        size_mb=45,
        with_dependencies=(f"org.apache.kafka:kafka_2.13:{version}", *logging),
        # Without what they depend on: what the ones for topics and groups need is there.
        alone=(f"org.apache.kafka:kafka-tools:{version}",),
        fewest=FEWEST_JARS,
        needed=(*exact, *(("log4j-slf4j-impl-", "log4j-core-") if new else ("slf4j-reload4j-", "reload4j-"))),
        otherwise=f"unpack a Kafka distribution and name its directory with {HOME_VARIABLE}",
    )


@dataclass(frozen=True, slots=True)
class KafkaJars:
    """A complete set of jars, and a directory for what is derived from them."""

    home: Path
    libs: Path

    @property
    def class_path(self) -> str:
        """Every jar by name: the JVM's class archive does not work with a wildcard."""
        return os.pathsep.join(str(jar) for jar in sorted(self.libs.glob("*.jar")))

    @property
    def log_by(self) -> tuple[str, str]:
        """The file of the broker's logging, beside this module, and the JVM's option that names it."""
        if any(self.libs.glob("log4j-core-*.jar")):
            return "log4j2.xml", "-Dlog4j2.configurationFile="
        return "log4j.properties", "-Dlog4j.configuration=file:"


def kafka_jars(cache_dir: Path | None = None, progress: Progress = to_stderr, fetch: Fetch | None = None) -> KafkaJars:
    """The jars of POK_KAFKA_HOME, or of the version of POK_KAFKA_VERSION, which are fetched now if need be.

    Raises:
        NoDownloader, NoDiskSpace, DownloadFailed, EmbeddedBrokerError: the jars are missing and stay so.
    """
    given = os.environ.get(HOME_VARIABLE)
    if given:
        return _of_a_distribution(Path(given), cache_dir or default_cache_dir())
    home = cached(jars_of(kafka_version()), cache_dir, progress, fetch)
    return KafkaJars(home, home / "libs")


def _of_a_distribution(given: Path, cache_dir: Path) -> KafkaJars:
    libs = given.absolute() / "libs"
    found = [re.fullmatch(r"kafka_2\.1[23]-(\d[\w.-]*)\.jar", jar.name) for jar in sorted(libs.glob("kafka_2.1*.jar"))]
    version = next((each.group(1) for each in found if each), "")
    if not version:
        raise EmbeddedBrokerError(
            f"{HOME_VARIABLE}={given}: no libs/kafka_2.13-<version>.jar in it; name the directory of an unpacked Kafka "
            "distribution"
        )
    if os.environ.get(VERSION_VARIABLE) not in (None, "", version):
        raise EmbeddedBrokerError(
            f"{HOME_VARIABLE}={given} is Kafka {version}, and {VERSION_VARIABLE} requires {kafka_version()}: unset one"
        )
    home = cache_dir / f"kafka-{version}-of-{sha256(os.fsencode(libs)).hexdigest()[:12]}"
    home.mkdir(parents=True, exist_ok=True)
    return KafkaJars(home, libs)


@dataclass(frozen=True, slots=True)
class ClassArchive:
    """The JVM's archive of loaded classes, which all brokers of a user share, and the draft that the first one writes
    while it ends in order.

    It takes 0.8 s off a start of 1.9 s. A JVM that finds an archive of other jars or another JVM ignores it
    (-Xshare:auto).
    """

    file: Path
    draft: Path

    @classmethod
    def of(cls, jars: KafkaJars, java: Java) -> ClassArchive:
        file = jars.home / f"classes-{java.version}.jsa"
        return cls(file, file.with_name(f"{file.name}.{secrets.token_hex(4)}"))

    @property
    def is_missing(self) -> bool:
        return not self.file.exists()

    def jvm_option(self) -> str:
        return f"-XX:ArchiveClassesAtExit={self.draft}" if self.is_missing else f"-XX:SharedArchiveFile={self.file}"

    def settle(self, ended_in_order: bool) -> None:
        """Take over the draft of a JVM that ended in order; one that was killed may have written half of it."""
        if ended_in_order and self.draft.exists():
            self.draft.replace(self.file)
        self.draft.unlink(missing_ok=True)
