"""Sets of jars in a per-user cache: each is fetched once, whole or not at all, by one process at a time.

<user cache>/pulsar-on-kafka/
    kafka-4.4.0.lock            held while fetching
    kafka-4.4.0.partial-<pid>/  a download under way, or the remains of one
    kafka-4.4.0/
        libs/*.jar
        manifest.json           name -> bytes, written last
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

import platformdirs

from pulsar_on_kafka.embedded.errors import DownloadFailed, EmbeddedBrokerError, NoDiskSpace, NoDownloader
from pulsar_on_kafka.embedded.settings import Progress, to_stderr

_EXTRA_ROOM_BYTES: Final = 100_000_000  # what is only needed on the way, and what is made of the jars


@dataclass(frozen=True, slots=True)
class JarSet:
    """Jars that belong together.

    Attributes:
        name: of its directory in the cache, with the version.
        title: for people.
        size_mb: of all jars, about.
        with_dependencies, alone: coordinates (see `maven.fetch`).
        fewest: less jars are a broken set.
        needed: beginnings of names, each of which some jar must have.
        otherwise: what to do where the jars cannot be fetched; a sentence's end.
    """

    name: str
    title: str
    size_mb: int
    with_dependencies: tuple[str, ...] = ()
    alone: tuple[str, ...] = ()
    fewest: int = 1
    needed: tuple[str, ...] = ()
    otherwise: str = "try again"


Fetch: TypeAlias = Callable[[JarSet, Path, Path, Progress], None]
"""`fetch(jars, libs, work, progress)` puts all jars into `libs`, and what it needs besides into `work`."""


def default_cache_dir() -> Path:
    return Path(platformdirs.user_cache_dir("pulsar-on-kafka", appauthor=False))


def cached(
    jars: JarSet, cache_dir: Path | None = None, progress: Progress = to_stderr, fetch: Fetch | None = None
) -> Path:
    """The set's directory, with `libs` in it; fetched now if the cache does not hold all of it with the right sizes.

    Args:
        cache_dir: None for the user's.
        fetch: None for Maven Central, or the mirror that POK_MAVEN_REPOSITORY names.
    Raises:
        NoDownloader, NoDiskSpace, DownloadFailed, EmbeddedBrokerError: the jars are missing and stay so.
    """
    home = (cache_dir or default_cache_dir()) / jars.name
    if is_complete(home):
        return home
    with _disk_errors_named(home), _fetching_alone(home, jars, progress):
        if not is_complete(home):  # the process that we waited for may have done it
            _fetch_into(home, jars, progress, fetch or _from_maven)
    return home


def is_complete(home: Path) -> bool:
    """Whether every jar of the manifest exists in its full size: some stat calls, cheap enough for every start."""
    try:
        manifest = json.loads((home / "manifest.json").read_text(encoding="utf-8"))
        return bool(manifest) and all((home / "libs" / jar).stat().st_size == size for jar, size in manifest.items())
    except (OSError, ValueError, AttributeError):
        return False


def discard_if_damaged(home: Path) -> bool:
    """Check every byte of every jar; on damage drop the set, so that the next call fetches it. True if it did."""
    manifest = home / "manifest.json"
    if not manifest.exists() or all(_is_whole(jar) for jar in (home / "libs").glob("*.jar")):
        return False
    manifest.unlink()
    return True


def _from_maven(jars: JarSet, libs: Path, work: Path, progress: Progress) -> None:
    try:
        from pulsar_on_kafka.embedded import maven  # with jgo, which only a download needs
    except ImportError as missing:
        raise NoDownloader(
            f"{jars.title} is not here yet, and what fetches it is not installed ({missing.name}): "
            f"pip install 'pulsar-on-kafka[embedded]', or {jars.otherwise}"
        ) from missing
    maven.fetch(jars.with_dependencies, jars.alone, libs, work, progress)


def _fetch_into(home: Path, jars: JarSet, progress: Progress, fetch: Fetch) -> None:
    for leftover in home.parent.glob(f"{home.name}.partial-*"):
        shutil.rmtree(leftover, ignore_errors=True)  # we hold the lock, so its writer is dead
    progress(f"fetching {jars.title} ({jars.size_mb} MB, once per user) ...")
    partial = home.with_name(f"{home.name}.partial-{os.getpid()}")
    work, result = partial / "work", partial / "result"
    libs = result / "libs"
    try:
        work.mkdir(parents=True)
        libs.mkdir(parents=True)
        fetch(jars, libs, work, progress)
        damage = _damage(jars, libs)
        if damage is not None:
            raise DownloadFailed(f"a broken set of jars came: {damage}")
        sizes = {jar.name: jar.stat().st_size for jar in sorted(libs.iterdir())}
        (result / "manifest.json").write_text(json.dumps(sizes, indent=1), encoding="utf-8")
        shutil.rmtree(home, ignore_errors=True)
        result.rename(home)
    except DownloadFailed as failure:
        raise DownloadFailed(
            f"{jars.title} could not be fetched ({failure}): check the network, name a mirror of Maven Central with "
            f"POK_MAVEN_REPOSITORY, or {jars.otherwise}"
        ) from failure
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _damage(jars: JarSet, libs: Path) -> str | None:
    """The damage of what was fetched, found by reading all of it; None if there is none."""
    found = sorted(libs.glob("*.jar"))
    if len(found) < jars.fewest:
        return f"{len(found)} jars instead of {jars.fewest} or more"
    missing = [name for name in jars.needed if not any(jar.name.startswith(name) for jar in found)]
    if missing:
        return f"{missing[0]} is missing"
    return next((f"{jar.name} is damaged" for jar in found if not _is_whole(jar)), None)


def _is_whole(jar: Path) -> bool:
    try:
        with zipfile.ZipFile(jar) as archive:
            return archive.testzip() is None
    except (zipfile.BadZipFile, OSError, EOFError):
        return False


@contextmanager
def _fetching_alone(home: Path, jars: JarSet, progress: Progress) -> Iterator[None]:
    home.parent.mkdir(parents=True, exist_ok=True)
    with home.with_name(f"{home.name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress(f"another process is fetching {jars.title}; waiting for it ...")
            fcntl.flock(lock, fcntl.LOCK_EX)
        room = jars.size_mb * 1_000_000 + _EXTRA_ROOM_BYTES
        require_room(home.parent, room, f"fetching {jars.title}", "point XDG_CACHE_HOME elsewhere")
        yield


def require_room(directory: Path, needed_bytes: int, what: str, otherwise: str) -> None:
    """Raises `NoDiskSpace` when `directory` has less free space than `what` needs; the message suggests freeing some,
    or `otherwise`."""
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
            raise NoDiskSpace(f"the disk of {home.parent} is full: free some and try again") from error
        raise EmbeddedBrokerError(
            f"the cache {home.parent} cannot be written ({error.strerror}): mend it, or point XDG_CACHE_HOME elsewhere"
        ) from error
