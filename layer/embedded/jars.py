"""The broker's jars in a per-user cache: fetched once, whole or not at all, by one process at a time.

<user cache>/pulsar-on-kafka/
    kafka-4.3.1-with-tools.lock            held while fetching
    kafka-4.3.1-with-tools.partial-<pid>/  a download under way, or the remains of one
    kafka-4.3.1-with-tools/
        libs/*.jar
        manifest.json           name -> bytes, written last
        bootstrap.checkpoint, classes-<java>.jsa      by-products that make later starts quick
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import secrets
import shutil
import subprocess
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import platformdirs

from pulsar_on_kafka.embedded import download
from pulsar_on_kafka.embedded.download import KAFKA_VERSION, Downloader
from pulsar_on_kafka.embedded.errors import DownloadFailed, EmbeddedBrokerError, NoDiskSpace, NoDownloader
from pulsar_on_kafka.embedded.java import Java
from pulsar_on_kafka.embedded.settings import Progress, to_stderr

FEWEST_JARS: Final = 40  # 46 today
_NEEDED: Final = (
    f"kafka_2.13-{KAFKA_VERSION}.jar",
    f"kafka-clients-{KAFKA_VERSION}.jar",
    f"kafka-tools-{KAFKA_VERSION}.jar",
    "log4j-slf4j-impl-",
    "log4j-core-",
)
_ROOM_BYTES: Final = 250_000_000  # jars, Ivy's own copy of them, the class archive


@dataclass(frozen=True, slots=True)
class KafkaJars:
    """A complete set of jars and the directory beside them for what is derived from them."""

    home: Path

    @property
    def libs(self) -> Path:
        return self.home / "libs"

    @property
    def class_path(self) -> str:
        """Every jar by name: the JVM's class archive does not work with a wildcard."""
        return os.pathsep.join(str(jar) for jar in sorted(self.libs.glob("*.jar")))


def default_cache_dir() -> Path:
    return Path(platformdirs.user_cache_dir("pulsar-on-kafka", appauthor=False))


def kafka_jars(
    cache_dir: Path | None = None,
    progress: Progress = to_stderr,
    downloaders: Callable[[], Iterable[Downloader]] | None = None,
) -> KafkaJars:
    """The jars, fetched now if the cache does not hold all of them with the right sizes.

    Args:
        downloaders: what to try, in this order; None for what this machine has.
    Raises:
        NoDownloader, NoDiskSpace, DownloadFailed: the jars are missing and stay so.
    """
    jars = KafkaJars((cache_dir or default_cache_dir()) / f"kafka-{KAFKA_VERSION}-with-tools")
    if is_complete(jars):
        return jars
    with _disk_errors_named(jars.home), _fetching_alone(jars, progress):
        if not is_complete(jars):  # the process that we waited for may have done it
            _fetch(jars, progress, downloaders or download.available)
    return jars


def is_complete(jars: KafkaJars) -> bool:
    """Whether every jar of the manifest is there in its full size: 46 stat calls, cheap enough for every start."""
    try:
        manifest = json.loads((jars.home / "manifest.json").read_text(encoding="utf-8"))
        return all((jars.libs / name).stat().st_size == size for name, size in manifest.items())
    except (OSError, ValueError, AttributeError):
        return False


def discard_if_damaged(jars: KafkaJars) -> bool:
    """Check every byte of every jar; on damage drop the set, so that the next call fetches it. True if it did."""
    if _damage(jars.libs) is None:
        return False
    (jars.home / "manifest.json").unlink(missing_ok=True)
    return True


def _fetch(jars: KafkaJars, progress: Progress, downloaders: Callable[[], Iterable[Downloader]]) -> None:
    failures: list[str] = []
    for leftover in jars.home.parent.glob(f"{jars.home.name}.partial-*"):
        shutil.rmtree(leftover, ignore_errors=True)  # we hold the lock, so its writer is dead
    for downloader in downloaders():
        progress(f"fetching Apache Kafka {KAFKA_VERSION} with {downloader.name} (45 MB, once per user) ...")
        try:
            _fetch_with(downloader, jars)
        except (DownloadFailed, EmbeddedBrokerError, subprocess.TimeoutExpired) as failure:
            failures.append(str(failure))
        else:
            return
    if failures:
        raise DownloadFailed(
            f"Kafka's jars could not be fetched; check the network and try again: {' || '.join(failures)}"
        )
    raise NoDownloader(
        "Kafka's jars are not here yet and neither Maven nor pyspark is: "
        "`pip install 'pulsar-on-kafka[embedded]'`, or put mvn on the PATH"
    )


def _fetch_with(downloader: Downloader, jars: KafkaJars) -> None:
    partial = jars.home.with_name(f"{jars.home.name}.partial-{os.getpid()}")
    work, result = partial / "work", KafkaJars(partial / "result")
    try:
        work.mkdir(parents=True)
        result.libs.mkdir(parents=True)
        downloader.fetch(result.libs, work)
        damage = _damage(result.libs)
        if damage is not None:
            raise DownloadFailed(f"{downloader.name} brought a broken set of jars: {damage}")
        sizes = {jar.name: jar.stat().st_size for jar in sorted(result.libs.iterdir())}
        (result.home / "manifest.json").write_text(json.dumps(sizes, indent=1), encoding="utf-8")
        shutil.rmtree(jars.home, ignore_errors=True)
        result.home.rename(jars.home)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _damage(libs: Path) -> str | None:
    """The damage of a directory of jars, found by reading all of it; None if there is none."""
    jars = sorted(libs.glob("*.jar"))
    if len(jars) < FEWEST_JARS:
        return f"{len(jars)} jars instead of {FEWEST_JARS} or more"
    missing = [name for name in _NEEDED if not any(jar.name.startswith(name) for jar in jars)]
    if missing:
        return f"{missing[0]} is missing"
    return next((f"{jar.name} is damaged" for jar in jars if not _is_whole(jar)), None)


def _is_whole(jar: Path) -> bool:
    try:
        with zipfile.ZipFile(jar) as archive:
            return archive.testzip() is None
    except (zipfile.BadZipFile, OSError, EOFError):
        return False


@contextmanager
def _fetching_alone(jars: KafkaJars, progress: Progress) -> Iterator[None]:
    jars.home.parent.mkdir(parents=True, exist_ok=True)
    with jars.home.with_name(f"{jars.home.name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress("another process is fetching Apache Kafka; waiting for it ...")
            fcntl.flock(lock, fcntl.LOCK_EX)
        require_room(jars.home.parent, _ROOM_BYTES, "fetching Kafka", "point XDG_CACHE_HOME elsewhere")
        yield


def require_room(directory: Path, needed_bytes: int, what: str, otherwise: str) -> None:
    """Raises `NoDiskSpace` when less than `what` needs is free where `directory` lies; it says to free some, or
    `otherwise`."""
    free = shutil.disk_usage(directory).free
    if free < needed_bytes:
        raise NoDiskSpace(
            f"{directory} has {free // 1_000_000} MB free, {what} needs {needed_bytes // 1_000_000}: free some, or "
            f"{otherwise}"
        )


@contextmanager
def _disk_errors_named(home: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise NoDiskSpace(f"the disk of {home.parent} is full: free 250 MB and try again") from error
        raise EmbeddedBrokerError(
            f"the cache {home.parent} cannot be written ({error.strerror}): mend it, or point XDG_CACHE_HOME elsewhere"
        ) from error


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

    def jvm_option(self) -> str:
        return f"-XX:SharedArchiveFile={self.file}" if self.file.exists() else f"-XX:ArchiveClassesAtExit={self.draft}"

    def settle(self, ended_in_order: bool) -> None:
        """Take over the draft of a JVM that ended in order; one that was killed may have written half of it."""
        if ended_in_order and self.draft.exists():
            self.draft.replace(self.file)
        self.draft.unlink(missing_ok=True)
