"""Pulsar's jars in a per-user cache: fetched once by Maven, whole or not at all, by one process at a time.

<user cache>/pulsar-on-kafka/
    pulsar-4.0.7.lock            held while fetching
    pulsar-4.0.7.partial-<pid>/  a download under way, or the remains of one
    pulsar-4.0.7/libs/*.jar, manifest.json (name -> bytes, written last)
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Final

import platformdirs

from pulsar_on_kafka.embedded.download import last_lines
from pulsar_on_kafka.embedded.settings import Progress, to_stderr
from tests.compat.pulsar_standalone.errors import NoMaven, PulsarDownloadFailed, PulsarStandaloneError

PULSAR_VERSION: Final = "4.0.7"
_FEWEST_JARS: Final = 300  # 317 today
_TIMEOUT_S: Final = 1800.0
_ROOM_BYTES: Final = 700_000_000  # the jars, and Maven's own copy of them while it works


def pulsar_jars(cache_dir: Path | None = None, progress: Progress = to_stderr) -> Path:
    """The directory of the jars, fetched now if the cache does not hold all of them with the right sizes.

    Raises:
        NoMaven, PulsarDownloadFailed, PulsarStandaloneError: the jars are missing and stay so.
    """
    cache = cache_dir or Path(platformdirs.user_cache_dir("pulsar-on-kafka", appauthor=False))
    home = cache / f"pulsar-{PULSAR_VERSION}"
    if not _is_complete(home):
        try:
            with _fetching_alone(home, progress):
                if not _is_complete(home):  # the process that we waited for may have done it
                    _fetch(home, progress)
        except OSError as error:
            raise PulsarStandaloneError(
                f"the cache {cache} cannot be written ({error.strerror}): repair it, or point XDG_CACHE_HOME elsewhere"
            ) from error
    return home / "libs"


def _is_complete(home: Path) -> bool:
    try:
        manifest = json.loads((home / "manifest.json").read_text(encoding="utf-8"))
        return bool(manifest) and all((home / "libs" / jar).stat().st_size == size for jar, size in manifest.items())
    except (OSError, ValueError, AttributeError):
        return False


@contextmanager
def _fetching_alone(home: Path, progress: Progress) -> Iterator[None]:
    home.parent.mkdir(parents=True, exist_ok=True)
    with home.with_name(f"{home.name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress("another process is fetching Apache Pulsar; waiting for it ...")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fetch(home: Path, progress: Progress) -> None:
    mvn = shutil.which("mvn")
    if mvn is None:
        raise NoMaven(
            "Pulsar's jars are not here yet and Maven is not either: install Maven (mvn) on the PATH, try again"
        )
    free = shutil.disk_usage(home.parent).free
    if free < _ROOM_BYTES:
        raise PulsarStandaloneError(
            f"{home.parent} has {free // 1_000_000} MB free, fetching Pulsar needs {_ROOM_BYTES // 1_000_000}: "
            "free some, or point XDG_CACHE_HOME elsewhere"
        )
    for leftover in home.parent.glob(f"{home.name}.partial-*"):
        shutil.rmtree(leftover, ignore_errors=True)  # we hold the lock, so its writer is dead
    progress(f"fetching Apache Pulsar {PULSAR_VERSION} with Maven (235 MB, once per user, about a minute) ...")
    partial = home.with_name(f"{home.name}.partial-{os.getpid()}")
    result = partial / "result"
    try:
        (result / "libs").mkdir(parents=True)
        _run_maven(mvn, result / "libs", partial)
        sizes = {jar.name: jar.stat().st_size for jar in sorted((result / "libs").glob("*.jar"))}
        if len(sizes) < _FEWEST_JARS:
            raise PulsarDownloadFailed(f"Maven brought {len(sizes)} jars instead of {_FEWEST_JARS} or more: try again")
        (result / "manifest.json").write_text(json.dumps(sizes, indent=1), encoding="utf-8")
        shutil.rmtree(home, ignore_errors=True)
        result.rename(home)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _run_maven(mvn: str, libs: Path, work: Path) -> None:
    pom = work / "pom.xml"
    pom.write_text(resources.files(__package__).joinpath("pom.xml").read_text(encoding="utf-8"), encoding="utf-8")
    output = work / "output.txt"
    # A local repository of its own: a ~/.m2 that holds POMs without jars makes Ivy, and so Spark, fail later.
    options = ["-q", "-B", "-f", str(pom), f"-Dmaven.repo.local={work / 'repository'}", f"-DoutputDirectory={libs}"]
    with output.open("wb") as sink:
        process = subprocess.Popen(
            [mvn, *options, "-DincludeScope=runtime", "dependency:copy-dependencies"],
            cwd=work,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status = process.wait(_TIMEOUT_S)
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if isinstance(error, subprocess.TimeoutExpired):
                raise PulsarDownloadFailed(
                    f"Maven took more than {_TIMEOUT_S:.0f} s: check the network, try again"
                ) from error
            raise
    if status != 0:
        raise PulsarDownloadFailed(f"Maven ended with {status}: check the network, try again: {last_lines(output, 5)}")
